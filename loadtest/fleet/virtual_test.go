package fleet

import (
	"context"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/offpath-io/offpath/internal/testing/membus"
	"github.com/offpath-io/offpath/loadtest/pace"
	"github.com/offpath-io/offpath/loadtest/result"
	"github.com/offpath-io/offpath/loadtest/scenario"
	"github.com/offpath-io/offpath/loadtest/score"
	"github.com/offpath-io/offpath/loadtest/sim"
	"github.com/offpath-io/offpath/pkg/rules"
)

// Tests of this file are about how exact a live fleet is. On a real clock that depends on the
// machine, so the fleet, with its goroutines, timers and drivers, runs in a bubble's virtual time,
// on a network in memory.

func sleeper() pace.Pauser { return pace.Sleeper{} }

// oneWay is what a message takes on it.
const oneWay = 200 * time.Microsecond

// virtually is what Run does, but for the servers, and for asking at full speed, which ends by the
// clock.
func virtually(t *testing.T, sc *scenario.Scenario, o Options) (r result.Run) {
	t.Helper()
	o.Hammer, o.newPause, o.idleKeys = -1, sleeper, -1
	o = o.withDefaults()
	synctest.Test(t, func(t *testing.T) {
		running, stop := context.WithCancel(t.Context())
		defer stop()
		traffic := scenario.New(sc, o.Seed)
		traces := score.NewTraces(sc, traffic)
		set, err := rules.NewSet(sc.Rules...)
		must(t, err)
		f := &fleet{o: o, log: o.Log, rand: rand.New(rand.NewPCG(o.Seed, 1)), stop: stop}
		defer f.end()
		if f.store, err = openStore(running, o, ""); err != nil {
			t.Fatal(err)
		}
		f.store.ahead = o.ahead
		bus := membus.New(membus.Options{Seed: o.Seed, Faults: membus.Faults{Delay: oneWay}})
		network, stopNetwork := context.WithCancel(context.WithoutCancel(running))
		t.Cleanup(stopNetwork)
		go func() { _ = bus.Run(network) }()
		for i := range sc.Aggregators {
			must(t, f.runAggregator(running, i, bus.Worker()))
		}
		for i := range sc.Checkers {
			must(t, f.runChecker(i, sc, set, traces[i], uint64(i+1), bus.Checker(strconv.Itoa(i))))
		}
		must(t, f.meet(running))
		f.lookAtClock()
		if r, err = (&run{fleet: f, scenario: sc, plan: newPlan(sc, traffic, MostHits)}).run(running, traces); err != nil {
			t.Fatal(err)
		}
		conserved(t, r)
	})
	return r
}

// seeds is how many a test is run with.
func seeds() uint64 {
	if testing.Short() {
		return 1
	}
	return 5
}

// agree holds that a figure is no further from what is wanted than so much: 1.5 times the most of 5
// seeds.
func agree(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if math.Abs(got-want) > within {
		t.Errorf("%s: %v, want %v within %v", what, got, want, within)
	}
}

// difference is how far a figure of live runs is from that of simulated ones, over several seeds.
type difference struct{ sum, within float64 }

