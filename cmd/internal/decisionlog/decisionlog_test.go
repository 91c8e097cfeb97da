package decisionlog

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
)

// memory is a sink that keeps entries, and fails for a while first.
type memory struct {
	mu      sync.Mutex
	entries []Entry
	fails   int
	numbers []uint64
	block   bool // until the context is done
}

func (*memory) Name() string { return "memory" }

func (m *memory) Write(ctx context.Context, number uint64, lines []byte) error {
	if m.block {
		<-ctx.Done()
		return ctx.Err()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.numbers = append(m.numbers, number)
	if m.fails > 0 {
		m.fails--
		return errors.New("not now")
	}
	for text := range strings.Lines(string(lines)) {
		var e Entry
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			return fmt.Errorf("%q: %w", text, err)
		}
		m.entries = append(m.entries, e)
	}
	return nil
}

func (m *memory) sum() (count int64) {
	for _, e := range m.entries {
		count += e.Count
	}
	return count
}

// run runs a log while f tells it of denials, and returns what came of them.
func run(t *testing.T, o Options, m *memory, f func(l *Log)) Stats {
	t.Helper()
	o.Checker, o.Sinks = "c1", []Sink{m}
	l := New(o)
	stop := daemontest.Background(t, l.Run)
	f(l)
	stop()
	return l.Stats()[0]
}

// TestDenialsOfOneKeyAreOneEntryASecond, however many they are.
func TestDenialsOfOneKeyAreOneEntryASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m memory
		began := time.Now().UTC()
		limit := func(rule string) int64 { return map[string]int64{"per-user": 15}[rule] }
		stats := run(t, Options{Sample: 1, Hashed: true, Limit: limit}, &m, func(l *Log) {
			time.Sleep(100 * time.Millisecond)
			for range 1000 {
				l.Denied("per-user", "kristie", 1)
			}
			l.Denied("per-user", "kristie", 234)
			l.Denied("gone", "kristie", 1)
			time.Sleep(time.Second)
			l.Denied("per-user", "kristie", 1)
		})
		entry := func(from, until time.Duration, rule string, count, limit int64) Entry {
			return Entry{
				Time: began.Add(from * time.Millisecond), Until: began.Add(until * time.Millisecond), Checker: "c1",
				Rule: rule, Key: "kristie", Hashed: true, Count: count, Limit: limit,
			}
		}
		slices.SortFunc(m.entries, func(a, b Entry) int { return cmp.Compare(b.Count, a.Count)*2 + a.Time.Compare(b.Time) })
		want := []Entry{entry(100, 1000, "per-user", 1234, 15), entry(100, 1000, "gone", 1, 0), entry(1100, 1100, "per-user", 1, 15)}
		if !slices.Equal(m.entries, want) {
			t.Errorf("got  %+v\nwant %+v", m.entries, want)
		}
		if stats != (Stats{Sink: "memory", Written: 1236}) {
			t.Errorf("%+v", stats)
		}
	})
}

// TestAllAreAccountedFor: what finds no room is dropped, and every denial is counted as one thing.
func TestAllAreAccountedFor(t *testing.T) {
	const keys, each = 3000, 2
	for name, test := range map[string]struct {
		o     Options
		fails int
		hangs bool
		drops bool
	}{
		"room for all":       {o: Options{Sample: 1}},
		"few keys":           {o: Options{Sample: 1, MaxKeys: 256}, drops: true},
		"few waiting":        {o: Options{Sample: 1, MaxQueued: 100}, drops: true},
		"a sink that fails":  {o: Options{Sample: 1}, fails: 3},
		"one that is away":   {o: Options{Sample: 1}, fails: math.MaxInt, drops: true},
		"one that hangs":     {o: Options{Sample: 1}, hangs: true, drops: true},
		"a part is sampled":  {o: Options{Sample: 0.5}},
		"sampled and packed": {o: Options{Sample: 0.5, MaxKeys: 64}, drops: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := memory{fails: test.fails, block: test.hangs}
				stats := run(t, test.o, &m, func(l *Log) {
					for i := range keys {
						l.Denied("r", fmt.Sprint(i), each)
					}
					time.Sleep(10 * time.Second)
				})
				if got := stats.Written + stats.Dropped + stats.Unsampled; got != keys*each || stats.Waiting != 0 {
					t.Errorf("%d of %d accounted for: %+v", got, keys*each, stats)
				}
				if stats.Dropped > 0 != test.drops || stats.Written != m.sum() {
					t.Errorf("%+v; %d in the sink", stats, m.sum())
				}
			})
		})
	}
}

// TestWritesAreBounded: a message of all that waits would be more than NATS carries.
func TestWritesAreBounded(t *testing.T) {
	q := newQueue(&memory{}, 10_000, slog.New(slog.DiscardHandler))
	for range q.most {
		q.put(line{text: make([]byte, 200), count: 1})
	}
	written := 0
	for q.stats().Waiting > 0 {
		text, lines, count := q.batch()
		if len(text) > batchText || lines == 0 {
			t.Fatalf("%d lines of %d bytes", lines, len(text))
		}
		q.done(lines, count)
		written += lines
	}
	if written != q.most {
		t.Errorf("%d lines of %d", written, q.most)
	}
}

