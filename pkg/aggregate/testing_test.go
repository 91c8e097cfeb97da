package aggregate_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/events"
)

const (
	ms     = int64(time.Millisecond)
	second = int64(time.Second)
	start  = 1_800_000_000 * second
)

// silent is a bus that brings nothing but what the worker itself tells, and keeps the alarms,
// unless it fails to send them, or to subscribe.
type silent struct {
	fails, unattended error
	hear              func(member []byte) // nil: nothing comes back

	mu              sync.Mutex
	alarms          []*events.Alarm
	attended, owned []bool
	attends, tells  int // calls
}

func (b *silent) Attend(attended, owned []bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.attends++
	if b.unattended == nil {
		b.attended, b.owned = attended, owned
	}
	return b.unattended
}

func (b *silent) wantAttended(t testing.TB, why string, want ...bool) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Equal(b.attended, want) {
		t.Errorf("%s: attends to %v, want %v", why, b.attended, want)
	}
}

func (b *silent) Tell(member []byte) error {
	b.tells++
	if b.hear != nil {
		b.hear(member)
	}
	return nil
}

func (b *silent) Serve(ctx context.Context, _ func(events.Kind, []byte, func([]byte) error)) error {
	<-ctx.Done()
	return nil
}

func (b *silent) Alarm(shard uint32, data []byte) error {
	m, err := events.DecodeAlarm(data)
	if err != nil || b.fails != nil {
		return errors.Join(err, b.fails)
	}
	if m.GetShard() != shard {
		return fmt.Errorf("alarm of shard %d sent to %d", m.GetShard(), shard)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.alarms = append(b.alarms, m)
	return nil
}

// inbox keeps answers of one kind.
type inbox[M any] struct {
	t      testing.TB
	decode func([]byte) (M, error)

	mu   sync.Mutex
	list []M
}

func (b *inbox[M]) reply(data []byte) error {
	m, err := b.decode(data)
	if err != nil {
		b.t.Errorf("answer: %v", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.list = append(b.list, m)
	return err
}

// take returns the answers since the last time.
func (b *inbox[M]) take() []M {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := b.list
	b.list = nil
	return list
}

// only returns the only answer since the last time.
func (b *inbox[M]) only() M {
	b.t.Helper()
	list := b.take()
	if len(list) != 1 {
		b.t.Fatalf("%d answers to one message", len(list))
	}
	return list[0]
}

// answers are all that a worker answered.
type answers struct {
	refreshes inbox[*events.Refresh]
	grants    inbox[*events.Grant]
	welcomes  inbox[*events.Welcome]
}

func newAnswers(t testing.TB) *answers {
	return &answers{
		refreshes: inbox[*events.Refresh]{t: t, decode: events.DecodeRefresh},
		grants:    inbox[*events.Grant]{t: t, decode: events.DecodeGrant},
		welcomes:  inbox[*events.Welcome]{t: t, decode: events.DecodeWelcome},
	}
}

// reply is what answers to a message of a kind go to.
func (a *answers) reply(kind events.Kind) func([]byte) error {
	switch kind {
	case events.KindHello:
		return a.welcomes.reply
	case events.KindLease:
		return a.grants.reply
	}
	return a.refreshes.reply
}

// kindOf is the kind of a message to a worker.
func kindOf(m events.Message) events.Kind {
	switch m.(type) {
	case *events.Hello:
		return events.KindHello
	case *events.LeaseRequest:
		return events.KindLease
	}
	return events.KindReport
}

// fixture is a worker under test, with what it answered.
type fixture struct {
	*answers
	t      testing.TB
	worker *aggregate.Worker
	bus    *silent
	log    *bytes.Buffer
	next   int64 // what the first step returned
	now    int64 // of the last step
}

// newFixture makes a worker, and lets it join the store at start.
func newFixture(t testing.TB, store storage.Store, change ...func(*aggregate.Options)) *fixture {
	t.Helper()
	d := coldFixture(t, store, change...)
	d.next = d.step(start)
	return d
}

// coldFixture makes a worker that has done nothing yet.
func coldFixture(t testing.TB, store storage.Store, change ...func(*aggregate.Options)) *fixture {
	t.Helper()
	d := &fixture{answers: newAnswers(t), t: t, bus: new(silent), log: new(bytes.Buffer)}
	d.worker = newWorker(t, aggregate.Options{Store: store, Bus: d.bus, Log: logTo(d.log)}, change)
	d.bus.hear = d.hear
	return d
}

// hear brings the worker what it has told itself.
func (d *fixture) hear(said []byte) { d.worker.Receive(d.now, events.KindMember, said, nil) }

func logTo(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

func newWorker(t testing.TB, o aggregate.Options, change []func(*aggregate.Options)) *aggregate.Worker {
	t.Helper()
	for _, c := range change {
		c(&o)
	}
	w, err := aggregate.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (d *fixture) step(now int64) int64 {
	d.now = now
	return d.worker.Step(d.t.Context(), now)
}

// pass lets time pass, with a step every 50 ms.
func (d *fixture) pass(until int64) {
	d.now = max(d.now, start)
	for d.now < until {
		d.step(min(d.now+50*ms, until))
	}
}

func (d *fixture) send(now int64, m events.Message) {
	d.t.Helper()
	d.worker.Receive(now, kindOf(m), encode(d.t, m), d.reply(kindOf(m)))
}

// exchange sends one report, lets it be merged, and returns its answer.
func (d *fixture) exchange(now int64, m *events.Report) *events.Refresh {
	d.t.Helper()
	d.refreshes.take()
	d.send(now, m)
	d.step(now + 2*ms)
	return d.refreshes.only()
}

func encode(t testing.TB, m events.Message) []byte {
	t.Helper()
	data, err := events.Append(nil, m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// perSecond is a rule of 10 per second at start, in two counters; perMinute one of 100, in 60.
func perSecond(now int64) *events.Rule {
	return &events.Rule{Name: "per-second", Revision: 1, WindowMs: 1000, Buckets: 1, Limit: 10, Newest: now / second}
}

func perMinute(now int64) *events.Rule {
	return &events.Rule{Name: "per-minute", Revision: 1, WindowMs: 60_000, Buckets: 60, Limit: 100, Newest: now / second}
}

// own is some hits of one key: count in the bucket that is age older than the rule's newest.
type own struct {
	key   string
	age   int64
	count uint64
}

// report makes a report of one rule for a fleet of one shard.
func report(epoch, sequence uint64, rule *events.Rule, hits ...own) *events.Report {
	m := &events.Report{Epoch: epoch, Shards: 1, Sequence: sequence, Hits: new(events.Table)}
	addHits(m, rule, hits...)
	return m
}

// addHits adds one more rule and its hits to a report.
func addHits(m *events.Report, rule *events.Rule, hits ...own) {
	number := uint32(len(m.Hits.Rules))
	m.Hits.Rules = append(m.Hits.Rules, rule)
	for i, h := range hits {
		if i == 0 || hits[i-1].key != h.key {
			m.Hits.AddKey(number, h.key)
		}
		m.Hits.AddCell(h.age, h.count)
	}
}

// totals are what a refresh says of its keys, one after the other: age:total.
func totals(m *events.Refresh) string {
	if m.GetError() != "" {
		return "error: " + m.GetError()
	}
	text, at := "", 0
	for i, n := range m.GetKeyCells() {
		if i > 0 {
			text += " | "
		}
		var cells []string
		for range n {
			cells = append(cells, fmt.Sprintf("%d:%d", m.Age[at], m.Total[at]))
			at++
		}
		slices.Reverse(cells) // newest first
		text += strings.Join(cells, " ")
	}
	if m.GetRepeated() {
		text += " (repeated)"
	}
	return text
}

// want compares what a message says, as text.
func (d *fixture) want(why, got, want string) {
	d.t.Helper()
	if got != want {
		d.t.Errorf("%s: got %q, want %q", why, got, want)
	}
}

// wantAlarms checks the alarms since the last time.
func (d *fixture) wantAlarms(why string, want ...string) []*events.Alarm {
	d.t.Helper()
	var got []string
	alarms := d.bus.alarms
	for _, m := range alarms {
		got = append(got, alarmText(m))
	}
	d.bus.alarms = nil
	if !slices.Equal(got, want) {
		d.t.Fatalf("%s: alarms %q, want %q", why, got, want)
	}
	return alarms
}

// alarmText is what an alarm says: rule key age:total ..., in order.
func alarmText(m *events.Alarm) string {
	var keys []string
	t, text, at := m.GetTotals(), string(m.GetTotals().GetKeyText()), 0
	for i, n := range t.GetKeyLength() {
		s := t.Rules[t.KeyRule[i]].GetName() + " " + text[:n]
		text = text[n:]
		for range t.KeyCells[i] {
			s += fmt.Sprintf(" %d:%d", t.Age[at], t.Value[at])
			at++
		}
		keys = append(keys, s)
	}
	return strings.Join(keys, ", ")
}

// levels are what a message says of its keys' levels: how old the bucket, and how many parts of a
// hit.
func levels(m interface {
	GetLevelAge() []int64
	GetLevel() []uint64
}) string {
	var all []string
	for i, parts := range m.GetLevel() {
		all = append(all, fmt.Sprintf("%d:%d", m.GetLevelAge()[i], parts))
	}
	return strings.Join(all, " ")
}

func wantLedger(t testing.TB, why string, s *memstore.Store, rule string, want storage.RuleLedger) {
	t.Helper()
	l, err := s.Ledger(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := l[rule]; got != want {
		t.Errorf("%s: ledger %+v, want %+v", why, got, want)
	}
}
