package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/offpath-io/offpath/loadtest/scenario"
	"github.com/offpath-io/offpath/pkg/rules"
)

// TestEstimates holds what checkers and aggregators reckon of themselves against what the judge knows, who sees every hit: the
// errors that docs/operations.md names. All of it in shares: of the limit for what is over, of all hits for what is wrong.
func TestEstimates(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test runs it without the race detector, which finds nothing in a single goroutine")
	}
	const exact = 1e-9
	for _, tt := range []struct {
		scenario   string
		load       float64
		checkers   int
		delay      time.Duration // each way; 2 ms if it is not given
		noForecast bool
		algorithm  rules.Algorithm
		// How far an estimate may be below and above the truth.
		over, wrong, falseLess, falseMore float64
	}{
		{scenario: "steady", load: 0.8, checkers: 8},
		{scenario: "steady", load: 1.5, checkers: 8, over: 0.003},
		{scenario: "steady", load: 5, checkers: 8, over: 0.004, falseMore: 0.0005},
		{scenario: "steady", load: 5, checkers: 32, over: 0.006, falseMore: 0.0005},
		{scenario: "hop", load: 5, checkers: 8, over: 0.003},
		{scenario: "mixed", load: 5, checkers: 8, over: 0.004, wrong: 0.002, falseMore: 0.0005},
		{scenario: "surge", load: 15, checkers: 8, over: 0.003, falseLess: 0.002},
		{scenario: "surge", load: 15, checkers: 32, over: 0.004, falseLess: 0.001, falseMore: 0.001},
		// Bursts are over before anybody has told of them.
		{scenario: "burst", load: 50, checkers: 8, over: 0.002, wrong: 0.0005, falseMore: 0.001},
		{scenario: "burst", load: 50, checkers: 32, over: 0.01, wrong: 0.002, falseLess: 0.01},
		// Without a forecast much is wrongly admitted, and nothing falsely denied.
		{scenario: "steady", load: 5, checkers: 8, noForecast: true, over: 0.004, wrong: 0.03},
		{scenario: "surge", load: 15, checkers: 8, noForecast: true, over: 0.004, wrong: 0.004},
		{scenario: "burst", load: 50, checkers: 8, noForecast: true, over: 0.005, wrong: 0.004},
		// Between regions much is falsely denied, and about half of that found.
		{scenario: "steady", load: 1.5, checkers: 8, delay: 80 * time.Millisecond, over: 0.02, wrong: 0.012, falseLess: 0.08},
		{scenario: "steady", load: 5, checkers: 8, delay: 80 * time.Millisecond, over: 0.02, wrong: 0.006, falseLess: 0.13},
		{scenario: "steady", load: 5, checkers: 8, algorithm: rules.FixedWindow, over: 0.002, wrong: 0.001, falseLess: 0.002},
		{scenario: "hop", load: 5, checkers: 8, algorithm: rules.FixedWindow, over: 0.003, falseMore: 0.003},
		{scenario: "steady", load: 5, checkers: 8, algorithm: rules.SlidingLog, over: 0.003, falseLess: 0.001, falseMore: 0.001},
		{scenario: "surge", load: 15, checkers: 8, algorithm: rules.TokenBucket, over: 0.004, falseLess: 0.004},
		{scenario: "burst", load: 50, checkers: 8, algorithm: rules.FixedWindow, over: 0.001, wrong: 0.001, falseMore: 0.008},
		{scenario: "burst", load: 50, checkers: 8, algorithm: rules.SlidingLog, over: 0.001, falseLess: 0.035},
		{scenario: "burst", load: 50, checkers: 8, algorithm: rules.TokenBucket, over: 0.003, wrong: 0.0001, falseLess: 0.015},
	} {
		if tt.delay == 0 {
			tt.delay = 2 * time.Millisecond
		}
		name := fmt.Sprintf("%s %v %v×, %d checkers, %v, forecast %v", tt.scenario, tt.algorithm, tt.load, tt.checkers, tt.delay, !tt.noForecast)
		sc := scenarioOf(t, tt.scenario, scenario.Settings{
			Load: new(tt.load), Checkers: new(tt.checkers), Duration: new(4 * time.Second), Algorithm: new(tt.algorithm),
		})
		r := simulate(t, sc, Options{Seed: 1, Delay: tt.delay, NoForecast: tt.noForecast})
		t.Logf("%s: over %.2f %%, estimated %.2f %%; wrongly allowed %.3f %%, %.3f %%; falsely denied %.3f %%, %.3f %%", name,
			100*r.OverWorstWindow, 100*r.Estimate.OverWorstWindow, 100*r.WrongAllowShare, 100*r.Estimate.WrongAllowShare,
			100*r.FalseDenialShare, 100*r.Estimate.FalseDenialShare)
		for _, e := range []struct {
			what             string
			estimated, truth float64
			less, more       float64
		}{
			{"over", r.Estimate.OverWorstWindow, max(r.OverWorstWindow, 0), tt.over, 0.001},
			{"wrongly allowed", r.Estimate.WrongAllowShare, r.WrongAllowShare, tt.wrong, tt.wrong},
			{"falsely denied", r.Estimate.FalseDenialShare, r.FalseDenialShare, tt.falseLess, tt.falseMore},
		} {
			if off := e.estimated - e.truth; off < -e.less-exact || off > e.more+exact {
				t.Errorf("%s: %s: estimated %.3f %%, is %.3f %%", name, e.what, 100*e.estimated, 100*e.truth)
			}
		}
	}
}