// TestAgreesWithTheSimulation: the same hits in a live fleet and in the simulation come to the same
// figures. In less than 8 s chance moves the reports by 5 %. In which order goroutines run at one
// moment is chance, in virtual time too, and whatever the seed: so it is the mean of some seeds
// that has to agree, while a single run may be as far off as its order has it.
func TestAgreesWithTheSimulation(t *testing.T) {
	if testing.Short() {
		t.Skip("long: runs in make test-all")
	}
	const runs = 5
	for _, name := range []string{"steady", "surge"} {
		all := make(map[string]difference)
		add := func(what string, got, want, within float64) {
			all[what] = difference{all[what].sum + got - want, within}
		}
		for seed := range uint64(runs) {
			sc := scenarioOf(t, name, scenario.Settings{Duration: new(8 * time.Second)})
			sc.Phase = new(300 * time.Millisecond) // or each would choose one by its seed
			live := virtually(t, sc, Options{Seed: seed})
			simulated, err := sim.Run(t.Context(), sc, sim.Options{Seed: seed, Delay: oneWay})
			if err != nil || live.Hits != simulated.Hits {
				t.Errorf("%s: error %v, %d hits, simulated %d", name, err, live.Hits, simulated.Hits)
			}
			agree(t, name+", wrongly allowed", live.WrongAllowShare, simulated.WrongAllowShare, 0)
			add("admitted", float64(live.Admitted)/float64(simulated.Admitted), 1, 0.007)
			add("over, worst window", live.OverWorstWindow, simulated.OverWorstWindow, 0.01)
			add("falsely denied", live.FalseDenialShare, simulated.FalseDenialShare, 0.0013)
			add("reports", live.ReportsPer1000/simulated.ReportsPer1000, 1, 0.054)
			add("lag", *live.RefreshLagMS.P50, *simulated.RefreshLagMS.P50, 1.4)
		}
		for what, d := range all {
			agree(t, name+", "+what+", on average", d.sum/runs, 0, d.within)
		}
	}
}

// TestOneChecker: a checker that knows all there is to know decides as the exact limiter does, but
// for how coarse its clock is. Hits are counted by the store's time, so that is what they are
// judged by: by this machine's, a fixed window would seem to begin 400 ms late.
func TestOneChecker(t *testing.T) {
	for _, fixed := range []bool{true, false} {
		if testing.Short() && !fixed {
			continue
		}
		for seed := range seeds() {
			sc := scenarioOf(t, "steady", scenario.Settings{Checkers: new(1), Duration: new(2 * time.Second)})
			sc.Rules[0].Window.Fixed = fixed
			r := virtually(t, sc, Options{Seed: seed, ahead: 400 * time.Millisecond})
			agree(t, "over in all", r.OverTotal, 0, 0.00075)
			agree(t, "over, worst window", r.OverWorstWindow, 0, 0.0105)
			agree(t, "wrongly allowed", r.WrongAllowShare, 0, 0)
			agree(t, "falsely denied", r.FalseDenialShare, 0, 0.0018)
			agree(t, "its clock, in ms", r.ClockOffsetMS, 400, 0)
			if r.RefreshLagMS.Samples != 0 {
				t.Errorf("a lag between one checker and itself: %+v", r.RefreshLagMS)
			}
		}
	}
}

// TestDelay: what is told is known elsewhere after the way there and the way back, at the earliest.
func TestDelay(t *testing.T) {
	sc := scenarioOf(t, "steady", scenario.Settings{Checkers: new(2), Duration: new(2 * time.Second)})
	r := virtually(t, sc, Options{Delay: 60 * time.Millisecond, Jitter: 10 * time.Millisecond})
	if lag := r.RefreshLagMS.P50; r.Params.DelayMS != 60 || r.Params.JitterMS != 10 || lag == nil || *lag < 120 {
		t.Errorf("with %v and %v ms on record the lag is %+v", r.Params.DelayMS, r.Params.JitterMS, r.RefreshLagMS)
	}
}

// TestStrictWaits: bursts meet a cold key again and again. All hits that wait for permits pass,
// those that only ask do not.
func TestStrictWaits(t *testing.T) {
	sc := scenarioOf(t, "burst", scenario.Settings{
		Checkers: new(4), Duration: new(time.Second), Load: new(1.5), Enforcement: new(rules.Strict),
	})
	asks := virtually(t, sc, Options{Seed: 1})
	waits := virtually(t, sc, Options{Seed: 1, Acquire: 200 * time.Millisecond})
	if asks.Hits != waits.Hits || asks.Admitted > asks.Hits*9/10 || waits.Admitted != waits.Hits {
		t.Errorf("%d of %d hits pass without waiting, %d of %d with", asks.Admitted, asks.Hits, waits.Admitted, waits.Hits)
	}
	if asks.OverWorstWindow > 0 || waits.OverWorstWindow > 0 {
		t.Errorf("over by %v and %v", asks.OverWorstWindow, waits.OverWorstWindow)
	}
}
