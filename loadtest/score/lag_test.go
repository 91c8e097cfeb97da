package score

import (
	"slices"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/testing/membus"
	"github.com/offpath-io/offpath/loadtest/result"
	"github.com/offpath-io/offpath/loadtest/scenario"
	"github.com/offpath-io/offpath/loadtest/tap"
	"github.com/offpath-io/offpath/pkg/events"
)

// wire is what two checkers say and hear, told by hand.
type wire struct {
	t      *testing.T
	traces []*tap.Trace
	now    int64
	links  []*tap.Link
}

func newWire(t *testing.T, sc *scenario.Scenario) *wire {
	w := &wire{t: t, traces: NewTraces(sc, scenario.New(sc, 1))}
	far := membus.New(membus.Options{}).Checker("nobody hears it")
	for _, trace := range w.traces {
		w.links = append(w.links, tap.NewLink(far, func() int64 { return w.now }, trace))
	}
	return w
}

func (w *wire) encode(m events.Message) []byte {
	w.t.Helper()
	data, err := events.Append(nil, m)
	if err != nil {
		w.t.Fatal(err)
	}
	return data
}

func (w *wire) table(bucket int64, value uint64) *events.Table {
	t := &events.Table{Rules: []*events.Rule{{Name: "r", WindowMs: 1000, Buckets: 1, Limit: 10, Newest: bucket}}}
	t.AddKey(0, "a:0")
	t.AddCell(0, value)
	return t
}

// counted: checker 0 reports one hit at a time, and the answer says the total.
func (w *wire) counted(now, bucket int64, number, total uint64) {
	w.now = now
	_ = w.links[0].Report(0, false, w.encode(&events.Report{Epoch: 1, Shards: 1, Sequence: number, Hits: w.table(bucket, 1)}))
	w.links[0].Heard(events.KindRefresh, w.encode(&events.Refresh{
		Epoch: 1, Sequence: number, Generation: 1, Version: 1, KeyCells: []uint32{1}, Age: []int64{0}, Total: []uint64{total},
	}))
}

// told: checker 1 is told the total.
func (w *wire) told(now, bucket int64, total uint64) {
	w.now = now
	w.links[1].Heard(events.KindAlarm, w.encode(&events.Alarm{Generation: 1, Version: 1, Totals: w.table(bucket, total)}))
}

// TestLag: in each of four windows 100 hits are admitted at checker 0, of which those above half
// the limit are looked at. Checker 1 hears of most after 1 ms, of each 25th after 8 ms; of those in
// the last window's second half never.
func TestLag(t *testing.T) {
	sc := tenASecond(2, 1)
	sc.Rules[0].Limit = 100
	s, w := newScore(sc), newWire(t, sc)
	number := uint64(0)
	samples, never := int64(0), int64(0)
	for second := range 4 {
		from := at(time.Duration(2+second) * time.Second)
		bucket := sc.Rules[0].Window.Bucket(from)
		s.Hit(from, scenario.Hit{Checker: 1, Cost: 1}, false) // so that it holds the key
		for i := range 100 {
			now := from + int64(i+1)*int64(9*time.Millisecond)
			s.Hit(now, scenario.Hit{Cost: 1}, true)
			number++
			w.counted(now, bucket, number, uint64(i+1))
			lag := time.Millisecond
			if i%25 == 0 {
				lag = 8 * time.Millisecond
			}
			heard := second < 3 || i < 75
			if heard {
				w.told(now+int64(lag), bucket, uint64(i+1))
			}
			if i+1 >= 50 {
				if heard {
					samples++
				} else {
					never++
				}
			}
		}
	}
	l := s.Lag(w.traces, at(time.Minute))
	if l.Samples != samples || l.Never != never || l.P50 == nil || l.P99 == nil {
		t.Fatalf("%d samples and %d never, want %d and %d; %+v", l.Samples, l.Never, samples, never, l)
	}
	if !about(*l.P50, 1) || !about(*l.P99, 8) {
		t.Errorf("p50 %v ms and p99 %v ms, want 1 and 8", *l.P50, *l.P99)
	}

	if l := newScore(sc).Lag(w.traces, at(time.Minute)); l.Samples != 0 || l.Never != 0 || l.P50 != nil || l.P99 != nil {
		t.Errorf("without hits: %+v", l)
	}
}

// TestWordOfAWindowThatIsOver: a fixed window's hits matter until it ends, a sliding one's for one
// more.
func TestWordOfAWindowThatIsOver(t *testing.T) {
	for fixed, want := range map[bool]result.Lag{true: {Never: 1}, false: {Samples: 1}} {
		sc := tenASecond(2, 1)
		sc.Rules[0].Limit, sc.Rules[0].Window.Fixed = 2, fixed
		s, w := newScore(sc), newWire(t, sc)
		now := at(2900 * time.Millisecond)
		bucket := sc.Rules[0].Window.Bucket(now)
		s.Hit(now-1, scenario.Hit{Checker: 1, Cost: 1}, false) // so that it holds the key
		s.Hit(now, scenario.Hit{Cost: 1}, true)
		w.counted(now, bucket, 1, 1)
		w.told(now+int64(200*time.Millisecond), bucket, 1)
		if l := s.Lag(w.traces, at(time.Minute)); l.Samples != want.Samples || l.Never != want.Never {
			t.Errorf("fixed %v: %d samples and %d never, want %d and %d", fixed, l.Samples, l.Never, want.Samples, want.Never)
		}
	}
}

// TestTraces: so many checkers are listened to, evenly chosen, and they are those whose hits are
// looked at.
func TestTraces(t *testing.T) {
	for _, test := range []struct{ checkers, want int }{{1, 1}, {TracedCheckers, TracedCheckers}, {5*TracedCheckers + 3, TracedCheckers}} {
		sc := tenASecond(test.checkers, 1)
		var listened []int
		for i, trace := range NewTraces(sc, scenario.New(sc, 1)) {
			if trace != nil {
				listened = append(listened, i)
			}
		}
		if len(listened) != test.want || !slices.Equal(listened, traced(test.checkers)) {
			t.Errorf("of %d checkers, %v are listened to", test.checkers, listened)
		}
		for i := 1; i < len(listened); i++ {
			if gap := listened[i] - listened[i-1]; gap < test.checkers/test.want || gap > test.checkers/test.want+1 {
				t.Errorf("of %d checkers, %v are listened to: not evenly", test.checkers, listened)
			}
		}
	}
}
