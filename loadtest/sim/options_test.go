package sim

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/offpath-io/offpath/loadtest/result"
	"github.com/offpath-io/offpath/loadtest/scenario"
	"github.com/offpath-io/offpath/loadtest/score"
	"github.com/offpath-io/offpath/pkg/events"
)

const ms = time.Millisecond

func worldOf(t *testing.T, sc *scenario.Scenario, o Options) *world {
	t.Helper()
	w, err := newWorld(sc, o, score.NewTraces(sc, scenario.New(sc, o.Seed)))
	must(t, err)
	return w
}

// probe hears what goes to a checker of a name, of messages that are numbered.
type probe struct {
	took map[int][]time.Duration // of each message, of every arrival
	sent []int64
	send func()
}

// probes sends messages in a world to checkers of these names.
func probes(w *world, names ...string) []*probe {
	from := w.bus.Worker()
	var list []*probe
	for _, name := range names {
		p := &probe{took: make(map[int][]time.Duration)}
		w.bus.Checker(name).Attach(func(_ events.Kind, payload []byte) {
			if len(payload) == 4 {
				number := int(binary.BigEndian.Uint32(payload))
				p.took[number] = append(p.took[number], time.Duration(w.now-p.sent[number]))
			}
		})
		list = append(list, p)
	}
	list[0].send = func() {
		number := uint32(len(list[0].sent))
		for _, p := range list {
			p.sent = append(p.sent, w.now)
		}
		_ = from.Alarm(0, binary.BigEndian.AppendUint32(nil, number)) // nobody else can read it
	}
	return list
}

// TestNetwork: what the options say of messages is what happens to them.
func TestNetwork(t *testing.T) {
	const n = 10_000
	for _, test := range []struct {
		name         string
		o            Options
		lost, twice  float64
		least, most  time.Duration
		latestRepeat time.Duration
	}{
		{"perfect", Options{}, 0, 0, 0, 0, 0},
		{"delay", Options{Delay: 30 * ms}, 0, 0, 30 * ms, 30 * ms, 0},
		{"jitter", Options{Delay: 10 * ms, Jitter: 40 * ms}, 0, 0, 10 * ms, 50 * ms, 0},
		{"loss", Options{Loss: 0.2}, 0.2, 0, 0, 0, 0},
		{"repeat", Options{Repeat: 0.3, Delay: 100 * ms}, 0, 0.3, 100 * ms, 100 * ms, 1300 * ms},
	} {
		sc := scenarioOf(t, "steady", scenario.Settings{Checkers: new(1), Aggregators: new(1)})
		w := worldOf(t, sc, test.o)
		w.bus.Step(w.now) // so that it knows what time it is
		p := probes(w, "probe")[0]
		for range n {
			p.send()
		}
		w.advance(w.now + int64(10*time.Second))
		twice, latest := 0, time.Duration(0)
		var first []time.Duration
		for _, took := range p.took {
			first = append(first, slices.Min(took))
			if len(took) > 1 {
				twice++
				latest = max(latest, slices.Max(took))
			}
		}
		if lost := 1 - float64(len(first))/n; math.Abs(lost-test.lost) > 0.02 {
			t.Errorf("%s: %v of the messages are lost, want %v", test.name, lost, test.lost)
		}
		if share := float64(twice) / n; math.Abs(share-test.twice) > 0.02 {
			t.Errorf("%s: %v of the messages come twice, want %v", test.name, share, test.twice)
		}
		// The extremes of as many are close to the bounds: within 1 % of what is left to chance.
		slack := (test.most - test.least) / 100
		if least, most := slices.Min(first), slices.Max(first); least < test.least || least > test.least+slack ||
			most > test.most || most < test.most-slack {
			t.Errorf("%s: the messages take %v to %v, want %v to %v", test.name, least, most, test.least, test.most)
		}
		if latest > test.latestRepeat || latest < test.latestRepeat*98/100 {
			t.Errorf("%s: the latest repeat comes after %v, want %v", test.name, latest, test.latestRepeat)
		}
	}
}

// TestPartition: who is cut off, from when, and for how long.
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
	list := probes(w, "c0", "c1", "c2")
	w.advance(from + int64(5*ms)) // so that no message is sent at the moment of a cut
	for range 600 {
		list[0].send()
		w.advance(w.now + int64(10*ms))
	}
	for i, want := range [][]int{{100, 250, 300, 450}, {100, 250, 350, 450}, nil} {
		var edges []int // from where on messages get lost, or do not any more
		lost := false
		for number := range 600 {
			if arrived := len(list[i].took[number]) > 0; arrived == lost {
				edges, lost = append(edges, number), !lost
			}
		}
		if !slices.Equal(edges, want) {
			t.Errorf("checker %d is cut off at %v hundredths of a second, want %v", i, edges, want)
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
		if testing.Short() && test.name != "loss" && test.name != "partition" {
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

// TestEarlyFlushes: near the limit checkers report more often than by the timer alone.
func TestEarlyFlushes(t *testing.T) {
	for seed := range seeds() {
		var reports [2]float64
		for i, timerOnly := range []bool{false, true} {
			sc := scenarioOf(t, "steady", scenario.Settings{TimerOnly: &timerOnly, Duration: new(2 * time.Second)})
			r := simulate(t, sc, Options{Seed: seed + 1})
			if reports[i] = r.ReportsPer1000; r.Params.EarlyFlush == timerOnly {
				t.Errorf("by the timer only: %v; on record is %+v", timerOnly, r.Params)
			}
		}
		if reports[0] <= reports[1] {
			t.Errorf("seed %d: %v reports per 1,000 hits with early flushes, %v without", seed+1, reports[0], reports[1])
		}
	}
}

// seeds is how many a test is run with.
func seeds() uint64 {
	if testing.Short() {
		return 1
	}
	return 5
}

// TestClocksAreCorrected: a checker that gets every hit decides just as the exact limiter does, which goes by the true
// time, also if its clock is off: it has asked what time it is. One that never heard goes by its own clock.
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

// TestSkew: clocks are off either way, by as much as was asked for and no more; and the checkers find
// out, but for how long the messages take.
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

// TestReports: a checker that has always something to say says it every 50 ms in the measured part, whatever its
// clock says and however long the warm-up is, if only the timer may make it.
func TestReports(t *testing.T) {
	sc := scenarioOf(t, "steady", scenario.Settings{
		Checkers: new(1), TimerOnly: new(true), Load: new(0.9), Duration: new(4 * time.Second),
	})
	for seed := range seeds() {
		var first result.Run
		for i, test := range []struct{ skew, warmup time.Duration }{{0, time.Second}, {400 * ms, time.Second}, {0, 20 * time.Second}} {
			sc.Warmup = test.warmup
			r := simulate(t, sc, Options{Seed: seed, Skew: test.skew})
			if n := r.ReportsPer1000 * float64(r.Hits) / 1000; n < 78 || n > 82 || r.Params.EarlyFlush {
				t.Errorf("seed %d, %v: %v reports in 4 s, want 80 or so; early %v", seed, test, n, r.Params.EarlyFlush)
			}
			if i == 0 {
				first = r
			}
			for _, f := range [][2]float64{
				{r.ReportBytesPer1000, first.ReportBytesPer1000}, {r.StoreCommandsPer1000, first.StoreCommandsPer1000},
				{r.RefreshBytes, first.RefreshBytes},
			} {
				if f[0] <= 0 || math.Abs(f[0]/f[1]-1) > 0.15 {
					t.Errorf("seed %d, %v: a cost of %v, and %v in the first run", seed, test, f[0], f[1])
				}
			}
		}
	}
}
