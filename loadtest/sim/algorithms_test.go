package sim

import (
	"testing"
	"time"

	"github.com/offpath-io/offpath/loadtest/scenario"
	"github.com/offpath-io/offpath/pkg/rules"
)

// TestAccuracyOfAlgorithms holds what is said of the other algorithms with 8 checkers and 2 ms each way: a token bucket is as
// exact as a sliding window, and so is a log, although whole buckets leave it at once; a leaky bucket lets the
// limit pass over the whole fleet, one checker's hits between others'.
func TestAccuracyOfAlgorithms(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test runs it without the race detector, which finds nothing in a single goroutine")
	}
	for _, tt := range []struct {
		algorithm rules.Algorithm
		scenario  string
		limit     int64
		window    time.Duration
		over      float64 // beyond the room, at most
		rolling   float64 // beyond the limit in any stretch of the window's length, at most
		low, high float64 // what passes in all ÷ the limit
		wrong     float64 // share of the decisions; a leaky bucket's are all a matter of turns
		load      float64
	}{
		{algorithm: rules.TokenBucket, scenario: "steady", limit: 1000, window: time.Second, over: 0.01, rolling: 0.02, low: 0.99, high: 1.01, wrong: 0.001, load: 5},
		{algorithm: rules.TokenBucket, scenario: "hop", limit: 1000, window: time.Second, over: 0.01, rolling: 0.02, low: 0.99, high: 1.01, wrong: 0.001, load: 5},
		{algorithm: rules.TokenBucket, scenario: "burst", limit: 1000, window: time.Second, over: 0.06, rolling: 1.1, low: 0.5, high: 1.01, wrong: 0.05, load: 50},
		{algorithm: rules.TokenBucket, scenario: "steady", limit: 1000, window: time.Second, over: 0, rolling: 0, low: 0.78, high: 0.82, wrong: 0, load: 0.8},
		{algorithm: rules.SlidingLog, scenario: "steady", limit: 1000, window: time.Second, over: 0.02, rolling: 0.02, low: 0.99, high: 1.01, wrong: 0.005, load: 5},
		{algorithm: rules.SlidingLog, scenario: "steady", limit: 1000, window: time.Second, over: 0, rolling: 0, low: 0.78, high: 0.82, wrong: 0, load: 0.8},
		{algorithm: rules.SlidingLog, scenario: "steady", limit: 1000, window: time.Second, over: 0.015, rolling: 0.015, low: 0.98, high: 1.01, wrong: 0.002, load: 1.5},
		{algorithm: rules.SlidingLog, scenario: "surge", limit: 1000, window: time.Second, over: 0.03, rolling: 0.03, low: 0.6, high: 1.01, wrong: 0.006, load: 15},
		{algorithm: rules.SlidingLog, scenario: "burst", limit: 1000, window: time.Second, over: 0.08, rolling: 0.08, low: 0.5, high: 1.01, wrong: 0.05, load: 50},
		{algorithm: rules.FixedWindow, scenario: "steady", limit: 1000, window: time.Second, over: 0.015, rolling: 0.2, low: 0.99, high: 1.01, wrong: 0.004, load: 5},
		{algorithm: rules.FixedWindow, scenario: "burst", limit: 1000, window: time.Second, over: 0.1, rolling: 1.1, low: 0.5, high: 1.1, wrong: 0.06, load: 50},
		{algorithm: rules.LeakyBucket, scenario: "burst", limit: 1000, window: time.Second, over: 0.1, rolling: 0, low: 0.05, high: 0.3, wrong: 0.001, load: 50},
		{algorithm: rules.LeakyBucket, scenario: "steady", limit: 1000, window: time.Second, over: 0, rolling: 0.04, low: 0.97, high: 1.01, wrong: 0.1, load: 5},
		{algorithm: rules.LeakyBucket, scenario: "steady", limit: 100, window: 100 * time.Millisecond, over: 14, rolling: 0.4, low: 0.97, high: 1.01, wrong: 0.2, load: 5},
		{algorithm: rules.LeakyBucket, scenario: "hop", limit: 1000, window: time.Second, over: 0, rolling: 0, low: 0.82, high: 1.01, wrong: 0.1, load: 5},
	} {
		sc := scenarioOf(t, tt.scenario, scenario.Settings{
			Load: new(tt.load), Limit: new(tt.limit), Window: new(tt.window), Algorithm: new(tt.algorithm), Duration: new(8 * time.Second),
		})
		r := simulate(t, sc, Options{Seed: 1, Delay: 2 * time.Millisecond})
		passed := float64(r.Admitted) / (float64(tt.limit) * r.MeasuredSeconds / tt.window.Seconds())
		wrong := r.WrongAllowShare + r.FalseDenialShare
		t.Logf("%v, %s %v×, %d per %v: over %.3f, rolling %.3f, passed %.3f, wrong %.4f", tt.algorithm, tt.scenario, tt.load, tt.limit, tt.window,
			r.OverWorstWindow, r.RollingOverWorst, passed, wrong)
		if r.OverWorstWindow > tt.over || r.RollingOverWorst > tt.rolling || passed < tt.low || passed > tt.high || wrong > tt.wrong {
			t.Errorf("%v, %s %v×, %d per %v: want %+v", tt.algorithm, tt.scenario, tt.load, tt.limit, tt.window, tt)
		}
	}
}
