package sim

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/offpath-io/offpath/loadtest/result"
	"github.com/offpath-io/offpath/loadtest/scenario"
	"github.com/offpath-io/offpath/pkg/rules"
)

func scenarioOf(t testing.TB, name string, s scenario.Settings) *scenario.Scenario {
	t.Helper()
	list, ok := scenario.Builtin(name, s)
	if !ok {
		t.Fatalf("no scenario %q", name)
	}
	must(t, list[0].Validate())
	return &list[0]
}

func simulate(t testing.TB, sc *scenario.Scenario, o Options) result.Run {
	t.Helper()
	r, err := Run(context.Background(), sc, o)
	must(t, err)
	if r.Interrupted || r.Hits == 0 || r.Hits != r.Admitted+r.Denied {
		t.Errorf("%s: %d hits, %d admitted, %d denied, interrupted %v", sc.Name, r.Hits, r.Admitted, r.Denied, r.Interrupted)
	}
	if !r.Conservation.Holds || r.Conservation.Admitted < r.Admitted {
		t.Errorf("%s: %+v of %d admitted", sc.Name, r.Conservation, r.Admitted)
	}
	return r
}

func asJSON(t testing.TB, r result.Run) string {
	t.Helper()
	text, err := json.Marshal(r)
	must(t, err)
	return string(text)
}

// short settings keep the tests quick.
func short(s scenario.Settings) scenario.Settings {
	if s.Duration == nil {
		s.Duration = new(4 * time.Second)
		if testing.Short() {
			*s.Duration = 2 * time.Second
		}
	}
	return s
}

var badNetwork = Options{
	Seed: 3, Delay: 2 * time.Millisecond, Jitter: 5 * time.Millisecond, Loss: 0.05, Repeat: 0.05,
	Partitions: []Partition{{Checkers: 3, From: time.Second, For: time.Second}}, Skew: 100 * time.Millisecond,
}

// TestSeedDecides: one seed gives one result, to the last bit; another seed another.
func TestSeedDecides(t *testing.T) {
	for _, name := range scenario.Names() {
		if name == "small" || name == "zipf" || testing.Short() && name != "burst" {
			continue // long; they are of the same streams as the others
		}
		sc := scenarioOf(t, name, short(scenario.Settings{}))
		one, same := simulate(t, sc, badNetwork), simulate(t, sc, badNetwork)
		if asJSON(t, one) != asJSON(t, same) {
			t.Errorf("%s: two simulations with one seed differ:\n%s\n%s", name, asJSON(t, one), asJSON(t, same))
		}
		o := badNetwork
		o.Seed++
		other := simulate(t, sc, o)
		other.Params.Seed = one.Params.Seed
		if asJSON(t, one) == asJSON(t, other) {
			t.Errorf("%s: two seeds give the same", name)
		}
		if want := "loss 0.05, repeat 0.05, partition 3@1s+1s, skew 100ms"; one.Params.Faults != want ||
			one.Params.DelayMS != 2 || one.Params.JitterMS != 5 || one.Params.Seed != 3 || one.Params.Store != "memory" {
			t.Errorf("%s: on record are %+v, want faults %q", name, one.Params, want)
		}
	}
}

