package sim

import (
	"testing"
	"time"

	"github.com/offpath-io/offpath/loadtest/result"
	"github.com/offpath-io/offpath/loadtest/scenario"
	"github.com/offpath-io/offpath/loadtest/score"
)

const ms = time.Millisecond

func worldOf(t *testing.T, sc *scenario.Scenario, o Options) *world {
	t.Helper()
	w, err := newWorld(sc, o, score.NewTraces(sc, scenario.New(sc, o.Seed)))
	must(t, err)
	return w
}

// TestPartition: which checkers are cut off, from when, and for how long.
func TestPartition(t *testing.T) {
	sc := scenarioOf(t, "steady", scenario.Settings{Checkers: new(3)})
	w := worldOf(t, sc, Options{Partitions: []Partition{
		{Checkers: 2, From: 1 * time.Second, For: 1500 * ms},
		{Checkers: 1, From: 3 * time.Second, For: 1000 * ms},
		{Checkers: 2, From: 3500 * ms, For: 1000 * ms}, // while the last one is still on
	}})
	s := score.New(sc, scenario.New(sc, 0), w.now+int64(meeting))
	from, _ := s.Measured()
	w.schedule(s)
	for _, step := range []struct {
		at   time.Duration
		cuts [3]int
	}{
		{999 * ms, [3]int{}}, {1001 * ms, [3]int{1, 1}}, {2499 * ms, [3]int{1, 1}}, {2501 * ms, [3]int{}},
		{3001 * ms, [3]int{1}}, {3501 * ms, [3]int{2, 1}}, {4001 * ms, [3]int{1, 1}}, {4501 * ms, [3]int{}},
	} {
		w.advance(from + int64(step.at))
		if got := [3]int{w.checkers[0].cuts, w.checkers[1].cuts, w.checkers[2].cuts}; got != step.cuts {
			t.Errorf("after %v the checkers are cut off by %v partitions, want %v", step.at, got, step.cuts)
		}
	}
}

// TestOptionsShow: each option raises the figures that it should, and more of it raises them more.
func TestOptionsShow(t *testing.T) {
	late := func(r result.Run) float64 { return float64(r.Conservation.Late) }
	lag := func(r result.Run) float64 { return *r.RefreshLagMS.P99 }
	heard := func(r result.Run) float64 { return r.RefreshBytes }
	commands := func(r result.Run) float64 { return r.StoreCommandsPer1000 }
	over := func(r result.Run) float64 { return r.OverWorstWindow }
	admitted := func(r result.Run) float64 { return float64(r.Admitted) }
	cut := func(n int) []Partition { return []Partition{{Checkers: n, From: 500 * ms, For: 2500 * ms}} }
	type figures = []func(result.Run) float64
	for _, test := range []struct {
		name         string
		little, much Options
		rising       figures
	}{
		{"delay", Options{Delay: 20 * ms}, Options{Delay: 60 * ms}, figures{lag, over}},
		{"jitter", Options{Jitter: 40 * ms}, Options{Jitter: 160 * ms}, figures{lag, over}},
		{"loss", Options{Loss: 0.25}, Options{Loss: 0.55}, figures{over}},
		// A report that comes twice is folded and answered twice, if counted once.
		{"repeat", Options{Repeat: 0.1}, Options{Repeat: 0.4}, figures{heard, commands}},
		// Checkers that are cut off decide by what they know and reckon, and deliver afterwards.
		{"partition", Options{Partitions: cut(2)}, Options{Partitions: cut(5)}, figures{late, admitted, over}},
	} {
		if testing.Short() && test.name != "loss" {
			continue
		}
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			sc := scenarioOf(t, "steady", scenario.Settings{Duration: new(4 * time.Second)})
			sc.Warmup = 500 * ms
			sums := make([][3]float64, len(test.rising))
			for seed := range seeds() {
				test.little.Seed, test.much.Seed = seed+1, seed+1
				none := simulate(t, sc, Options{Seed: seed + 1})
				little, much := simulate(t, sc, test.little), simulate(t, sc, test.much)
				if lag := *none.RefreshLagMS.P50; late(none) != 0 || lag < 2 || lag > 30 {
					t.Errorf("seed %d, without: %v hits are late, a lag of %v ms", seed+1, late(none), lag)
				}
				// A lost report or answer is waited for in vain, and longer each time from the
				// fifth on: until then it is sent to another aggregator, so that of a quarter lost
				// nearly all are in time.
				if test.much.Loss > 0 && late(much) == 0 {
					t.Errorf("seed %d: no hit is late although so much is lost", seed+1)
				}
				for i, of := range test.rising {
					for j, r := range []result.Run{none, little, much} {
						sums[i][j] += of(r)
					}
				}
				if lag, least := *much.RefreshLagMS.P50, 2*float64(test.much.Delay/ms); lag < least {
					t.Errorf("seed %d: half of the hits are known elsewhere within %v ms, of a way of %v", seed+1, lag, least)
				}
			}
			for i, sum := range sums { // of one seed, what is over at 20 ms may be below what is at 0
				if !(sum[0] < sum[1] && sum[1] < sum[2]) {
					t.Errorf("figure %d is %v over all seeds, with a little %v, with much %v", i, sum[0], sum[1], sum[2])
				}
			}
		})
	}
}

