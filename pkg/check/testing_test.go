package check

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/checktuning"
	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// noon is the beginning of a day, hour, minute and second; tests count from it.
var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC).UnixNano()

const (
	ms     = int64(time.Millisecond)
	second = int64(time.Second)
)

// tuning is short for what tests tune.
type tuning = checktuning.Tuning

func rule(name string, limit int64, length time.Duration, buckets int) rules.Rule {
	return rules.Rule{
		Name: name, Key: []string{"user"}, Limit: limit,
		Window: window.Shape{Length: length, Buckets: buckets},
	}
}

func newChecker(t testing.TB, o Options, list ...rules.Rule) *Checker {
	t.Helper()
	return checkerOf(t, o, setOf(t, list...))
}

// testEpoch is the epoch of tests that name none. What a checker makes of a fleet's limit depends
// on it: who has the rest of a division, the phase of error diffusion, when another aggregator is
// chosen. One that is drawn would be another test each time.
const testEpoch = 1

func checkerOf(t testing.TB, o Options, set *rules.Set) *Checker {
	t.Helper()
	o.Rules = set
	setDefault(&o.Epoch, testEpoch)
	if !inVirtualTime() {
		o.Now = testNow
	}
	c, err := New(o)
	must(t, err)
	return c
}

func setOf(t testing.TB, list ...rules.Rule) *rules.Set {
	t.Helper()
	set, err := rules.NewSet(list...)
	must(t, err)
	return set
}

func parse(t testing.TB, text string) *rules.Set {
	t.Helper()
	set, err := rules.Parse([]byte(text))
	must(t, err)
	return set
}

// ofYAML makes a checker of rules as a file has them.
func ofYAML(t testing.TB, o Options, text string) *Checker {
	t.Helper()
	return checkerOf(t, o, parse(t, text))
}

// request reads attributes: "user=kristie tier=gold".
func request(text string) (attrs identity.Attributes) {
	for _, field := range strings.Fields(text) {
		name, value, _ := strings.Cut(field, "=")
		attrs = append(attrs, identity.Attribute{Name: name, Value: value})
	}
	return attrs
}

func user(name string) identity.Attributes { return identity.Attributes{{Name: "user", Value: name}} }

func encode(t testing.TB, m events.Message) []byte {
	t.Helper()
	payload, err := events.Append(nil, m)
	if err != nil {
		t.Error(err) // not Fatal: goroutines call this too
	}
	return payload
}

func limiter(t testing.TB, c *Checker, name string) *Limiter {
	t.Helper()
	l, ok := c.Limiter(name)
	require(t, ok, "no rule %q", name)
	return l
}

// tester is a testing.TB, or what checks properties.
type tester interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// equal reports what differs from what is wanted.
func equal[T comparable](t tester, got, want T, what string, args ...any) {
	t.Helper()
	expect(t, got == want, what+": got %v, want %v", append(args, got, want)...)
}

// expect reports what was found unless it is as expected.
func expect(t tester, ok bool, found string, args ...any) {
	if !ok {
		t.Helper()
		t.Errorf(found, args...)
	}
}

// require is expect for what the rest of a test needs.
func require(t tester, ok bool, found string, args ...any) {
	if !ok {
		t.Helper()
		t.Fatalf(found, args...)
	}
}

func must(t tester, err error) {
	if err != nil {
		t.Helper()
		t.Fatalf("%v", err)
	}
}

// tape is a Link that writes down what is sent.
type tape struct {
	reports []*events.Report
	to      []string // of reports, the shard, and to whom
	leases  []*events.LeaseRequest
	bytes   []string
	hellos  []*events.Hello
	err     error  // of every send
	during  func() // called by the next hello
}

func (l *tape) Report(shard uint32, toOwner bool, report []byte) error {
	if l.err != nil {
		return l.err
	}
	to := map[bool]string{true: "its owner", false: "any"}[toOwner]
	l.to = append(l.to, fmt.Sprintf("%d to %s", shard, to))
	m, err := events.DecodeReport(report)
	if err != nil {
		return err
	}
	l.reports, l.bytes = append(l.reports, m), append(l.bytes, string(report))
	return nil
}

