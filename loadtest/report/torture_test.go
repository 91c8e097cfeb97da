package report

import (
	"errors"
	"fmt"
	"html"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/offpath-io/offpath/loadtest/result"
	"github.com/offpath-io/offpath/loadtest/torture/found"
)

// campaign is one of 100 s in which all promises held.
func campaign() Campaign {
	return Campaign{Result: found.Result{
		Mode: "single", Seed: 7, Command: "go run ./loadtest torture --seed 7",
		Seconds: 100, Rounds: 2,
		Faults: []found.Fault{ // as they ended
			{At: 12, For: 1, Kind: "slow", Target: "checker-0", Detail: "50 ms"},
			{At: 10, For: 5, Kind: "pause", Target: "checker-0", Detail: ""},
			{At: 16, For: 1, Kind: "kill", Target: "checker-0", Detail: ""},
			{At: 20, For: 2, Kind: "partition", Target: "checker-1 and all nats", Detail: "both ways"},
			{At: 22, For: 0, Kind: "cut", Target: "nats-10", Detail: ""},
			{At: 50, For: 1, Kind: "stop", Target: "nats-2", Detail: ""},
			{At: 60, For: 0.25, Kind: "lose", Target: "redis", Detail: "1200 hits lost of 1200"},
		},
		Rests:    []found.Rest{{At: 25, After: 0.2}, {At: 70, After: 0.5}},
		Requests: found.Requests{Asked: 6000, Allowed: 4000, Denied: 1900, Excused: 100, Longest: 81},
		Counts:   found.Conservation{Allowed: 4000, Ledger: 2750, StoreLost: 1200, Held: 60, CountedAgain: 5},
		Rules: []found.Rule{{
			Rule: "fast", Limit: 200, Worst: 0.25, AtRest: -1, Step: 0.25,
			Counts:   []int64{100, 200, 250, 150, 20},
			Admitted: []int64{50, 50, 50, 50, 10}, Denied: []int64{0, 0, 10, 10, 0},
		}},
	}}
}

// violated is one with three violations of two promises, and hits that are gone.
func violated() Campaign {
	c := campaign()
	c.Violations = []found.Violation{
		{At: -0.2, What: "no crash", Text: "early"},
		{At: 30, What: "ready within 5 s", Text: "checker-0 is not"},
		{At: 75, What: "ready within 5 s", Text: "checker-1 is not"},
	}
	c.Rests[1].After = -1
	c.Counts.Ledger = 2000
	return c
}

func campaignPage(t *testing.T, c Campaign) string {
	write := func(w io.Writer, _ result.File) error { return CampaignHTML(w, c) }
	return written(t, write, result.File{})
}

// Each kind of fault has words. It reads their source: an import would bring the servers' modules
// to all who import this package.
func TestKindsHaveWords(t *testing.T) {
	source, err := os.ReadFile("../torture/kinds.go")
	must(t, err)
	c := campaign()
	kinds := regexp.MustCompile(`Kind += "(\w+)"`).FindAllStringSubmatch(string(source), -1)
	for _, kind := range kinds {
		c.Faults = append(c.Faults, found.Fault{Kind: kind[1]})
	}
	v := campaignView{Campaign: c}
	list := v.Kinds()
	if len(kinds) < 18 || slices.ContainsFunc(list, func(k kindLine) bool { return k.Words == "" }) {
		t.Errorf("%d kinds in the source; words: %+v", len(kinds), list)
	}
}

// Each fault has its bar in its target's row, below one that is still going on there.
func TestCampaignShowsFaults(t *testing.T) {
	page := campaignPage(t, campaign())
	for _, test := range []struct {
		kind, left, width string
		top               int
		title             string
	}{
		{"pause", "10", "5", 3, "pause: checker-0 at 10 s for 5 s"},
		{"slow", "12", "1", 14, "slow: checker-0 at 12 s for 1 s: 50 ms"},
		{"kill", "16", "1", 3, "kill: checker-0 at 16 s for 1 s"},
		{"partition", "20", "2", 3, "partition: checker-1 and all nats at 20 s for 2 s: both ways"},
		{"cut", "22", "0", 3, "cut: nats-10 at 22 s"},
		{"stop", "50", "1", 3, "stop: nats-2 at 50 s for 1 s"},
		{"lose", "60", "0.25", 3, "lose: redis at 60 s for 250 ms: 1200 hits lost of 1200"},
	} {
		bar := fmt.Sprintf(`<i class="%s" style="left:%s%%;width:%s%%;top:%dpx" title="%s">`,
			test.kind, test.left, test.width, test.top, test.title)
		if n := strings.Count(page, bar); n != 1 {
			t.Errorf("%d bars %s", n, bar)
		}
	}
	if n := strings.Count(page, "<i class="); n != 7 {
		t.Errorf("%d bars, want 7", n)
	}
	v := campaignView{Campaign: campaign(), end: 100}
	var rows []string
	for _, track := range v.Tracks() {
		rows = append(rows, track.Name)
	}
	want := []string{"nats-2", "nats-10", "redis", "checker-0", "links"}
	if !slices.Equal(rows, want) {
		t.Errorf("rows %q, want %q", rows, want)
	}
	says(t, page, // a rest goes on until the next fault, or the end
		`<div class="rest" style="left:25%;width:25%" title="at rest: 200 ms">`,
		`<div class="rest" style="left:70%;width:30%" title="at rest: 500 ms">`,
		"All promises held: 7 faults of 7 kinds in 1.67 min; every hit is accounted for; the "+
			"slowest answer of a live checker took 81 ms; at rest again after at most 500 ms.",
		"4,000 − 60 − 0 ≤ 2,750 &#43; 0 &#43; 1,200 ≤ 4,000 &#43; 0 &#43; 5, or "+
			"3,940 ≤ 3,950 ≤ 4,005: it holds.")
	if strings.Contains(page, "alarm\"") || strings.Contains(page, "violation-") {
		t.Error("there is an alarm, though all promises held")
	}
}