// TestOneCheckerIsExact: a checker that gets every hit knows all there is to know, so it must
// decide just as the exact limiter of the same algorithm does. What a simulation finds beyond that
// is due to distribution. Nor is it off by a request that is larger than the room.
func TestOneCheckerIsExact(t *testing.T) {
	for _, a := range []rules.Algorithm{
		rules.SlidingWindow, rules.FixedWindow, rules.SlidingLog, rules.TokenBucket, rules.LeakyBucket,
	} {
		for _, test := range []struct {
			name string
			cost *scenario.Cost
		}{{"steady", nil}, {"surge", nil}, {"burst", nil}, {"burst", &scenario.Cost{Least: 1, Most: 50}}, {"ramp", nil}, {"mixed", nil}, {"keywalk", nil}} {
			if testing.Short() && test.name != "burst" || test.name == "mixed" && a != rules.SlidingWindow ||
				test.cost != nil && a == rules.LeakyBucket { // whose requests come one by one
				continue
			}
			s := short(scenario.Settings{Checkers: new(1), Cost: test.cost})
			if test.name != "mixed" { // which has algorithms of its own
				s.Algorithm = &a
			}
			r := simulate(t, scenarioOf(t, test.name, s), Options{Seed: 1, Delay: 3 * time.Millisecond})
			if r.Admitted != r.OracleAdmitted || r.OverTotal != 0 || r.OverWorstWindow > 0 ||
				r.WrongAllowShareExact != 0 || r.FalseDenialShareExact != 0 || r.OverWorstWindow != r.OracleOverWorstWindow {
				t.Errorf("%v, %+v: admitted %d, the oracle %d; %+v", a, test, r.Admitted, r.OracleAdmitted, r.Accuracy)
			}
			if r.RefreshLagMS.Samples != 0 {
				t.Errorf("%+v: a lag between one checker and itself: %+v", test, r.RefreshLagMS)
			}
			if test.cost != nil && r.Denied == 0 {
				t.Errorf("%v, %+v: nothing is denied", a, test)
			}
		}
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	sc := scenarioOf(t, "steady", scenario.Settings{})
	r, err := Run(ctx, sc, Options{Seed: 1, Progress: func(done, _ time.Duration) {
		if done > 5*time.Second { // of which 2 are warm-up
			cancel()
		}
	}})
	if err != nil || !r.Interrupted || r.Hits < 14_000 || r.Hits > 24_000 || !r.Conservation.Holds || r.ReportsPer1000 == 0 ||
		r.MeasuredSeconds < 3 || r.MeasuredSeconds > 5 {
		t.Errorf("error %v; interrupted %v after %d hits and %v s; %+v", err, r.Interrupted, r.Hits, r.MeasuredSeconds, r.Conservation)
	}
}

// TestSilence: without a hit there is nothing to divide by, and nothing to wait for when it is
// interrupted.
func TestSilence(t *testing.T) {
	sc := scenarioOf(t, "steady", scenario.Settings{Load: new(0.0)})
	r, err := Run(context.Background(), sc, Options{})
	if err != nil || r.Hits != 0 || r.Interrupted || !r.Conservation.Holds || r.OverTotal != 0 {
		t.Errorf("error %v; %+v", err, r)
	}
	asJSON(t, r)

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	sc = scenarioOf(t, "steady", scenario.Settings{Load: new(0.0), Duration: new(8000 * time.Hour)})
	if r, err := Run(ctx, sc, Options{}); err != nil || !r.Interrupted {
		t.Errorf("error %v, interrupted %v", err, r.Interrupted)
	}
}

// TestStrictIsNeverOver: under strict enforcement no scenario exceeds a limit, on a good network or
// a bad one, and on a good one, where hits wait, nearly all that fits passes.
func TestStrictIsNeverOver(t *testing.T) {
	good := Options{Delay: 2 * time.Millisecond, Acquire: 20 * time.Millisecond}
	for name, lost := range map[string]float64{ // at most: 1.5 times the most of seeds 0 to 5
		"steady": 0.011, "surge": 0.01, "burst": 0.025, "ramp": 0.01, "hop": 0.037, "skew": 0.024, "mixed": 0.011, "keywalk": 0.002,
	} {
		if testing.Short() && name != "burst" {
			continue
		}
		sc := scenarioOf(t, name, short(scenario.Settings{Enforcement: new(rules.Strict)}))
		for _, o := range []Options{good, badNetwork} {
			o.Seed = 1
			r := simulate(t, sc, o)
			if r.OverWorstWindow > 0 || r.WrongAllowShareExact != 0 {
				t.Errorf("%s, %s: over by %v, wrongly allowed %v", name, r.Params.Faults, r.OverWorstWindow, r.WrongAllowShareExact)
			}
			if o.Loss == 0 && -r.OverTotal > lost {
				t.Errorf("%s: %v of what fits is lost, want at most %v", name, -r.OverTotal, lost)
			}
			if r.Params.Rules[0].Enforcement != "strict" {
				t.Errorf("%s: on record is %q", name, r.Params.Rules[0].Enforcement)
			}
		}
	}
}

// TestStrictHitsWait: bursts meet cold keys; who waits passes, and is judged when it does. Of seeds
// 1 to 12 the first two have one hit of 606 that waits in vain, in different places.
func TestStrictHitsWait(t *testing.T) {
	sc := scenarioOf(t, "burst", short(scenario.Settings{Enforcement: new(rules.Strict), Load: new(1.5)}))
	var runs []result.Run
	for _, wait := range []time.Duration{0, time.Millisecond, 20 * time.Millisecond} {
		runs = append(runs, simulate(t, sc, Options{Seed: 3, Delay: 2 * time.Millisecond, Acquire: wait}))
	}
	none, less, all := runs[0], runs[1], runs[2]
	if none.Admitted != less.Admitted || none.Hits != all.Hits {
		t.Errorf("%d and %d pass with a wait below a round trip, of %d and %d hits", none.Admitted, less.Admitted, none.Hits, all.Hits)
	}
	if none.Admitted > all.Hits*9/10 || all.Admitted != all.Hits {
		t.Errorf("of %d hits, %d pass at once and %d when they wait; want all of them then", all.Hits, none.Admitted, all.Admitted)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
