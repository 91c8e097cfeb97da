package report

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"strings"

	"github.com/offpath-io/offpath/internal/uplot"
	"github.com/offpath-io/offpath/loadtest/result"
)

//go:embed page
var files embed.FS

var page = template.Must(template.New("page.html").Funcs(template.FuncMap{
	"script": func(name string) (template.JS, error) { text, err := embedded(name); return template.JS(text), err },
	"style":  func(name string) (template.CSS, error) { text, err := embedded(name); return template.CSS(text), err },
	// A licence of a vendored file goes where the file goes.
	"notice": func(name string) (template.JS, error) {
		text, err := embedded(name)
		return template.JS("/*\n" + text + "*/"), err
	},
	"alarms": alarms, "alarmsOf": alarmsOf, "alarming": alarming, "costs": costs, "excess": excess,
	"findings": findings, "groups": func() []group { return groups }, "head": headOf, "inWords": inWords,
	"milliseconds": func(v float64) string { return scaled(v, milliseconds) }, "nameOf": nameOf,
	"quantity": quantity, "sentence": sentence, "share": share, "summary": summary, "sweepSteps": sweepSteps,
	"where": where,
}).ParseFS(files, "page/*.html"))

// embedded is the text of a file of this package, or of the chart library. No other text goes into
// the page as it is.
func embedded(name string) (string, error) {
	text, err := files.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		text, err = uplot.Files.ReadFile(name)
	}
	return string(text), err
}

// A view is what the page's template gets. It forms the texts itself, with the functions above.
type view struct {
	result.File
	Runs []runView
	Data json.RawMessage // plots as JSON, by the charts' IDs
}

// A runView is a line of the table, and a section.
type runView struct {
	result.Run
	ID     string
	Charts []chart
}

// HTML writes a result as one page that needs nothing beside itself: its style, its script and its
// data are inside, and it forbids itself any request. An error is w's, or says that the page could
// not be made.
func HTML(w io.Writer, f result.File) error {
	v, plots := view{File: f}, map[string]*plot{}
	for i, r := range f.Runs {
		run := runView{r, fmt.Sprintf("run-%d", i+1), []chart{timeline(r), latency(r), sweep(r)}}
		for i := range run.Charts {
			c := &run.Charts[i]
			c.ID = run.ID + "-" + c.Kind
			if c.Plot != nil {
				plots[c.ID] = c.Plot
			}
		}
		v.Runs = append(v.Runs, run)
	}
	var err error
	if v.Data, err = json.Marshal(plots); err != nil {
		return fmt.Errorf("encode charts: %w", err)
	}
	var text strings.Builder // so that a page is written whole or not at all
	if err := page.Execute(&text, v); err != nil {
		return fmt.Errorf("fill page: %w", err)
	}
	_, err = io.WriteString(w, text.String())
	return err
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
