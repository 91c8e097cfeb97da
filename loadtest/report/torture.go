package report

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/offpath-io/offpath/loadtest/result"
	"github.com/offpath-io/offpath/loadtest/torture/found"
)

// A Campaign is what a fault campaign found, and what is told beside it.
type Campaign struct {
	found.Result
	On     result.File // the program and the machine; its runs are not looked at
	Failed error       // why the campaign itself did not go as it should, or nil
}

// CampaignHTML writes a campaign as one page, in the way of [HTML].
func CampaignHTML(w io.Writer, c Campaign) error {
	v, plots := campaignView{Campaign: c, end: c.Seconds}, map[string]*plot{}
	for _, f := range c.Faults {
		v.end = max(v.end, f.At+f.For)
	}
	v.Charts = append([]chart{v.rates()}, v.counts()...)
	for i := range v.Charts {
		if c := &v.Charts[i]; c.Plot != nil {
			c.ID = fmt.Sprintf("%s-%d", c.Kind, i+1)
			plots[c.ID] = c.Plot
		}
	}
	var err error
	if v.Data, err = json.Marshal(plots); err != nil {
		return fmt.Errorf("encode charts: %w", err)
	}
	var text strings.Builder // so that a page is written whole or not at all
	if err := page.ExecuteTemplate(&text, "torture.html", &v); err != nil {
		return fmt.Errorf("fill page: %w", err)
	}
	_, err = io.WriteString(w, text.String())
	return err
}

// campaignView is what the template gets. All that lies on the time line has its place in per cent
// of the width, so that it needs no script to fit.
type campaignView struct {
	Campaign
	Charts []chart
	Data   json.RawMessage // plots as JSON, by the charts' IDs
	end    float64         // of the time line, in seconds
}

// Verdict is the result in a sentence.
func (v *campaignView) Verdict() string {
	played := fmt.Sprintf("%s of %s in %s", counted(len(v.Faults), "fault"),
		counted(len(v.Kinds()), "kind"), scaled(v.Seconds*1000, milliseconds))
	switch broken := v.Broken(); {
	case len(v.Violations) > 0:
		return fmt.Sprintf("%s of %s, with %s.", counted(len(v.Violations), "violation"),
			counted(len(broken), "promise"), played)
	case v.Failed != nil:
		return "There is no verdict, as the campaign failed: no violation was seen, with " + played + "."
	case v.Interrupted:
		return "No promise was broken until the campaign was interrupted: " + played + "."
	}
	text := "All promises held: " + played + "; every hit is accounted for"
	if v.Requests.Asked > v.Requests.Excused {
		text += "; the slowest answer of a live checker took " + scaled(v.Requests.Longest, milliseconds)
	}
	if len(v.Rests) > 0 {
		text += "; at rest again after at most " + v.slowestRest()
	}
	return text + "."
}

// Alarms are what a reader must not overlook, beside violations.
func (v *campaignView) Alarms() (list []string) {
	if v.Failed != nil {
		list = append(list, "THE CAMPAIGN FAILED: "+oneLine(v.Failed.Error()))
	}
	if v.Interrupted {
		list = append(list, "INTERRUPTED: the figures are of the part that was played.")
	}
	return list
}

// At is a time as the page writes it.
func (*campaignView) At(seconds float64) string { return plain(seconds, 2) + " s" }

// mostPlaces is how many places a line of a chart has at most: as many as can be told apart when
// the time line is drawn wider.
const mostPlaces = 2400

// over is a chart over the campaign's time: fine steps are joined, at least so many into one.
func (v *campaignView) over(c chart, y axis, steps int, step float64, join int) (chart, int) {
	if steps == 0 || !(step > 0) {
		c.Note = "There is no course over time: this campaign recorded none."
		return c, 0
	}
	join = max(join, (steps+mostPlaces-1)/mostPlaces)
	c.Plot = &plot{X: axis{Label: "time (s)", Unit: "s", Max: v.end}, Y: y}
	for i := range (steps + join - 1) / join {
		c.Plot.At = append(c.Plot.At, rounded((float64(i)+0.5)*step*float64(join), 3))
	}
	return c, join
}

// rates are the requests that were admitted and denied per second, of all rules.
func (v *campaignView) rates() chart {
	var admitted, denied []float64
	step := 0.0
	for _, r := range v.Rules {
		admitted, denied, step = sum(admitted, r.Admitted), sum(denied, r.Denied), r.Step
	}
	c := chart{
		Kind: "rates", Title: "Requests admitted and denied",
		Note:  "Per second, of the rules below together.",
		Label: "Line chart of the requests admitted and denied per second.",
	}
	y := axis{Label: "requests per second", Unit: "/s"}
	c, join := v.over(c, y, len(admitted), step, int(math.Round(1/step)))
	if c.Plot == nil {
		return c
	}
	perSecond := func(fine []float64) (list []value) {
		for steps := range slices.Chunk(fine, join) {
			total := 0.0
			for _, n := range steps {
				total += n
			}
			list = append(list, value(total/step/float64(len(steps))))
		}
		return list
	}
	c.Plot.Lines = []line{
		{Name: "admitted", Style: "ours", Values: perSecond(admitted)},
		{Name: "denied", Style: "denial", Dashed: true, Values: perSecond(denied)},
	}
	_, most := limits(c.Plot.Lines[0].Values, c.Plot.Lines[1].Values)
	c.Plot.Y.Max = math.Ceil(max(most, 1) * 1.1)
	return c
}