// seeds is how many a test is run with.
func seeds() uint64 {
	if testing.Short() {
		return 1
	}
	return 5
}

// TestClocksAreCorrected: a checker that gets every hit decides just as the exact limiter does,
// which goes by the true time, also if its clock is off: it has asked what time it is. One that
// never heard goes by its own clock.
func TestClocksAreCorrected(t *testing.T) {
	sc := scenarioOf(t, "steady", short(scenario.Settings{Checkers: new(1)}))
	alone := []Partition{{Checkers: 1, From: -time.Hour, For: 2 * time.Hour}}
	for seed := range seeds() {
		for _, test := range []struct {
			name  string
			o     Options
			exact bool
		}{
			{"corrected", Options{Skew: 300 * ms}, true},
			{"alone with the right time", Options{Partitions: alone}, true},
			{"alone with the wrong time", Options{Partitions: alone, Skew: 400 * ms}, false},
		} {
			test.o.Seed = seed
			r := simulate(t, sc, test.o)
			wrong := r.WrongAllowShareExact + r.FalseDenialShareExact
			if test.exact && (r.Admitted != r.OracleAdmitted || wrong != 0) || !test.exact && wrong < 0.005 {
				t.Errorf("seed %d, %s: admitted %d, the oracle %d; %+v", seed, test.name, r.Admitted, r.OracleAdmitted, r.Accuracy)
			}
			if test.o.Partitions != nil && (r.ReportsPer1000 != 0 || r.RefreshBytes != 0) {
				t.Errorf("seed %d, %s: reports from nobody to nobody: %+v", seed, test.name, r.Cost)
			}
		}
	}
}

// TestSkew: clocks are off either way, by as much as was asked for and no more; and the checkers
// find out, but for how long the messages take.
func TestSkew(t *testing.T) {
	sc := scenarioOf(t, "steady", scenario.Settings{Checkers: new(200)})
	w := worldOf(t, sc, Options{Seed: 1, Skew: 500 * ms, Delay: 3 * ms})
	w.advance(w.now + int64(meeting))
	var least, most time.Duration
	for i, c := range w.checkers {
		skew := time.Duration(c.skew)
		least, most = min(least, skew), max(most, skew)
		if off := c.Stats().ClockOffset + skew; off.Abs() > 6*ms {
			t.Errorf("checker %d, whose clock is %v ahead, believes that it is %v behind", i, skew, c.Stats().ClockOffset)
		}
	}
	if least < -500*ms || least > -400*ms || most > 500*ms || most < 400*ms {
		t.Errorf("200 clocks are off by %v to %v, want about -500 ms to 500 ms", least, most)
	}
}

// TestReports: by the timer alone a checker that has always something to say says it every 50 ms of
// the measured part, whatever its clock says and however long the warm-up is. Near the limit
// checkers report more often than that.
func TestReports(t *testing.T) {
	alone := scenarioOf(t, "steady", scenario.Settings{
		Checkers: new(1), TimerOnly: new(true), Load: new(0.9), Duration: new(4 * time.Second),
	})
	alone.Warmup = 20 * time.Second
	steady := scenarioOf(t, "steady", scenario.Settings{Duration: new(2 * time.Second)})
	byTimer := scenarioOf(t, "steady", scenario.Settings{TimerOnly: new(true), Duration: new(2 * time.Second)})
	for seed := range seeds() {
		r := simulate(t, alone, Options{Seed: seed, Skew: 400 * ms})
		if n := r.ReportsPer1000 * float64(r.Hits) / 1000; n < 78 || n > 82 {
			t.Errorf("seed %d: %v reports in 4 s, want 80 or so", seed, n)
		}
		early, late := simulate(t, steady, Options{Seed: seed}), simulate(t, byTimer, Options{Seed: seed})
		if early.ReportsPer1000 <= late.ReportsPer1000 || !early.Params.EarlyFlush || late.Params.EarlyFlush {
			t.Errorf("seed %d: %v reports per 1,000 hits with early flushes, %v without", seed, early.ReportsPer1000, late.ReportsPer1000)
		}
	}
}
