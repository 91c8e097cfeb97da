package report

import (
	"encoding/json"
	"html"
	"math"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/offpath-io/offpath/loadtest/result"
)

// TestPage: all of a page but its style, scripts and licence is as testdata/page.html has it.
func TestPage(t *testing.T) {
	constant := regexp.MustCompile(`(?s)<style>.*?</style>|<script>.*?</script>`)
	golden(t, "page.html", constant.ReplaceAllString(written(t, HTML, troubled(t)), ""))
}

// says fails unless a text has all of these.
func says(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q", want)
		}
	}
}

func TestPageSaysWhatThereIsNot(t *testing.T) {
	f := sample(t)
	f.Runs = f.Runs[:1]
	r := &f.Runs[0]
	r.Description = "a few words"
	r.Timeline, r.Sweep, r.DecisionNS = result.Timeline{}, nil, result.Latency{}
	page := written(t, HTML, f)
	says(t, page, "There is no course over time", "There are no latencies: this run recorded none")
	says(t, page, "No other flush intervals", "<p>A few words.</p>")
	if n := strings.Count(page, `data-chart=`); n != 3 { // the costs
		t.Errorf("the page has %d charts, want 3", n)
	}
	says(t, written(t, HTML, sample(t)), "There are no latencies: under virtual time")
	empty := written(t, HTML, result.File{})
	if says(t, empty, "No run was measured."); strings.Contains(empty, "<table") {
		t.Error("a page without runs has a table")
	}
}

// Whatever a scenario is called, its name is text and nothing else.
func TestNamesCannotBreakOut(t *testing.T) {
	const evil = `</script><script>alert(1)</script><img src=x onerror=alert(2)>"'`
	f := sample(t)
	r := &f.Runs[0]
	r.Scenario, r.Variant, r.Description, r.Mode, r.Params.Store, r.Params.Faults = evil, evil, evil, evil, evil, evil
	r.Params.Rules[0].Name, r.Params.Rules[0].Algorithm, f.Machine.CPU, f.Offpath = evil, evil, evil, evil
	page, sane := written(t, HTML, f), written(t, HTML, sample(t))
	for _, tag := range []string{"<script", "</script", "<img"} {
		if got, want := strings.Count(page, tag), strings.Count(sane, tag); got != want {
			t.Errorf("the page has %d %s, want %d", got, tag, want)
		}
	}
	says(t, page, html.EscapeString("<script>alert(1)"))
}

var (
	reference = regexp.MustCompile(`(?i)\b(?:src|srcset|href|action|poster|data)\s*=\s*["']([^"']*)`)
	loads     = regexp.MustCompile(`(?i)@import|url\(|import\(|\bimport\s*["'{]|fetch\(|XMLHttpRequest|WebSocket|EventSource|sendBeacon|<link rel="stylesheet`)
)

func TestPageRefersToNothingOutside(t *testing.T) {
	page := written(t, HTML, sample(t))
	found := reference.FindAllStringSubmatch(page, -1)
	for _, match := range found {
		if to := match[1]; to != "data:," && !strings.HasPrefix(to, "#") {
			t.Errorf("the page refers to %q", to)
		}
	}
	if len(found) < 4 {
		t.Errorf("found only %d references: does the pattern still fit?", len(found))
	}
	if match := loads.FindString(page); match != "" {
		t.Errorf("the page may load something: %q", match)
	}
	says(t, page, `http-equiv="Content-Security-Policy" content="default-src 'none';`)
}

// plotsIn decodes what the page's script will draw.
func plotsIn(t *testing.T, page string) map[string]plot {
	t.Helper()
	_, rest, _ := strings.Cut(page, `<script type="application/json" id="plots">`)
	text, _, _ := strings.Cut(rest, "</script>")
	plots := map[string]plot{}
	if err := json.Unmarshal([]byte(text), &plots); err != nil {
		t.Fatalf("%v in %.200s", err, text)
	}
	return plots
}

// JSON has no such numbers, so that they cannot come from a file; a page is better than none all
// the same.
func TestPageLeavesOutWhatIsNoNumber(t *testing.T) {
	f := sample(t)
	nan, inf := math.NaN(), math.Inf(1)
	r := &f.Runs[0]
	r.OverTotal, r.ReportsPer1000, r.Timeline.Ours[3], r.Timeline.Oracle = nan, inf, nan, r.Timeline.Oracle[:50]
	r.Sweep[0].FlushMS, r.Sweep[1].FlushMS, r.Sweep[2].WrongAllowShare = nan, inf, nan
	r.DecisionNS.Curve[0].Value, r.DecisionNS.Curve[1].Percent, r.DecisionNS.P50 = inf, nan, &nan
	plots := plotsIn(t, written(t, HTML, f))
	if got, want := len(plots["run-1-sweep"].At), 5; got != want {
		t.Errorf("the sweep has %d steps, want %d", got, want)
	}
}

// What is vendored is what internal/uplot/README.md says, and its licence goes with every page.
func TestVendoredLibrary(t *testing.T) {
	page := written(t, HTML, sample(t))
	version := regexp.MustCompile(`uPlot \(v([\d.]+)\)`).FindStringSubmatch(page)
	if version == nil {
		t.Fatal("the page does not contain uPlot's first line")
	}
	readme, err := os.ReadFile("../../internal/uplot/README.md")
	must(t, err)
	says(t, string(readme), " "+version[1]+",")
	says(t, page, "Copyright (c) 2022 Leon Sorokin", "The above copyright notice and this permission notice")
}
