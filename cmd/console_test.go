package cmd_test

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
)

var decisionLine = regexp.MustCompile(`(?m)^offpath_decisions_total\{outcome="(allowed|denied)",rule="([^"]+)"\} (\S+)$`)

// decisions are the sums over the checkers' /metrics, by rule and outcome, without those that are
// 0.
func (f *fleet) decisions() string {
	f.Helper()
	sums := make(map[string]int64)
	for _, d := range f.checkers {
		for _, m := range decisionLine.FindAllStringSubmatch(d.Metrics(), -1) {
			n, err := strconv.ParseFloat(m[3], 64)
			must(f.T, err)
			if n > 0 {
				sums[m[2]+" "+m[1]] += int64(n)
			}
		}
	}
	return fmt.Sprint(sums)
}

// topOutput is what "top" and a console's /api/view say.
type topOutput struct {
	Heard struct{ Checkers, Aggregators int }
	Rules []struct {
		Rule            string
		Allowed, Denied int64
	}
}

// decisions are as those of a fleet.
func (o topOutput) decisions() string {
	sums := make(map[string]int64)
	for _, r := range o.Rules {
		for outcome, n := range map[string]int64{"allowed": r.Allowed, "denied": r.Denied} {
			if n > 0 {
				sums[r.Rule+" "+outcome] = n
			}
		}
	}
	return fmt.Sprint(sums)
}

// TestConsoleNumbers: what "top" and the consoles of both aggregators say is the sum of the
// checkers' /metrics.
func TestConsoleNumbers(t *testing.T) {
	f := &fleet{T: t, nats: serverstest.JetStream(t).URL(), redis: serverstest.Redis(t).URL()}
	rules := writeFile(t, "rules.yaml", "rules: [{name: small, key: [user], limit: 7/day}, {name: large, key: [api], limit: 1000/day}]\n")
	for range 2 {
		f.startAggregator()
	}
	for range 2 {
		f.startChecker("--rules", rules).AwaitMetric(`offpath_freshness{state="fresh"}`, "1")
	}
	for i := range 60 {
		ask(t, f.checkers[i%2], fmt.Sprintf(`{"user":"user%d","api":"<script>alert(1)</script>"}`, i%4))
	}
	if sums := f.decisions(); !strings.Contains(sums, "small allowed") || !strings.Contains(sums, "small denied") {
		t.Fatalf("nothing to compare: %s", sums)
	}
	agrees := func(what string, read func(*topOutput)) {
		t.Helper()
		daemontest.Until(t, what, func() string {
			var got topOutput
			read(&got)
			want := f.decisions()
			if got.decisions() != want || got.Heard.Checkers != len(f.checkers) || got.Heard.Aggregators != 2 {
				return fmt.Sprintf("%+v, want %s", got, want)
			}
			return ""
		})
	}
	top := func(got *topOutput) { must(t, json.Unmarshal([]byte(f.do("top", "--json")), got)) }
	agrees("top", top)
	for _, d := range f.aggregators {
		agrees("a console", func(got *topOutput) {
			_, body := d.Get("/api/view")
			must(t, json.Unmarshal([]byte(body), got))
		})
	}
	f.checkers[1].Stop()
	f.checkers = f.checkers[:1] // one that stops is left out
	agrees("top without one", top)
	// A checker that has stood still is not fresh for a moment.
	daemontest.Until(t, "the fleet is shown", func() string {
		if text := f.do("fleet"); strings.Count(text, "fresh") != 1 || !strings.Contains(text, "1 checker and 2 aggregators heard") {
			return text
		}
		return ""
	})
	if text := f.do("top"); !strings.Contains(text, "small") {
		t.Errorf("top:\n%s", text)
	}
}

// decidedSpan is how many admitted requests a console's history of the last 15 minutes has, and how
// many slots it knows.
func decidedSpan(t *testing.T, d *daemontest.Daemon) (sum float64, known int) {
	t.Helper()
	_, body := d.Get("/api/history?span=15m")
	var s struct {
		Slot    float64 `json:"slot_ms"`
		Allowed []*float64
	}
	must(t, json.Unmarshal([]byte(body), &s))
	for _, rate := range s.Allowed {
		if rate != nil {
			sum += *rate * s.Slot / 1000
			known++
		}
	}
	return sum, known
}

// TestConsoleHistorySurvives: what a fleet has decided is in the history of every console, and of
// one that starts after all others have ended.
func TestConsoleHistorySurvives(t *testing.T) {
	f := &fleet{T: t, nats: serverstest.JetStream(t).URL(), redis: serverstest.Redis(t).URL()}
	rules := writeFile(t, "rules.yaml", "rules: [{name: large, key: [user], limit: 1000/day}]\n")
	for range 2 {
		f.startAggregator()
	}
	f.startChecker("--rules", rules).AwaitMetric(`offpath_freshness{state="fresh"}`, "1")
	for _, d := range f.aggregators {
		d.Await("the console has heard the checker, and listened for whole slots", func() bool {
			_, known := decidedSpan(t, d)
			_, view := d.Get("/api/view")
			return known > 1 && strings.Contains(view, `"heard":{"checkers":1,`)
		})
	}
	const hits = 50
	for i := range hits {
		ask(t, f.checkers[0], fmt.Sprintf(`{"user":"user%d"}`, i))
	}
	has := func(d *daemontest.Daemon) {
		t.Helper()
		daemontest.Until(t, "the history has the hits", func() string {
			if sum, _ := decidedSpan(t, d); math.Abs(sum-hits) > 0.1 { // rates are rounded
				return fmt.Sprintf("%v, want %d", sum, hits)
			}
			return ""
		})
	}
	for _, d := range f.aggregators {
		has(d)
	}
	for _, d := range f.aggregators {
		d.Stop()
	}
	f.aggregators = nil
	f.startAggregator()
	has(f.aggregators[0])
}