func TestCampaignTellsViolations(t *testing.T) {
	says(t, campaignPage(t, violated()),
		`<div class="alarm" role="alert"><p>3 violations of 2 promises, with 7 faults`,
		`<p>ready within 5 s: <a href="#violation-2">2</a></p>`,
		"Repeat the faults with: <code>go run ./loadtest torture --seed 7</code>",
		`<a href="#violation-1" style="left:0%" title="−0.2 s: early">✕</a>`,
		`<a href="#violation-3" style="left:75%" title="75 s: checker-1 is not">✕</a>`,
		`<tr id="violation-3"><td>75 s</td><td>ready within 5 s</td><td>checker-1 is not</td></tr>`,
		`<div class="rest bad" style="left:70%;width:30%" title="at rest: not in time">`,
		"IT DOES NOT HOLD: 740 missing")
}

// A campaign that failed, or was stopped, does not say that all promises held.
func TestCampaignWithoutVerdict(t *testing.T) {
	failed, stopped := campaign(), campaign()
	failed.Failed, stopped.Interrupted = errors.New("kill of nats-0:\nno such process"), true
	for page, want := range map[string][]string{
		campaignPage(t, failed): {"There is no verdict",
			"THE CAMPAIGN FAILED: kill of nats-0: no such process"},
		campaignPage(t, stopped): {"No promise was broken until", "INTERRUPTED"},
	} {
		if says(t, page, want...); strings.Contains(page, "All promises held") {
			t.Errorf("it says that all promises held: want %q", want[0])
		}
	}
	// Without any figure it is a page all the same.
	says(t, campaignPage(t, Campaign{}), "There is no course over time")
}

func TestCampaignCharts(t *testing.T) {
	plots := plotsIn(t, campaignPage(t, campaign()))
	rates, counts := plots["rates-1"], plots["count-2"]
	if len(plots) != 2 || rates.X.Max != 100 || counts.X.Max != 100 {
		t.Fatalf("%d plots: %+v", len(plots), plots)
	}
	// A second is joined; the last step is less than one, and its rate is of what there was of it.
	for _, test := range []struct{ got, want []value }{
		{rates.Lines[0].Values, []value{200, 40}},
		{rates.Lines[1].Values, []value{20, 0}},
		{counts.Lines[0].Values, []value{50, 100, 125, 75, 10}},
	} {
		if !slices.Equal(test.got, test.want) {
			t.Errorf("a line has %v, want %v", test.got, test.want)
		}
	}
	if want := (mark{100, "limit: 200"}); *counts.Level != want {
		t.Errorf("the level is %v, want %v", *counts.Level, want)
	}
	long := campaign() // of hours: the peaks stay
	long.Rules[0].Counts = make([]int64, 3*mostPlaces)
	long.Rules[0].Counts[100] = 300
	values := plotsIn(t, campaignPage(t, long))["count-2"].Lines[0].Values
	if len(values) != mostPlaces || slices.Max(values) != 150 {
		t.Errorf("%d places, at most %v", len(values), slices.Max(values))
	}
}

// Whatever a text says, it is text; and the page refers to nothing outside.
func TestCampaignCannotBreakOut(t *testing.T) {
	const evil = `</script><script>alert(1)</script><img src=https://x.example/ onerror=alert(2)>"';}`
	sane, c := campaignPage(t, violated()), violated()
	c.Command, c.Mode, c.On.Offpath, c.Failed = evil, evil, evil, errors.New(evil)
	f, v := &c.Faults[0], &c.Violations[0]
	f.Kind, f.Target, f.Detail = evil, evil, evil
	v.What, v.Text, c.Rules[0].Rule = evil, evil, evil
	page := campaignPage(t, c)
	for _, tag := range []string{"<script", "</script", "<img", "<i "} {
		if got, want := strings.Count(page, tag), strings.Count(sane, tag); got != want {
			t.Errorf("the page has %d %s, want %d", got, tag, want)
		}
	}
	says(t, page, html.EscapeString("<script>alert(1)"))
	for _, match := range reference.FindAllStringSubmatch(sane, -1) {
		if to := match[1]; to != "data:," && !strings.HasPrefix(to, "#") {
			t.Errorf("the page refers to %q", to)
		}
	}
	if match := loads.FindString(sane); match != "" {
		t.Errorf("the page may load something: %q", match)
	}
	says(t, sane, `http-equiv="Content-Security-Policy" content="default-src 'none';`)
}

func TestCampaignWriteErrorsAreReturned(t *testing.T) {
	r, w := io.Pipe()
	_ = r.CloseWithError(os.ErrClosed)
	if err := CampaignHTML(w, campaign()); !errors.Is(err, os.ErrClosed) {
		t.Errorf("returned %v", err)
	}
}
