package report

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/offpath-io/offpath/loadtest/result"
)

// A view is what the page's template shows: texts only, but for the charts.
type view struct {
	Title   string
	Summary string
	Where   string
	Alarms  []string
	Heads   []head // of the table of all runs, above
	Columns []string
	Runs    []runView
	Costs   []bars
	Data    json.RawMessage // plots as JSON
	plots   map[string]*plot
}

// A head is above several columns of a table.
type head struct {
	Title string
	Span  int
}

// A runView is a line of the table, and a section.
type runView struct {
	ID          string
	Name        string
	Simulated   bool
	Interrupted bool
	Broken      bool
	Description string
	Words       []string
	Alarms      []string
	Cells       []cell // of its line
	Blocks      []block
	Charts      []chart
	Sweep       []sweepRow
}

// A block is the figures of one group.
type block struct {
	Title   string
	Figures []cell
}

// A cell is a figure, with its label where it has no column.
type cell struct {
	Label, Text string
	Alarming    bool
}

// A sweepRow is a step of the sweep as text.
type sweepRow struct {
	Flush   string
	Figures []string
}

func viewOf(f result.File) view {
	v := view{
		Title:   "offpath load test",
		Summary: summary(f.Runs),
		Where:   where(f),
		Alarms:  alarms(f),
		Costs:   costs(f.Runs),
		plots:   map[string]*plot{},
	}
	for _, g := range groups {
		if n := len(summaryOf(g)); n > 0 {
			v.Heads = append(v.Heads, head{g.title, n})
		}
		for _, c := range summaryOf(g) {
			v.Columns = append(v.Columns, strings.ReplaceAll(c.head, "|", " "))
		}
	}
	for i, r := range f.Runs {
		v.addRun(fmt.Sprintf("run-%d", i+1), r)
	}
	return v
}

func (v *view) addRun(id string, r result.Run) {
	run := runView{
		ID: id, Name: nameOf(r), Simulated: r.Mode == result.Simulated, Interrupted: r.Interrupted, Broken: !r.Conservation.Holds,
		Description: sentence(r.Description), Words: inWords(r), Alarms: alarmsOf(r),
	}
	for _, g := range groups {
		for _, c := range summaryOf(g) {
			run.Cells = append(run.Cells, cellOf(c, r))
		}
	}
	for _, g := range findings() {
		b := block{Title: g.title}
		for _, c := range g.columns {
			b.Figures = append(b.Figures, cellOf(c, r))
		}
		run.Blocks = append(run.Blocks, b)
	}
	for _, c := range []chart{timeline(r), latency(r), sweep(r)} {
		c.ID = id + "-" + c.Kind
		if c.Plot != nil {
			v.plots[c.ID] = c.Plot
		}
		run.Charts = append(run.Charts, c)
	}
	for _, s := range sweepSteps(r) {
		run.Sweep = append(run.Sweep, sweepRow{scaled(s.FlushMS, milliseconds), []string{
			share(s.WrongAllowShare), share(s.FalseDenialShare), excess(s.OverWorstWindow), quantity(s.ReportsPer1000)}})
	}
	v.Runs = append(v.Runs, run)
}

// summaryOf is the columns of a group that the table of all runs has.
func summaryOf(g group) []column {
	var list []column
	for _, c := range g.columns {
		if c.shown >= inSummary {
			list = append(list, c)
		}
	}
	return list
}

func cellOf(c column, r result.Run) cell {
	text := c.value(r)
	return cell{c.label, text, alarming(text)}
}

// summary is the result in a line: how many runs, and the worst of the figures that matter most.
func summary(runs []result.Run) string {
	if len(runs) == 0 {
		return "No run was measured."
	}
	simulated := 0
	over, wrong := runs[0], runs[0]
	var slow *result.Run
	for i, r := range runs {
		if r.Mode == result.Simulated {
			simulated++
		}
		if r.OverWorstWindow > over.OverWorstWindow {
			over = r
		}
		if wrongShare(r) > wrongShare(wrong) {
			wrong = r
		}
		if p99 := r.DecisionNS.P99; p99 != nil && (slow == nil || *p99 > *slow.DecisionNS.P99) {
			slow = &runs[i]
		}
	}
	text := fmt.Sprintf("%s. At worst: %s over the limit (%s), %s of the decisions wrong (%s)", kinds(len(runs), simulated),
		excess(over.OverWorstWindow), nameOf(over), share(wrongShare(wrong)), nameOf(wrong))
	if slow != nil {
		text += fmt.Sprintf(", p99 of a decision %s (%s)", ifAny(slow.DecisionNS.P99, nanoseconds), nameOf(*slow))
	}
	return text + "."
}

// kinds says how many runs there are, and of which kind.
func kinds(all, simulated int) string {
	switch simulated {
	case 0:
		return counted(all, "live run")
	case all:
		return counted(all, "simulated run")
	default:
		return fmt.Sprintf("%s, %d live and %d simulated", counted(all, "run"), all-simulated, simulated)
	}
}

// wrongShare is both kinds of wrong decisions: no hit is of both.
func wrongShare(r result.Run) float64 { return r.WrongAllowShare + r.FalseDenialShare }
