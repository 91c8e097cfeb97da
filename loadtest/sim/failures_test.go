package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/offpath-io/offpath/loadtest/scenario"
)

// TestAggregatorsFail: an aggregator that cannot reach the store, or that is frozen and keeps its
// place in the queue group, costs no accuracy half a second later.
func TestAggregatorsFail(t *testing.T) {
	all, loads := []int{2, 3}, []float64{5, 1.5}
	if testing.Short() {
		all, loads = all[:1], loads[:1]
	}
	for _, aggregators := range all {
		for _, load := range loads {
			for _, frozen := range []bool{false, true} {
				t.Run(fmt.Sprint(aggregators, load, frozen), func(t *testing.T) {
					t.Parallel()
					sc := scenarioOf(t, "steady", scenario.Settings{
						Load: &load, Aggregators: &aggregators, Duration: new(8 * time.Second),
					})
					r := simulate(t, sc, Options{Seed: uint64(aggregators), Delay: 2 * time.Millisecond, Failures: []Failure{
						{Aggregators: 1, Frozen: frozen, From: -500 * time.Millisecond, For: time.Minute},
					}})
					wrong := r.WrongAllowShare + r.FalseDenialShare
					if r.OverWorstWindow > 0.03 || wrong > 0.01 {
						t.Errorf("%.1f %% over, %.2f %% wrong", 100*r.OverWorstWindow, 100*wrong)
					}
				})
			}
		}
	}
}
