package sim

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/offpath-io/offpath/loadtest/scenario"
	"github.com/offpath-io/offpath/pkg/rules"
)

// TestBound holds the bound of docs/protocol.md: the count goes beyond the limit by no more
// than 2 % of it and what can be asked for before everybody knows. That takes a tick, the way there
// and back, the 2 ms that an aggregator gathers for, and the 4 ms between two alarms. It is a
// promise for any traffic, several times what these simulations come to; TestAccuracy holds the
// figures themselves.
func TestBound(t *testing.T) {
	const gathers, alarms = 2 * time.Millisecond, 4 * time.Millisecond
	fleets := []int{2, 32, 200}
	if testing.Short() {
		fleets = fleets[:1]
	}
	for _, load := range []struct {
		scenario string
		times    float64
	}{{"steady", 2}, {"steady", 10}, {"surge", 15}, {"burst", 50}, {"hop", 5}} {
		if testing.Short() && load.scenario != "burst" {
			continue
		}
		for _, delay := range []time.Duration{0, 10 * time.Millisecond} {
			for _, checkers := range fleets {
				t.Run(fmt.Sprint(load, delay, checkers), func(t *testing.T) {
					t.Parallel()
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
						t.Errorf("%.1f %% over, the bound is %.1f %%", 100*r.OverWorstWindow, 100*bound)
					}
				})
			}
		}
	}
}

// TestLimitPasses: by every algorithm what passes in all is the limit (or a little less: the
// judge's own for a leaky bucket is 0.6 at random), and no stretch of a window's length has more
// than it may. What passes is held in the mean of seeds 1 to 5, as a single one changes
// with every draw; what is beyond in a stretch at the worst of them, by 1.5 times what was
// measured.
func TestLimitPasses(t *testing.T) {
	if testing.Short() {
		t.Skip("long: runs in make test-all")
	}
	for _, test := range []struct {
		algorithm   rules.Algorithm
		scenario    string
		limit       int64 // in as many milliseconds
		over, under float64
		rolling     float64
	}{
		{rules.TokenBucket, "steady", 1000, 0.0005, 0.0008, 0.017},
		// A checker dates its own hits: until it did, what drains in a bucket, 0.02, was kept back,
		// and 0.011 beyond it in a stretch.
		{rules.TokenBucket, "hop", 1000, 0.0005, 0.0009, 0.033},
		{rules.SlidingLog, "steady", 1000, 0.0018, 0, 0.009},
		{rules.FixedWindow, "steady", 1000, 0.0044, 0.0002, 0.15}, // a stretch may have parts of two windows
		// Where reports went to any aggregator, 0.0060 (limit 1000) and 0.0028 (100) were missing.
		// From one that has all of them checkers hear of each other in the same moments and part
		// their turns more evenly (TestOutflowOfAFleetIsEven), for 0.0077 of both.
		{rules.LeakyBucket, "steady", 1000, 0, 0.0116, 0.012},
		{rules.LeakyBucket, "steady", 100, 0, 0.0116, 0.09},
		{rules.LeakyBucket, "hop", 1000, 0, 0.18, 0},
	} {
		t.Run(fmt.Sprint(test.algorithm, test.scenario, test.limit), func(t *testing.T) {
			t.Parallel()
			sc := scenarioOf(t, test.scenario, scenario.Settings{
				Limit: &test.limit, Window: new(time.Duration(test.limit) * time.Millisecond),
				Algorithm: &test.algorithm, Duration: new(8 * time.Second),
			})
			const seeds = 5
			passed := 0.0
			for seed := range uint64(seeds) {
				r := simulate(t, sc, Options{Seed: seed + 1, Delay: 2 * time.Millisecond})
				passed += float64(r.Admitted) / (1000 * r.MeasuredSeconds) / seeds
				if r.RollingOverWorst > test.rolling {
					t.Errorf("seed %d: %.4f beyond the limit in a stretch", seed+1, r.RollingOverWorst)
				}
			}
			if passed > 1+test.over || passed < 1-test.under {
				t.Errorf("%.4f of the limit passes", passed)
			}
		})
	}
}

// daily is a world of checkers that have met, an hour into the window of a limit a day.
func daily(t *testing.T, limit int64, checkers int) *world {
	t.Helper()
	sc := scenarioOf(t, "steady", scenario.Settings{Limit: &limit, Window: new(24 * time.Hour), Checkers: &checkers})
	sc.Phase = new(time.Hour)
	w := worldOf(t, sc, Options{Seed: 1, Delay: 2 * time.Millisecond})
	w.advance(w.now + int64(meeting))
	return w
}

// TestExactlyTheLimitPasses, and every hit until then, when hits are so far apart that all reports
// are answered in between, also those of quiet keys, after a second: a checker keeps nothing in
// reserve for hits that nobody can have admitted.
func TestExactlyTheLimitPasses(t *testing.T) {
	for _, limit := range []int64{100, 300, 1000, 10_000} {
		for checkers := 1; checkers <= 8; checkers++ {
			if testing.Short() && (limit > 300 || checkers%3 > 0) {
				continue
			}
			t.Run(fmt.Sprint(limit, " by ", checkers), func(t *testing.T) {
				t.Parallel()
				w := daily(t, limit, checkers)
				var passed, last int64
				for n := int64(1); n <= limit+limit/10; n++ {
					w.advance(w.now + int64(2*time.Second))
					c := w.checkers[int(n)%checkers]
					if c.Limiters[0].Check("k", 1).Allowed {
						passed, last = passed+1, n
					}
					w.heed(int(n)%checkers, c)
				}
				if passed != limit || last != limit {
					t.Errorf("%d passed, the last of them as number %d", passed, last)
				}
			})
		}
	}
}

// TestSmallLimitsPassInTurn: calls that come one by one at checkers drawn by lot, more slowly than
// they become known, are not denied up to a small limit; nor are costs of several hits.
func TestSmallLimitsPassInTurn(t *testing.T) {
	for _, checkers := range []int{2, 8, 32} {
		for _, pause := range []time.Duration{20 * ms, 50 * ms, 200 * ms, 2 * time.Second} {
			for _, of := range []struct{ limit, cost int64 }{{1, 1}, {2, 1}, {5, 1}, {10, 1}, {50, 1}, {10, 5}, {90, 30}, {99, 99}} {
				w := daily(t, of.limit, checkers)
				lots := rand.New(rand.NewPCG(1, 2))
				denied := 0
				for n := range 20 {
					for range of.limit / of.cost {
						w.advance(w.now + int64(pause))
						i := lots.IntN(checkers)
						c := w.checkers[i]
						if !c.Limiters[0].Check(fmt.Sprint("k", n), of.cost).Allowed {
							denied++
						}
						w.heed(i, c)
					}
				}
				if denied > 0 {
					t.Errorf("%d checkers, %v apart, limit %d, cost %d: %d denied", checkers, pause, of.limit, of.cost, denied)
				}
			}
		}
	}
}
