package tap

import (
	"context"
	"errors"
	"testing"

	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/events"
)

const rule = "r"

// far is a link into nothing.
type far struct{ err error }

func (f far) Report(uint32, bool, []byte) error { return f.err }
func (f far) Lease(uint32, bool, []byte) error  { return f.err }
func (f far) Hello([]byte) error                { return f.err }
func (f far) Listen(_ context.Context, h func(events.Kind, []byte)) error {
	for range 2 {
		h(events.KindWelcome, []byte("abcde"))
		h(events.KindAlarm, []byte{})
		h(events.KindRefresh, []byte("abc"))
		h(events.KindGrant, []byte("gr"))
	}
	return f.err
}

func TestCost(t *testing.T) {
	broken := errors.New("broken")
	l := NewLink(far{broken}, func() int64 { return 0 }, nil)
	for range 3 {
		if err := l.Report(0, false, make([]byte, 10)); !errors.Is(err, broken) {
			t.Errorf("the error of a report is %v", err)
		}
	}
	heard := 0
	if err := l.Listen(context.Background(), func(events.Kind, []byte) { heard++ }); !errors.Is(err, broken) || heard != 8 {
		t.Errorf("heard %d messages, error %v", heard, err)
	}
	s := NewStore(memstore.New())
	for range 2 {
		if _, err := s.Join(context.Background(), 1); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Lease(context.Background(), &storage.LeaseBatch{}); err != nil {
		t.Fatal(err)
	}
	got := l.Cost().Add(s.Cost()).Sub(Cost{Reports: 1})
	want := Cost{Reports: 2, ReportBytes: 30, HeardBytes: 10, StoreCommands: 3, StoreJoins: 2}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// table is one key in one bucket.
func table(key string, newest, bucket int64, value uint64) *events.Table {
	t := &events.Table{Rules: []*events.Rule{{Name: rule, WindowMs: 1000, Buckets: 1, Limit: 100, Newest: newest}}}
	t.AddKey(0, "untraced")
	t.AddCell(0, 1)
	t.AddKey(0, key)
	t.AddCell(newest-bucket, value)
	return t
}

func encode(t *testing.T, m events.Message) []byte {
	t.Helper()
	data, err := events.Append(nil, m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// script is what two checkers, 0 and 1, send and hear of key "k" in bucket 5.
type script struct {
	t      *testing.T
	traces []*Trace
}

func newScript(t *testing.T) *script {
	keys := func(r, key string) (int32, bool) { return 7, r == rule && key == "k" }
	return &script{t, []*Trace{NewTrace(keys), NewTrace(keys), nil}}
}

func (s *script) report(checker int, now int64, sequence, value uint64) {
	s.traces[checker].sent(now, encode(s.t, &events.Report{Epoch: 1, Shards: 1, Sequence: sequence, Hits: table("k", 6, 5, value)}))
}

func (s *script) answer(checker int, now int64, sequence, total uint64) {
	s.traces[checker].heard(now, events.KindRefresh, encode(s.t, &events.Refresh{
		Epoch: 1, Sequence: sequence, Generation: 1, Version: 1,
		KeyCells: []uint32{0, 2}, Age: []int64{0, 1}, Total: []uint64{99, total}, // in bucket 6 there are 99
	}))
}

func (s *script) alarm(checker int, now int64, total uint64) {
	s.traces[checker].heard(now, events.KindAlarm, encode(s.t, &events.Alarm{Generation: 1, Version: 1, Totals: table("k", 6, 5, total)}))
}

func TestLag(t *testing.T) {
	s := newScript(t)
	s.report(0, 20_000, 1, 3) // with the hit at 10
	s.alarm(1, 25_000, 40)    // of before
	s.report(0, 30_000, 1, 3) // a repeat: does not count
	s.answer(0, 40_000, 1, 44)
	s.report(0, 50_000, 2, 1) // with the hit at 45
	s.alarm(1, 55_000, 43)    // 43 < 44: from before the fold with the hit at 10
	s.answer(0, 60_000, 2, 45)
	s.report(1, 61_000, 1, 1)
	s.answer(1, 70_000, 1, 46)
	s.alarm(1, 80_000, 47)

	hit := func(at int64, checker int, holders ...int) Hit {
		return Hit{At: at, Bucket: 5, Key: 7, Checker: checker, Holders: holders}
	}
	for _, test := range []struct {
		name   string
		hit    Hit
		until  int64
		lag    int64 // in thousands, if there is one
		nevers int64
	}{
		{"heard of by its own report's answer", hit(10_000, 0, 1), 100_000, 60, 0},
		{"the second report's", hit(45_000, 0, 1), 100_000, 25, 0},
		{"the other way round: nothing comes to checker 0 any more", hit(60_500, 1, 0), 100_000, 0, 1},
		{"too late", hit(10_000, 0, 1), 70_000, 0, 1},
		{"nobody listens to checker 2", hit(10_000, 0, 1, 2), 100_000, 60, 0},
		{"nor to its hits", hit(10_000, 2, 1), 100_000, 0, 0},
		{"never reported, so nobody can know", hit(90_000, 0, 1), 100_000, 0, 1},
		{"reported as late, in no bucket", Hit{At: 10_000, Bucket: 4, Key: 7, Holders: []int{1}}, 100_000, 0, 1},
		{"not told by the end, and it mattered still: unknown", hit(60_500, 1, 0), 100_001, 0, 0},
	} {
		until := func(Hit) int64 { return test.until }
		got := FindLag(s.traces, []Hit{test.hit}, 100_000, until)
		n, lag := got.Nanoseconds.TotalCount(), got.Nanoseconds.Max()
		if got.Never != test.nevers || n != min(test.lag, 1) || lag/1000 != test.lag {
			t.Errorf("%s: %d lags of %d and %d never, want %d thousand and %d", test.name, n, lag, got.Never, test.lag, test.nevers)
		}
	}
}

// TestRubbish: what cannot be read is not traced, and harms nothing.
func TestRubbish(t *testing.T) {
	s := newScript(t)
	s.report(0, 1, 1, 1)
	s.traces[0].sent(2, []byte{0xff})
	s.traces[0].heard(3, events.KindRefresh, []byte{0xff})
	s.traces[0].heard(3, events.KindAlarm, []byte{0xff})
	s.answer(0, 4, 9, 1) // to a report that was not sent
	s.traces[0].heard(5, events.KindRefresh, encode(t, &events.Refresh{Epoch: 1, Sequence: 1, KeyCells: []uint32{1}, Age: []int64{0}, Total: []uint64{1}}))
	if len(s.traces[0].told) != 0 || len(s.traces[0].sends[7]) != 1 {
		t.Errorf("traced %d totals and %d reports", len(s.traces[0].told), len(s.traces[0].sends[7]))
	}
}

// TestTraceIsBounded: what comes before its beginning, what is no news, and what there is no room
// for.
func TestTraceIsBounded(t *testing.T) {
	s := newScript(t)
	s.traces[1].From(1000)
	s.alarm(1, 999, 5)
	s.alarm(1, 1000, 6)
	s.alarm(1, 1001, 6)
	s.alarm(1, 1002, 4)
	s.alarm(1, 1003, 7)
	if got := s.traces[1].told[7]; len(got) != 2 || got[0].at != 1000 || got[1].at != 1003 {
		t.Errorf("kept %+v", got)
	}
	s.traces[1].entries = mostEntries
	s.alarm(1, 1004, 8)
	s.report(0, 900, 1, 1)
	s.answer(0, 950, 1, 8)
	hit := Hit{At: 800, Bucket: 5, Key: 7, Holders: []int{1}}
	for deadline, never := range map[int64]int64{1004: 1, 1005: 0} { // after it was full nobody can say
		lag := FindLag(s.traces, []Hit{hit}, 5000, func(Hit) int64 { return deadline })
		if !lag.Truncated || lag.Never != never || lag.Nanoseconds.TotalCount() != 0 {
			t.Errorf("deadline %d: %d never, %d lags, truncated %v", deadline, lag.Never, lag.Nanoseconds.TotalCount(), lag.Truncated)
		}
	}
}