func (l *tape) Lease(_ uint32, _ bool, request []byte) error {
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
	if during := l.during; during != nil {
		l.during = nil
		during()
	}
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

// unwelcomed is a checker on a tape that nobody has answered yet.
func unwelcomed(t testing.TB, o Options, list ...rules.Rule) *fleet {
	t.Helper()
	tape := new(tape)
	o.Link = tape
	return &fleet{newChecker(t, o, list...), t, tape}
}

func newFleet(t testing.TB, o Options, list ...rules.Rule) *fleet {
	t.Helper()
	f := unwelcomed(t, o, list...)
	atTime(noon, f).Step()
	f.welcome(noon, 1)
	atTime(noon, f).Step() // the next flush is due 50 ms after noon
	return f
}

// newFleetOf is a fleet of several checkers, with one rule.
func newFleetOf(t testing.TB, checkers uint32, o Options, limit int64, length time.Duration) (*fleet, *Limiter) {
	t.Helper()
	f := newFleet(t, o, rule("r", limit, length, 1))
	f.join(noon, checkers, 0)
	return f, limiter(t, f.Checker, "r")
}

// welcome answers the last hello by a number of shards.
func (f *fleet) welcome(now int64, shards uint32) {
	f.t.Helper()
	f.welcomed(now, f.lastHello().Sent, &events.Welcome{Shards: shards, Time: now, Checkers: 1})
}

// welcomeOf answers the last hello in a fleet of several checkers.
func (f *fleet) welcomeOf(now int64, checkers uint32) {
	f.t.Helper()
	f.welcomed(now, f.lastHello().Sent, &events.Welcome{Shards: 1, Time: now, Checkers: checkers})
}

// join is welcomeOf where the checker's clock is behind the fleet's.
func (f *fleet) join(now int64, checkers uint32, behind int64) {
	f.t.Helper()
	f.welcomed(now, now, &events.Welcome{Shards: 1, Time: now + behind, Checkers: checkers})
}

func (f *fleet) welcomed(now, sent int64, m *events.Welcome) {
	f.t.Helper()
	m.Epoch, m.Sent = f.o.Epoch, sent
	f.receive(now, events.KindWelcome, m)
}

func (f *fleet) lastHello() *events.Hello { return f.tape.hellos[len(f.tape.hellos)-1] }

func (f *fleet) receive(now int64, kind events.Kind, m events.Message) {
	f.t.Helper()
	atTime(now, f).Receive(kind, encode(f.t, m))
}

// last returns the report sent last.
func (f *fleet) last() *events.Report {
	f.t.Helper()
	require(f.t, len(f.tape.reports) != 0, "nothing was reported")
	return f.tape.reports[len(f.tape.reports)-1]
}

// reportsAt has the checker take a step, and returns the reports that it sends.
func (f *fleet) reportsAt(now int64) []*events.Report {
	sent := len(f.tape.reports)
	atTime(now, f).Step()
	return f.tape.reports[sent:]
}

// answer answers the last report of one key by its total for the newest bucket.
func (f *fleet) answer(now, total int64) { f.t.Helper(); f.answerIn(now, 1, total) }

func (f *fleet) answerIn(now int64, generation uint64, total int64) {
	f.t.Helper()
	m := f.refresh(uint64(total))
	m.Generation = generation
	f.receive(now, events.KindRefresh, m)
}

// answerRows answers the last report, by the totals of its rows for the newest bucket.
func (f *fleet) answerRows(now int64, totals ...uint64) {
	f.t.Helper()
	f.receive(now, events.KindRefresh, f.refresh(totals...))
}

// refresh is the answer of answerRows.
func (f *fleet) refresh(totals ...uint64) *events.Refresh {
	f.t.Helper()
	r := f.last()
	return &events.Refresh{
		Epoch: r.Epoch, Shard: r.Shard, Sequence: r.Sequence, Generation: 1, Version: r.Sequence,
		KeyCells: slices.Repeat([]uint32{1}, len(totals)), Age: make([]int64, len(totals)), Total: totals,
	}
}

// alarm announces one key's total in the bucket of now.
func (f *fleet) alarm(now int64, generation uint64, l *Limiter, key string, total int64) {
	f.t.Helper()
	f.receive(now, events.KindAlarm, alarmOf(&l.core.Group, now, generation, key, admitted(total)))
}

// alarmMade is an alarm that says when its newest report was made.
func (f *fleet) alarmMade(now, made int64, l *Limiter, key string, total int64) {
	f.t.Helper()
	a := alarmOf(&l.core.Group, now, 1, key, admitted(total))
	a.Made = made
	f.receive(now, events.KindAlarm, a)
}

// alarmRows is an alarm of a key, of the bucket of now, in this order.
func (f *fleet) alarmRows(now int64, l *Limiter, key string, rows ...keyTotal) {
	f.t.Helper()
	a := alarmOf(&l.core.Group, now, 1, key, rows...)
	a.Made = now
	f.receive(now, events.KindAlarm, a)
}

// keyTotal is a total of one kind of hits of a key.
type keyTotal struct {
	kind  int
	total uint64
}

func admitted(total int64) keyTotal { return keyTotal{counter.AdmittedHits, uint64(total)} }
func denied(total int64) keyTotal   { return keyTotal{counter.DeniedHits, uint64(total)} }
func refunded(total int64) keyTotal { return keyTotal{counter.RefundedHits, uint64(total)} }

func alarmOf(g *counter.Group, now int64, generation uint64, key string, rows ...keyTotal) *events.Alarm {
	t := new(events.Table)
	for i, r := range rows {
		rule := g.Wire(now)
		rule.Denied, rule.Refunded = r.kind == counter.DeniedHits, r.kind == counter.RefundedHits
		t.Rules = append(t.Rules, rule)
		t.AddKey(uint32(i), key)
		t.AddCell(0, r.total)
	}
	return &events.Alarm{Generation: generation, Version: 1, Totals: t}
}

// inform lets keys be deferred, as an answer or an alarm that tells of them does.
func inform(l *Limiter, keys ...string) {
	for _, key := range keys {
		l.core.Group.FindOrMake(noon, key).State |= counter.Informed
	}
}

// left returns how much is left of a key, without taking any.
func left(l *Limiter, now int64, key string) int64 {
	return atTime(now, l).Check(key, l.Rule().Capacity()+1).Remaining
}

// hit checks a key at cost 1 several times, and returns how often it was allowed.
func hit(l *Limiter, now int64, key string, times int) (allowed int) {
	for range times {
		if atTime(now, l).Check(key, 1).Allowed {
			allowed++
		}
	}
	return allowed
}

// ahead returns a live key's forecast, or nil.
func (l *Limiter) ahead(key string) *counter.Forecast {
	if c := l.core.Group.Lookup([]byte(key)); c != nil {
		return counter.Locked{Counter: c}.Forecast()
	}
	return nil
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

// rows reads a report: admitted or denied hits by key, and how many rows have them.
func rows(r *events.Report, denied bool) (hits map[string]uint64, n int) {
	hits = make(map[string]uint64)
	kind := counter.AdmittedHits
	if denied {
		kind = counter.DeniedHits
	}
	counter.EachTotals(r.Hits, kind, func(_ uint32, key []byte, t counter.Totals) {
		n++
		for _, v := range t.Value {
			hits[string(key)] += v
		}
	})
	return hits, n
}

// meanwhile calls f again and again from several goroutines, until the function that it returns is
// called, which waits for them.
func meanwhile(goroutines int, f func(g int)) (stop func()) {
	var over atomic.Bool
	var running sync.WaitGroup
	for g := range goroutines {
		running.Go(func() {
			for !over.Load() {
				f(g)
			}
		})
	}
	return func() { over.Store(true); running.Wait() }
}

// openIdle gives a checker that does not Run its idle cache, until the test ends.
func openIdle(t testing.TB, c *Checker, keys int) {
	t.Helper()
	must(t, c.host.Idle.Open(keys))
	t.Cleanup(c.host.Idle.Close)
}