// sum adds counts to a sum, which grows to their length.
func sum(to []float64, counts []int64) []float64 {
	to = append(to, make([]float64, max(len(counts)-len(to), 0))...)
	for i, n := range counts {
		to[i] += float64(n)
	}
	return to
}

// counts are the worst key's count of each rule against its limit, a chart each.
func (v *campaignView) counts() (list []chart) {
	for _, r := range v.Rules {
		limit := fmt.Sprintf("limit: %s", count(r.Limit))
		c := chart{Kind: "count", Title: "Rule " + oneLine(r.Rule) + ": count of its worst key"}
		c, join := v.over(c, axis{}, len(r.Counts), r.Step, 1)
		if c.Plot != nil {
			t := result.Timeline{StepMS: r.Step * 1000}
			for i, n := range r.Counts {
				t.Ours = append(t.Ours, float64(n)/float64(limitAt(&r, i)))
			}
			values := percents(coarser(t, join).Ours, len(c.Plot.At))
			c.Plot.Y, c.Plot.Level = aroundLimit(limits(values)), &mark{100, limit}
			c.Plot.Lines = []line{{Name: "the worst key’s count", Style: "ours", Values: values}}
			c.Note = fmt.Sprintf("In per cent of the limit; above 100 %% is over it. "+
				"Over the limit at worst: %s, at rest: %s.", overWorst(r.Worst), overWorst(r.AtRest))
			c.Label = fmt.Sprintf("Line chart of the largest count of any key of %s over time. %s",
				oneLine(r.Rule), c.Note)
		}
		list = append(list, c)
	}
	return list
}

// limitAt is a rule's limit at a step: it may change.
func limitAt(r *found.Rule, step int) int64 {
	if step < len(r.Limits) && r.Limits[step] > 0 { // 0: nobody asked
		return r.Limits[step]
	}
	return r.Limit
}

// overWorst is an excess, and none where nothing was admitted.
func overWorst(share float64) string {
	if share <= -1 {
		return none
	}
	return excess(share)
}

// A fact is a line of a table.
type fact struct {
	Label, Value string
	Bad          bool
}

// facts are a table.
type facts struct {
	Title string
	Lines []fact
}

// Equation says where all hits are, in figures, as the campaign judges it.
func (v *campaignView) Equation() string {
	n, verdict := v.Counts, "it holds"
	least, sum, most := n.Bounds()
	switch {
	case sum < least:
		verdict = fmt.Sprintf("IT DOES NOT HOLD: %s", off(sum-least))
	case sum > most:
		verdict = fmt.Sprintf("IT DOES NOT HOLD: %s", off(sum-most))
	}
	return fmt.Sprintf("%s − %s − %s ≤ %s + %s + %s ≤ %s + %s + %s, or %s ≤ %s ≤ %s: %s.",
		count(n.Allowed), count(n.Held), count(n.StoreLostMore),
		count(n.Ledger), count(n.Dropped), count(n.StoreLost),
		count(n.Allowed), count(n.Uncertain), count(n.CountedAgain),
		count(least), count(sum), count(most), verdict)
}

// Sheets are tables of figures.
func (v *campaignView) Sheets() []facts {
	q, n := v.Requests, v.Counts
	ms := func(t float64) string { return scaled(t, milliseconds) }
	number := func(label string, n int64) fact { return fact{label, count(n), false} }
	late, missed := number("not answered in time", q.Late), 0
	late.Bad = q.Late > 0
	var after []float64
	for _, r := range v.Rests {
		if r.After < 0 {
			missed++
		} else {
			after = append(after, r.After)
		}
	}
	slices.Sort(after)
	median := none
	if len(after) > 0 {
		median = restAfter(after[len(after)/2])
	}
	return []facts{
		{"Requests", []fact{
			number("asked", q.Asked), number("over RLS", q.OverRLS), number("allowed", q.Allowed),
			number("denied", q.Denied), number("without an answer, perhaps charged", q.Uncertain),
			number("of checkers that were killed, stopped or frozen meanwhile", q.Excused), late,
		}},
		{"Answers of live checkers", []fact{
			{"p50", ms(q.P50), false}, {"p99", ms(q.P99), false}, {"longest", ms(q.Longest), false},
		}},
		{"Where all hits are", []fact{
			number("allowed", n.Allowed), number("perhaps charged, without an answer", n.Uncertain),
			number("in the ledger", n.Ledger), number("dropped, as checkers say", n.Dropped),
			number("lost by Redis", n.StoreLost), number("held by checkers that ended", n.Held),
		}},
		{"Recovery", []fact{
			{"rounds", fmt.Sprint(v.Rounds), false},
			{"at rest again, median of those in time", median, false},
			{"at rest again, slowest", v.slowestRest(), missed > 0},
			{"not in time", fmt.Sprint(missed), missed > 0},
		}},
		{"Campaign", []fact{
			{"seed", fmt.Sprint(v.Seed), false}, {"Redis", oneLine(v.Mode), false},
			{"the machine itself stood still", share(v.StoodStill), false},
			{"violations", fmt.Sprint(len(v.Violations)), len(v.Violations) > 0},
		}},
	}
}
