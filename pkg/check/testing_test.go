package check

import (
	"context"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// noon is the beginning of a day, hour, minute and second; tests count from it.
var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC).UnixNano()

const (
	ms     = int64(time.Millisecond)
	second = int64(time.Second)
)

func rule(name string, limit int64, length time.Duration, buckets int) rules.Rule {
	return rules.Rule{
		Name: name, Key: []string{"user"}, Limit: limit,
		Window: window.Shape{Length: length, Buckets: buckets},
	}
}

func newChecker(t testing.TB, o Options, list ...rules.Rule) *Checker {
	t.Helper()
	var err error
	if o.Rules, err = rules.NewSet(list...); err != nil {
		t.Fatal(err)
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func limiter(t testing.TB, c *Checker, name string) *Limiter {
	t.Helper()
	l, ok := c.Limiter(name)
	if !ok {
		t.Fatalf("no rule %q", name)
	}
	return l
}

// tape is a Link that writes down what is sent.
type tape struct {
	reports []*events.Report
	leases  []*events.LeaseRequest
	bytes   []string
	hellos  []*events.Hello
	err     error // of every send
}

func (l *tape) Report(_ uint32, report []byte) error {
	if l.err != nil {
		return l.err
	}
	m, err := events.DecodeReport(report)
	if err != nil {
		return err
	}
	l.reports, l.bytes = append(l.reports, m), append(l.bytes, string(report))
	return nil
}

func (l *tape) Lease(_ uint32, request []byte) error {
	m, err := events.DecodeLeaseRequest(request)
	if err != nil {
		return err
	}
	l.leases = append(l.leases, m)
	return l.err
}

func (l *tape) Hello(hello []byte) error {
	m, err := events.DecodeHello(hello)
	if err != nil {
		return err
	}
	l.hellos = append(l.hellos, m)
	return l.err
}

func (l *tape) Listen(ctx context.Context, _ func(events.Kind, []byte)) error {
	<-ctx.Done()
	return nil
}

// fleet is a checker on a tape that has been welcomed at noon, and the answers it gets.
type fleet struct {
	*Checker
	t    testing.TB
	tape *tape
}

func newFleet(t testing.TB, o Options, list ...rules.Rule) *fleet {
	t.Helper()
	tape := new(tape)
	o.Link = tape
	f := &fleet{newChecker(t, o, list...), t, tape}
	f.Step(noon)
	f.welcome(noon, 1)
	f.Step(noon) // the next flush is due 50 ms after noon
	return f
}

func (f *fleet) welcome(now int64, shards uint32) {
	f.t.Helper()
	sent := f.tape.hellos[len(f.tape.hellos)-1].Sent
	f.receive(now, events.KindWelcome, &events.Welcome{Epoch: f.Epoch(), Sent: sent, Shards: shards, Time: now, Checkers: 1})
}

func (f *fleet) receive(now int64, kind events.Kind, m events.Message) {
	f.t.Helper()
	payload, err := events.Append(nil, m)
	if err != nil {
		f.t.Fatal(err)
	}
	f.Receive(now, kind, payload)
}

// last returns the report sent last.
func (f *fleet) last() *events.Report {
	f.t.Helper()
	if len(f.tape.reports) == 0 {
		f.t.Fatal("nothing was reported")
	}
	return f.tape.reports[len(f.tape.reports)-1]
}

// answer answers the last report of one key by its total for the newest bucket.
func (f *fleet) answer(now, total int64) { f.answerIn(now, 1, total) }

func (f *fleet) answerIn(now int64, generation uint64, total int64) {
	f.t.Helper()
	r := f.last()
	f.receive(now, events.KindRefresh, &events.Refresh{
		Epoch: r.Epoch, Shard: r.Shard, Sequence: r.Sequence, Generation: generation, Version: r.Sequence,
		KeyCells: []uint32{1}, Age: []int64{0}, Total: []uint64{uint64(total)},
	})
}

// alarm tells of one key's total in the bucket of now.
func (f *fleet) alarm(now int64, generation uint64, l *Limiter, key string, total int64) {
	f.t.Helper()
	t := &events.Table{Rules: []*events.Rule{l.wire(now)}}
	t.AddKey(0, key)
	t.AddCell(0, uint64(total))
	f.receive(now, events.KindAlarm, &events.Alarm{Generation: generation, Version: 1, Totals: t})
}

// left returns how much is left of a key, without taking any.
func left(l *Limiter, now int64, key string) int64 {
	return l.CheckAt(now, key, l.Rule().Capacity()+1).Remaining
}

// hits reads a report: hits by key, of all buckets together.
func hits(r *events.Report) map[string]uint64 {
	got := make(map[string]uint64)
	text, cell := r.Hits.KeyText, 0
	for i, n := range r.Hits.KeyLength {
		for range r.Hits.KeyCells[i] {
			got[string(text[:n])] += r.Hits.Value[cell]
			cell++
		}
		text = text[n:]
	}
	return got
}
