package score

import (
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/offpath-io/offpath/loadtest/result"
	"github.com/offpath-io/offpath/loadtest/scenario"
	"github.com/offpath-io/offpath/loadtest/tap"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// begin is a whole minute, so that windows begin with it.
var begin = time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC).UnixNano()

// tenASecond is 10 hits a second for each of some keys, with a warm-up of 2 s and 4 s that count.
func tenASecond(checkers, keys int) *scenario.Scenario {
	return &scenario.Scenario{
		Name: "ten", Variant: "a second", Description: "for the tests", Load: 3, Speed: 7,
		Rules: []rules.Rule{{Name: "r", Key: []string{"key"}, Limit: 10, Window: window.Shape{Length: time.Second, Buckets: 1, Fixed: true}}},
		Streams: []scenario.Stream{{
			Keys: keys, Phases: []scenario.Phase{{Least: time.Hour, Most: time.Hour, From: 1, To: 1}},
		}},
		Warmup: 2 * time.Second, Duration: 4 * time.Second, Checkers: checkers, Aggregators: 3, Flush: 50 * time.Millisecond,
	}
}

func newScore(sc *scenario.Scenario) *Score { return New(sc, scenario.New(sc, 1), begin) }

// at is a time since the start of the warm-up.
func at(d time.Duration) int64 { return begin + int64(d) }

// about reports whether a figure out of a histogram of three digits is what it should be.
func about(got, want float64) bool { return math.Abs(got-want) <= want/500 }

// TestRun: ten fit each second. 4 hits come before the measured part and 3 after it; within it come
// 14 in one second, of which 13 are admitted, and 5 in another, of which 1 is denied for no reason.
func TestRun(t *testing.T) {
	s := newScore(tenASecond(1, 2))
	second := time.Second
	ask := func(from time.Duration, key int32, n int, allowed bool) {
		for i := range n {
			s.Hit(at(from)+int64(i), scenario.Hit{Key: key, Cost: 1}, allowed)
		}
	}
	ask(1*second, 0, 4, true)
	ask(2*second-2, 0, 2, false) // the last is in the first nanosecond but one before
	ask(2*second, 0, 13, true)
	ask(2*second+second/2, 0, 1, false)
	ask(4*second, 1, 4, true)
	ask(4*second+second/2, 1, 1, false)
	ask(6*second, 1, 3, true) // the first nanosecond after

	if from, to := s.Measured(); from != at(2*second) || to != at(6*second) {
		t.Errorf("measured from %d to %d", from-begin, to-begin)
	}
	if got := s.Admitted(); got != 24 {
		t.Errorf("%d admitted in all, want 24", got)
	}
	r := s.Run(at(9 * second))
	line := &r.Timeline
	if len(line.Ours) != 400 || len(line.Oracle) != 400 || slices.Max(line.Ours) != 1.3 || slices.Max(line.Oracle) != 1 {
		t.Errorf("the timeline is %+v", line)
	}
	line.Ours, line.Oracle = nil, nil
	over := func(n, limit float64) float64 { return n/limit - 1 }
	want := result.Run{
		Scenario: "ten", Variant: "a second", Description: "for the tests", Params: r.Params,
		MeasuredSeconds: 4, OfferedRate: 19.0 / 4, Timeline: result.Timeline{StepMS: 10},
		Hits: 19, Admitted: 17, Denied: 2, OracleAdmitted: 15, Keys: 2,
		Accuracy: result.Accuracy{
			OverWorstWindow: over(13, 10), Over999: new(over(13, 10)),
			// 2 more came just before the window.
			RollingOverWorst: over(13, 10), OracleRollingOverWorst: over(12, 10),
			OverTotal: over(17, 15), WrongAllowShare: 2.0 / 19, WrongAllowShareExact: 3.0 / 19,
			FalseDenialShare: 1.0 / 19, FalseDenialShareExact: 1.0 / 19,
		},
	}
	if !reflect.DeepEqual(r, want) {
		t.Errorf("\ngot  %+v\nwant %+v", r, want)
	}
}

// TestRunEndsEarly: the time that had been is what rates are over, and a run that did not come to
// its measured part has none. A hit with a time before the last one's counts as if at the same
// time.
func TestRunEndsEarly(t *testing.T) {
	for _, test := range []struct {
		end           time.Duration
		hits          int64
		seconds, rate float64
	}{{time.Second, 0, 0, 0}, {2 * time.Second, 0, 0, 0}, {4 * time.Second, 6, 2, 3}} {
		s := newScore(tenASecond(1, 1))
		for i := range test.hits {
			s.Hit(at(2*time.Second-time.Duration(i)), scenario.Hit{Cost: 1}, true)
		}
		if r := s.Run(at(test.end)); r.Hits != test.hits || r.MeasuredSeconds != test.seconds || r.OfferedRate != test.rate {
			t.Errorf("stopped after %v: %d hits, %v s, %v a second; want %+v", test.end, r.Hits, r.MeasuredSeconds, r.OfferedRate, test)
		}
	}
}