// TestLongLinesTakeTheRoomOfMany: who makes up keys that take much room in JSON does not get more
// of it.
func TestLongLinesTakeTheRoomOfMany(t *testing.T) {
	const most = 100
	q := newQueue(&memory{}, most, slog.New(slog.DiscardHandler))
	fill := func() (taken int) {
		for range most {
			before := q.stats().Waiting
			q.put(line{text: make([]byte, 10*lineText), count: 1})
			taken += int(q.stats().Waiting - before)
		}
		return taken
	}
	if n := fill(); n != most/10 {
		t.Errorf("%d lines of ten times the room", n)
	}
	_, lines, count := q.batch()
	q.done(lines, count)
	if n := fill(); n != lines {
		t.Errorf("%d lines once %d have gone", n, lines)
	}
	if s := q.stats(); s.Dropped != 2*most-most/10-count || s.Written != count {
		t.Errorf("%+v", s)
	}
}

// TestNothingStaysOfWhatIsWritten: a flood's keys are let go when they have been written, and not
// only when others come.
func TestNothingStaysOfWhatIsWritten(t *testing.T) {
	l := New(Options{Sample: 1})
	for i := range 1000 {
		l.Denied("per-user", fmt.Sprint("user", i), 1)
	}
	l.flush()
	for i := range l.stripes {
		if s := &l.stripes[i]; len(s.keys)+len(s.spare) > 0 {
			t.Fatalf("stripe %d has %d and %d keys", i, len(s.keys), len(s.spare))
		}
	}
}

// TestRepeatsHaveTheSameNumber, by which a stream knows them.
func TestRepeatsHaveTheSameNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory{fails: 2}
		run(t, Options{Sample: 1}, &m, func(l *Log) {
			l.Denied("r", "a", 1)
			time.Sleep(5 * time.Second)
			l.Denied("r", "b", 1)
		})
		if got := fmt.Sprint(m.numbers); got != "[1 1 1 2]" {
			t.Errorf("numbers %s", got)
		}
	})
}

// TestSampleIsAboutThatPart of the denials, also of those that are told together.
func TestSampleIsAboutThatPart(t *testing.T) {
	l := New(Options{Sample: 0.1})
	const n = 100_000
	for range n / 2 {
		l.Denied("r", "k", 1)
	}
	for range n / 20 {
		l.Denied("r", "k", 10)
	}
	// 12 standard deviations of a fair draw.
	if left := n - l.unsampled.Load(); math.Abs(float64(left)-n/10) > 1140 {
		t.Errorf("%d of %d, want about a tenth", left, n)
	}
}

// TestDeniedKeepsNothing of the key, which is only good during the call, and allocates nothing for
// one that it has.
func TestDeniedKeepsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m memory
		run(t, Options{Sample: 1}, &m, func(l *Log) {
			text := []byte("kristie")
			l.Denied("r", unsafe.String(&text[0], len(text)), 1)
			copy(text, "changed")
			if n := testing.AllocsPerRun(100, func() { l.Denied("r", "kristie", 1) }); n > 0 {
				t.Errorf("%v allocations", n)
			}
		})
		if len(m.entries) != 1 || m.entries[0].Key != "kristie" {
			t.Errorf("%+v", m.entries)
		}
	})
}

func BenchmarkDenied(b *testing.B) {
	for _, keys := range []int{1, 10_000} {
		b.Run(fmt.Sprint("keys=", keys), func(b *testing.B) {
			l := New(Options{Sample: 1})
			names := make([]string, keys)
			for i := range names {
				names[i] = fmt.Sprint("user", i)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				l.Denied("per-user", names[i%keys], 1)
			}
		})
	}
}

var must = daemontest.Must

func newStream(t *testing.T, url, checker string, maxBytes int64, maxAge time.Duration) (*Stream, *nats.Conn) {
	t.Helper()
	conn := serverstest.Connect(t, url)
	o := StreamOptions{Namespace: "f", Checker: checker, MaxBytes: maxBytes, MaxAge: maxAge}
	return NewStream(func() *nats.Conn { return conn }, o), conn
}

// TestStream: it is created if it is missing, with its bounds; repeats are stored once; one that is
// there stays as it is.
func TestStream(t *testing.T) {
	url := serverstest.JetStream(t).URL()
	s, conn := newStream(t, url, "c1", 1<<20, time.Hour)
	for _, number := range []uint64{1, 1, 2} {
		must(t, s.Write(t.Context(), number, fmt.Appendln(nil, number)))
	}
	stream, err := serverstest.JetStreamOf(t, conn).Stream(t.Context(), "f-denied")
	must(t, err)
	info := stream.CachedInfo()
	if c := info.Config; c.MaxBytes != 1<<20 || c.MaxAge != time.Hour || c.Discard != jetstream.DiscardOld || info.State.Msgs != 2 {
		t.Errorf("%d messages, bounds: %+v", info.State.Msgs, c)
	}
	last, err := stream.GetLastMsgForSubject(t.Context(), "f.denied.v1.c1")
	if err != nil || string(last.Data) != "2\n" {
		t.Errorf("the last one: %v, %v", last, err)
	}
	other, _ := newStream(t, url, "c2", 5<<20, time.Minute)
	must(t, other.Write(t.Context(), 1, []byte("three\n")))
	if info, err = stream.Info(t.Context()); err != nil || info.Config.MaxBytes != 1<<20 || info.State.Msgs != 3 {
		t.Errorf("after another checker: %+v, %v", info, err)
	}
}

// TestNoStream: without JetStream it says so.
func TestNoStream(t *testing.T) {
	s, _ := newStream(t, serverstest.NATS(t).URL(), "c1", 1<<20, time.Hour)
	if err := s.Write(t.Context(), 1, []byte("one\n")); err == nil {
		t.Error("no error")
	}
}
