package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/offpath-io/offpath/loadtest/scenario"
)

// TestAccuracy holds the figures of docs/accuracy.md that a simulation can hold, with 2 ms each way, a limit of 1000 a
// second and a timer of 50 ms: how far the count goes beyond the limit in the worst window, and which share of
// the decisions is wrong by more than 2 % of the limit, either way.
func TestAccuracy(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test runs it without the race detector, which finds nothing in a single goroutine")
	}
	for _, tt := range []struct {
		scenario    string
		load        float64
		checkers    int
		over, wrong float64
		delay       time.Duration // each way; 2 ms if it is not given
	}{
		{scenario: "steady", load: 1.5, checkers: 8, over: 0.01, wrong: 0.001},
		{scenario: "steady", load: 5, checkers: 8, over: 0.01, wrong: 0.001},
		{scenario: "skew", load: 5, checkers: 8, over: 0.01, wrong: 0.001},
		{scenario: "hop", load: 5, checkers: 8, over: 0.01, wrong: 0.001},
		{scenario: "surge", load: 15, checkers: 8, over: 0.03, wrong: 0.0035},
		{scenario: "burst", load: 50, checkers: 8, over: 0.06, wrong: 0.015},
		{scenario: "steady", load: 1.5, checkers: 32, over: 0.02, wrong: 0.001},
		{scenario: "steady", load: 5, checkers: 32, over: 0.02, wrong: 0.001},
		{scenario: "skew", load: 5, checkers: 32, over: 0.02, wrong: 0.001},
		{scenario: "hop", load: 5, checkers: 32, over: 0.02, wrong: 0.001},
		{scenario: "surge", load: 15, checkers: 32, over: 0.03, wrong: 0.002},
		{scenario: "steady", load: 5, checkers: 1000, over: 0.025, wrong: 0.001},
		{scenario: "hop", load: 5, checkers: 1000, over: 0.02, wrong: 0.001},
		// Whose traffic it is changes all the time, with few denied hits to be told of.
		{scenario: "hop", load: 1.2, checkers: 8, over: 0.01, wrong: 0.001},
		{scenario: "hop", load: 1.5, checkers: 32, over: 0.02, wrong: 0.001},
		// Between regions.
		{scenario: "steady", load: 1.5, checkers: 8, over: 0.02, wrong: 0.001, delay: 20 * time.Millisecond},
		// With the peak of the count at about 0.8 of the limit nobody may be denied.
		{scenario: "steady", load: 0.8, checkers: 8, over: 0, wrong: 0},
		{scenario: "skew", load: 0.8, checkers: 8, over: 0, wrong: 0},
		{scenario: "hop", load: 0.8, checkers: 8, over: 0, wrong: 0},
		{scenario: "hop", load: 0.8, checkers: 32, over: 0, wrong: 0},
		{scenario: "hop", load: 0.8, checkers: 1000, over: 0, wrong: 0},
		{scenario: "surge", load: 0.8, checkers: 32, over: 0, wrong: 0},
		{scenario: "burst", load: 8, checkers: 8, over: 0, wrong: 0},
	} {
		if tt.delay == 0 {
			tt.delay = 2 * time.Millisecond
		}
		name := fmt.Sprintf("%s %v×, %d checkers, %v", tt.scenario, tt.load, tt.checkers, tt.delay)
		sc := scenarioOf(t, tt.scenario, scenario.Settings{
			Load: new(tt.load), Checkers: new(tt.checkers), Duration: new(8 * time.Second),
		})
		r := simulate(t, sc, Options{Seed: 1, Delay: tt.delay})
		if r.OverWorstWindow > tt.over {
			t.Errorf("%s: %.2f %% over, want at most %.2f %%", name, 100*r.OverWorstWindow, 100*tt.over)
		}
		if wrong := r.WrongAllowShare + r.FalseDenialShare; wrong > tt.wrong {
			t.Errorf("%s: %.3f %% wrongly allowed, %.3f %% falsely denied, want at most %.2f %% together",
				name, 100*r.WrongAllowShare, 100*r.FalseDenialShare, 100*tt.wrong)
		}
	}
}

// TestBound holds the bound of docs/architecture.md: the count goes beyond the limit by no more than 2 % of it and
// what can be asked for before everybody knows. That takes a tick, the way there and back, the 2 ms that
// an aggregator gathers for, and the 4 ms between two alarms.
func TestBound(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test runs it without the race detector, which finds nothing in a single goroutine")
	}
	const gathers, alarms = 2 * time.Millisecond, 4 * time.Millisecond
	for _, load := range []struct {
		scenario string
		times    float64
	}{{"steady", 2}, {"steady", 10}, {"surge", 15}, {"burst", 50}, {"hop", 5}} {
		for _, delay := range []time.Duration{0, 10 * time.Millisecond} {
			for _, checkers := range []int{2, 32, 200} {
				sc := scenarioOf(t, load.scenario, scenario.Settings{
					Load: new(load.times), Checkers: new(checkers), Duration: new(3 * time.Second),
				})
				r := simulate(t, sc, Options{Seed: 1, Delay: delay})
				trip := 2*delay + gathers
				tick := 4 * time.Millisecond
				for tick < trip {
					tick *= 2
				}
				bound := 0.02 + load.times*(tick+trip+alarms).Seconds() // of a limit of 1000 in a second
				if r.OverWorstWindow > bound {
					t.Errorf("%s %v×, %d checkers, %v each way: %.1f %% over, the bound is %.1f %%",
						load.scenario, load.times, checkers, delay, 100*r.OverWorstWindow, 100*bound)
				}
			}
		}
	}
}

// TestForecastIsWorthIt: without it the same fleet goes far beyond the limit.
func TestForecastIsWorthIt(t *testing.T) {
	sc := scenarioOf(t, "steady", scenario.Settings{Duration: new(5 * time.Second)})
	with := simulate(t, sc, Options{Seed: 1, Delay: 2 * time.Millisecond})
	without := simulate(t, sc, Options{Seed: 1, Delay: 2 * time.Millisecond, NoForecast: true})
	if without.OverWorstWindow < 5*with.OverWorstWindow {
		t.Errorf("over by %v with a forecast, by %v without", with.OverWorstWindow, without.OverWorstWindow)
	}
}

// TestSkewedClocks: checkers whose clocks are up to 2 s off count into the right buckets, and decide as well.
func TestSkewedClocks(t *testing.T) {
	for _, name := range []string{"steady", "surge"} {
		sc := scenarioOf(t, name, scenario.Settings{Duration: new(8 * time.Second)})
		r := simulate(t, sc, Options{Seed: 1, Delay: 2 * time.Millisecond, Skew: 2 * time.Second})
		if r.OverWorstWindow > 0.03 || r.WrongAllowShare+r.FalseDenialShare > 0.0035 {
			t.Errorf("%s: %+v", name, r.Accuracy)
		}
		if c := r.Conservation; c.Late != 0 || c.Refused != 0 {
			t.Errorf("%s: hits in the wrong bucket: %+v", name, c)
		}
	}
}