// TestConservation: each of the five ways for a hit to end is on the right-hand side.
func TestConservation(t *testing.T) {
	stats := []check.Stats{{Rules: []check.RuleStats{
		{Charged: 10_000, Answered: 1, InFlight: 2, Pending: 3, Allowed: 4, Denied: 5, Overflow: 1000, Lost: 100},
		{Charged: 10_000, Overflow: 500},
	}}, {Rules: []check.RuleStats{{Charged: 2222, Overflow: 500, Lost: 100}}}}
	ledger := storage.Ledger{"a": {Counted: 10_000, Late: 10, Refused: 1}, "b": {Counted: 10_000, Late: 10, Refused: 1}}
	want := result.Conservation{
		Admitted: 22_222, Charged: 22_222, Stored: 22_222, Counted: 20_000, Late: 20, Refused: 2, Overflow: 2000, Lost: 200, Holds: true,
	}
	if c := Conservation(22_222, stats, ledger); c != want {
		t.Errorf("\ngot  %+v\nwant %+v", c, want)
	}
	for part := range 7 {
		for _, by := range []int64{-1, 1} {
			off := want
			*[]*int64{&off.Admitted, &off.Charged, &off.Counted, &off.Late, &off.Refused, &off.Overflow, &off.Lost}[part] += by
			if off.Check(); off.Holds {
				t.Errorf("it holds with part %d off by %d: %+v", part, by, off)
			}
		}
	}
}

// TestCost: 500 hits in 4 s by 8 checkers.
func TestCost(t *testing.T) {
	r := result.Run{Hits: 500, MeasuredSeconds: 4, Params: result.Params{Checkers: 8}}
	Cost(&r, tap.Cost{Reports: 7, ReportBytes: 1100, HeardBytes: 3200, StoreCommands: 13, StoreJoins: 3})
	if r.ReportsPer1000 != 14 || r.ReportBytesPer1000 != 2200 || r.StoreCommandsPer1000 != 26 ||
		r.StoreHeartbeatsPer1000 != 6 || r.RefreshBytes != 100 {
		t.Errorf("got %+v; want 14 reports, 2,200 bytes, 26 commands and 6 heartbeats per 1,000 hits, 100 bytes a checker and second", r.Cost)
	}
	for name, r := range map[string]result.Run{"no hits": {MeasuredSeconds: 4, Params: r.Params}, "no time": {Hits: 1, Params: r.Params}} {
		Cost(&r, tap.Cost{HeardBytes: 3200})
		if r.RefreshBytes != 0 || r.ReportsPer1000 != 0 {
			t.Errorf("%s: %+v", name, r.Cost)
		}
	}
}

// thousands returns the distribution of 1,000, 2,000, … 10,000,000.
func thousands() *hdrhistogram.Histogram {
	h := hdrhistogram.New(1, 1e9, 3)
	for i := range int64(10_000) {
		_ = h.RecordValue(1000 * (i + 1))
	}
	return h
}

func TestLatency(t *testing.T) {
	l := Latency(thousands())
	l.Curve = append(l.Curve,
		result.Quantile{Percent: 50, Value: *l.P50}, result.Quantile{Percent: 90, Value: *l.P90},
		result.Quantile{Percent: 99, Value: *l.P99}, result.Quantile{Percent: 99.9, Value: *l.P999},
		result.Quantile{Percent: 100, Value: *l.Max})
	var percents []float64
	for _, q := range l.Curve {
		percents = append(percents, q.Percent)
		if !about(q.Value, q.Percent*100_000) {
			t.Errorf("%v %% are at or below %v", q.Percent, q.Value)
		}
	}
	// What is at 99 % and at 99.9 % is nearer than the bound above, and differs all the same.
	if *l.P99 >= *l.P999 || *l.P999 > *l.Max {
		t.Errorf("not in order: %v %v %v", *l.P99, *l.P999, *l.Max)
	}
	// 10,000 samples tell nothing of 99.995 %.
	if n := len(percents) - 5; !slices.IsSorted(percents[:n]) || percents[n-1] != 99.99 || percents[0] != 1 {
		t.Errorf("a curve of %v", percents[:n])
	}
	if l := Lateness(thousands()); !about(l.P50, 5) || !about(l.P99, 9.9) || !about(l.Max, 10) || l.P99 >= l.Max {
		t.Errorf("got %+v, want 5, 9.9 and 10 ms", *l)
	}
}

func TestParams(t *testing.T) {
	sc := tenASecond(8, 5)
	sc.TimerOnly = true
	sc.Rules = append(sc.Rules, rules.Rule{
		Name: "s", Limit: 6, Enforcement: rules.Strict, Window: window.Shape{Length: time.Minute, Buckets: 12},
	})
	sc.Streams = append(sc.Streams, scenario.Stream{Keys: 30})
	want := result.Params{
		Checkers: 8, Aggregators: 3, Limit: 10, WindowMS: 1000, Load: 3, FlushMS: 50, Keys: 35,
		WarmupS: 2, DurationS: 4, Speed: 7,
		Rules: []result.Rule{
			{Name: "r", Limit: 10, WindowMS: 1000, Buckets: 1, Algorithm: "fixed_window", Enforcement: "async"},
			{Name: "s", Limit: 6, WindowMS: 60_000, Buckets: 12, Algorithm: "sliding_window", Enforcement: "strict"},
		},
	}
	if p := Params(sc); !reflect.DeepEqual(p, want) {
		t.Errorf("\ngot  %+v\nwant %+v", p, want)
	}
	sc.TimerOnly, sc.Fixed = false, &scenario.Fixed{Keys: make([]string, 77)}
	if p := Params(sc); !p.EarlyFlush || p.Keys != 77 {
		t.Errorf("of a replay of 77 keys: %+v", p)
	}
}
