package sim

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"slices"
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
	if err := list[0].Validate(); err != nil {
		t.Fatal(err)
	}
	return &list[0]
}

func simulate(t testing.TB, sc *scenario.Scenario, o Options) result.Run {
	t.Helper()
	r, err := Run(context.Background(), sc, o)
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// short settings keep the tests quick.
func short(s scenario.Settings) scenario.Settings {
	if s.Duration == nil {
		s.Duration = new(4 * time.Second)
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
		if name == "small" || name == "zipf" {
			continue // long; they are of the same streams as the others
		}
		if testing.Short() && name == "mixed" {
			continue // minutes under the race detector, which finds little in what is one goroutine
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
	}
}

// TestOneCheckerIsExact: a checker that gets every hit knows all there is to know, so it must decide
// just as the exact limiter does. What a simulation finds beyond that is due to distribution.
func TestOneCheckerIsExact(t *testing.T) {
	for _, name := range []string{"steady", "surge", "burst", "ramp", "mixed", "keywalk"} {
		sc := scenarioOf(t, name, short(scenario.Settings{Checkers: new(1)}))
		r := simulate(t, sc, Options{Seed: 1, Delay: 3 * time.Millisecond})
		if r.Admitted != r.OracleAdmitted || r.OverTotal != 0 || r.OverWorstWindow > 0 ||
			r.WrongAllowShareExact != 0 || r.FalseDenialShareExact != 0 || r.OverWorstWindow != r.OracleOverWorstWindow {
			t.Errorf("%s: admitted %d, the oracle %d; %+v", name, r.Admitted, r.OracleAdmitted, r.Accuracy)
		}
		if r.RefreshLagMS.Samples != 0 {
			t.Errorf("%s: a lag between one checker and itself: %+v", name, r.RefreshLagMS)
		}
	}
}

// The same by every other algorithm.
func TestOneCheckerIsExactByEveryAlgorithm(t *testing.T) {
	for _, a := range []rules.Algorithm{rules.SlidingLog, rules.TokenBucket, rules.LeakyBucket} {
		for _, name := range []string{"steady", "surge", "burst", "keywalk"} {
			sc := scenarioOf(t, name, short(scenario.Settings{Checkers: new(1), Algorithm: new(a)}))
			r := simulate(t, sc, Options{Seed: 1, Delay: 3 * time.Millisecond})
			if r.Admitted != r.OracleAdmitted || r.WrongAllowShareExact != 0 || r.FalseDenialShareExact != 0 ||
				r.OverWorstWindow > 0 || r.OverWorstWindow != r.OracleOverWorstWindow {
				t.Errorf("%v, %s: admitted %d, the oracle %d; %+v", a, name, r.Admitted, r.OracleAdmitted, r.Accuracy)
			}
		}
	}
}

// TestDelayShows: the further away the aggregators, the later do others hear of a hit, and the more
// passes.
func TestDelayShows(t *testing.T) {
	sc := scenarioOf(t, "steady", short(scenario.Settings{}))
	near := simulate(t, sc, Options{Seed: 1})
	far := simulate(t, sc, Options{Seed: 1, Delay: 100 * time.Millisecond})
	if *far.RefreshLagMS.P50 < 200 || *near.RefreshLagMS.P50 > 60 || *near.RefreshLagMS.P50 < 2 {
		t.Errorf("lag of %v ms without delay, %v ms with 100 ms each way", *near.RefreshLagMS.P50, *far.RefreshLagMS.P50)
	}
	if far.OverWorstWindow < 2*near.OverWorstWindow || far.OverTotal <= near.OverTotal {
		t.Errorf("over by %v without delay, %v with", near.OverWorstWindow, far.OverWorstWindow)
	}
}

// TestPartitionShows: checkers that are cut off decide by what they know and reckon, and deliver
// afterwards.
func TestPartitionShows(t *testing.T) {
	sc := scenarioOf(t, "steady", short(scenario.Settings{}))
	whole := simulate(t, sc, Options{Seed: 1})
	torn := simulate(t, sc, Options{Seed: 1, Partitions: []Partition{{Checkers: 4, From: time.Second, For: 2500 * time.Millisecond}}})
	if torn.Admitted < whole.Admitted*11/10 {
		t.Errorf("%d admitted with half of the checkers cut off, %d without", torn.Admitted, whole.Admitted)
	}
	if torn.Conservation.Late == 0 || whole.Conservation.Late != 0 {
		t.Errorf("late hits: %d with a partition longer than the window, %d without", torn.Conservation.Late, whole.Conservation.Late)
	}
	if torn.Params.Faults != "partition 4@1s+2.5s" {
		t.Errorf("faults are put down as %q", torn.Params.Faults)
	}
}

func TestTimerOnlyShows(t *testing.T) {
	s := short(scenario.Settings{})
	early := simulate(t, scenarioOf(t, "steady", s), Options{Seed: 1})
	s.TimerOnly = new(true)
	timer := simulate(t, scenarioOf(t, "steady", s), Options{Seed: 1})
	if timer.ReportsPer1000 >= early.ReportsPer1000 || timer.Params.EarlyFlush || !early.Params.EarlyFlush {
		t.Errorf("%v reports per 1,000 hits by the timer, %v with early flushes", timer.ReportsPer1000, early.ReportsPer1000)
	}
	// At 8 checkers and 20 flushes a second there cannot be more than 160 reports a second.
	if most := 160 * timer.MeasuredSeconds / float64(timer.Hits) * 1000; timer.ReportsPer1000 > most*1.02 {
		t.Errorf("%v reports per 1,000 hits by the timer, which allows %v", timer.ReportsPer1000, most)
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	sc := scenarioOf(t, "steady", scenario.Settings{})
	r, err := Run(ctx, sc, Options{Seed: 1, Progress: func(done, all time.Duration) {
		if done > all/2 {
			cancel()
		}
	}})
	if err != nil || !r.Interrupted || r.Hits < 30_000 || r.Hits > 70_000 || !r.Conservation.Holds || r.ReportsPer1000 == 0 ||
		r.MeasuredSeconds < 5 || r.MeasuredSeconds > 15 {
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

// TestLargeFleet: 1,000 checkers. How long a million hits take them is a figure in the documentation;
// what a test can hold is that the figures are there and that nothing is lost.
func TestLargeFleet(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test runs it without the race detector, which finds nothing in a single goroutine")
	}
	sc := scenarioOf(t, "steady", short(scenario.Settings{Checkers: new(1000), Limit: new(int64(10_000))}))
	r := simulate(t, sc, Options{Seed: 1, Delay: 2 * time.Millisecond})
	if r.Hits < 190_000 || r.OverWorstWindow < 0 || r.RefreshLagMS.Samples == 0 || r.RefreshBytes == 0 {
		t.Errorf("%d hits, over by %v, lag %+v", r.Hits, r.OverWorstWindow, r.RefreshLagMS)
	}
}

func TestQueue(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var q queue
	at := make([]int64, 50)
	for i := range at {
		at[i] = r.Int64N(100)
		q.set(i, at[i])
	}
	for range 5000 {
		i, v := r.IntN(len(at)), r.Int64N(100)
		if r.IntN(2) == 0 {
			q.set(i, v)
			at[i] = v
		} else {
			q.sooner(i, v)
			at[i] = min(at[i], v)
		}
		number, due := q.first()
		if least := slices.Min(at); due != least || number != slices.Index(at, least) {
			t.Fatalf("first is %d at %d; want %d at %d", number, due, slices.Index(at, least), least)
		}
	}
}

// TestStrictIsNeverOver: under strict enforcement no scenario exceeds a limit, on a good network or a bad one, and on
// a good one 95 % of what fits passes if hits wait.
func TestStrictIsNeverOver(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test runs it without the race detector, which finds nothing in a single goroutine")
	}
	for _, name := range []string{"steady", "surge", "burst", "ramp", "hop", "skew", "mixed", "keywalk"} {
		sc := scenarioOf(t, name, short(scenario.Settings{Enforcement: new(rules.Strict)}))
		good, bad := Options{Seed: 1, Delay: 2 * time.Millisecond, Acquire: 20 * time.Millisecond}, badNetwork
		for _, o := range []Options{good, bad} {
			r := simulate(t, sc, o)
			if r.OverWorstWindow > 0 || r.WrongAllowShareExact != 0 {
				t.Errorf("%s, %s: over by %v, wrongly allowed %v", name, r.Params.Faults, r.OverWorstWindow, r.WrongAllowShareExact)
			}
			if o.Loss == 0 && r.OverTotal < -0.05 {
				t.Errorf("%s: %v of what fits is lost", name, -r.OverTotal)
			}
			if r.Params.Rules[0].Enforcement != "strict" {
				t.Errorf("%s: on record is %q", name, r.Params.Rules[0].Enforcement)
			}
		}
	}
}

// TestStrictHitsWait: bursts meet cold keys; who waits passes, and is judged when it does.
func TestStrictHitsWait(t *testing.T) {
	sc := scenarioOf(t, "burst", short(scenario.Settings{Enforcement: new(rules.Strict), Load: new(1.5)}))
	var runs []result.Run
	for _, wait := range []time.Duration{0, time.Millisecond, 20 * time.Millisecond} {
		runs = append(runs, simulate(t, sc, Options{Seed: 1, Delay: 2 * time.Millisecond, Acquire: wait}))
	}
	none, less, all := runs[0], runs[1], runs[2]
	if none.Admitted != less.Admitted || none.Hits != all.Hits {
		t.Errorf("%d and %d pass with a wait below a round trip, of %d and %d hits", none.Admitted, less.Admitted, none.Hits, all.Hits)
	}
	if none.Admitted > all.Hits*9/10 || all.Admitted != all.Hits {
		t.Errorf("of %d hits, %d pass at once and %d when they wait; want all of them then", all.Hits, none.Admitted, all.Admitted)
	}
}
