package check

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/rules"
)

// echo is a Link to an aggregator that answers every report with its own hits as totals, at the
// next delivery, unless it is down.
type echo struct {
	down    bool
	answers []echoed
}

type echoed struct {
	kind    events.Kind
	payload []byte
}

func (e *echo) Report(_ uint32, _ bool, report []byte) error {
	m, err := events.DecodeReport(report)
	if err != nil || e.down {
		return err
	}
	return e.answer(events.KindRefresh, answerTo(m))
}

func (e *echo) Lease(uint32, bool, []byte) error { return nil }

func (e *echo) Hello(hello []byte) error {
	m, err := events.DecodeHello(hello)
	if err != nil || e.down {
		return err
	}
	return e.answer(events.KindWelcome, &events.Welcome{
		Epoch: m.Epoch, Sent: m.Sent, Shards: 2, Time: m.Sent, Checkers: 1,
	})
}

func (e *echo) answer(kind events.Kind, m events.Message) error {
	payload, err := events.Append(nil, m)
	e.answers = append(e.answers, echoed{kind, payload})
	return err
}

func (e *echo) Listen(ctx context.Context, _ func(events.Kind, []byte)) error {
	<-ctx.Done()
	return nil
}

// step lets the checker take a step, and answers what it has sent.
func (e *echo) step(c *Checker, now int64) {
	atTime(now, c).Step()
	answers := e.answers
	e.answers = nil
	for _, a := range answers {
		atTime(now, c).Receive(a.kind, a.payload)
	}
}

// store is a Link to an aggregator that keeps totals, of hits here and elsewhere, and answers on
// demand.
type store struct {
	echo
	mu              sync.Mutex
	totals          map[storeKey]uint64
	own, ownDenied  uint64 // hits of all reports
	late            uint64
	sequence, alarm uint64
	waiting         []*events.Report
}

type storeKey struct {
	rule, key string
	bucket    int64
	denied    bool
}

// newStore is a checker in a fleet of four, on a store.
func newStore(t testing.TB, o Options, list ...rules.Rule) (*store, *Checker) {
	t.Helper()
	return newStoreOf(t, o, setOf(t, list...))
}

func newStoreOf(t testing.TB, o Options, set *rules.Set) (*store, *Checker) {
	t.Helper()
	s := &store{totals: make(map[storeKey]uint64)}
	o.Link, o.HelloEvery, o.Rules, o.Now = s, time.Hour, set, testNow
	setDefault(&o.Epoch, testEpoch)
	c, err := New(o)
	must(t, err)
	atTime(noon, c).Step()
	atTime(noon, c).Receive(events.KindWelcome, encode(t, &events.Welcome{Epoch: c.o.Epoch, Sent: noon, Shards: 1, Time: noon, Checkers: 4}))
	return s, c
}

func (s *store) Report(_ uint32, _ bool, report []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, err := events.DecodeReport(report)
	if err != nil {
		return err
	}
	if m.Sequence > s.sequence { // else it has been counted
		s.sequence = m.Sequence
		s.count(m)
	}
	s.waiting = append(s.waiting, m)
	return nil
}

func (s *store) count(m *events.Report) {
	for _, kind := range [...]int{counter.AdmittedHits, counter.DeniedHits} {
		denied := kind == counter.DeniedHits
		counter.EachTotals(m.Hits, kind, func(rule uint32, key []byte, t counter.Totals) {
			for i, v := range t.Value {
				s.totals[storeKey{m.Hits.Rules[rule].Name, string(key), t.Newest - t.Age[i], denied}] += v
				if denied {
					s.ownDenied += v
				} else {
					s.own += v
				}
			}
		})
	}
	for _, n := range m.Late {
		s.late += n
	}
}

// deliver answers the reports that have come, each by the totals of its keys' newest two buckets.
func (s *store) deliver(t testing.TB, c *Checker, now int64) {
	for _, payload := range s.answers(t) {
		atTime(now, c).Receive(events.KindRefresh, payload)
	}
}

func (s *store) answers(t testing.TB) (payloads [][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.waiting {
		a := &events.Refresh{Epoch: m.Epoch, Shard: m.Shard, Sequence: m.Sequence, Generation: 1, Version: m.Sequence}
		text := m.Hits.KeyText
		for i, n := range m.Hits.KeyLength {
			r := m.Hits.Rules[m.Hits.KeyRule[i]]
			for age := range int64(2) {
				a.Age = append(a.Age, age)
				a.Total = append(a.Total, s.totals[storeKey{r.Name, string(text[:n]), r.Newest - age, r.Denied}])
			}
			a.KeyCells = append(a.KeyCells, 2)
			text = text[n:]
		}
		payloads = append(payloads, encode(t, a))
	}
	s.waiting = nil
	return payloads
}

// elsewhere lets other checkers admit and deny hits, and announces it by an alarm.
func (s *store) elsewhere(t testing.TB, l *Limiter, key string, now int64, admitted, denied uint64) {
	s.mu.Lock()
	rule := l.core.Group.Wire(now)
	let, not := storeKey{rule.Name, key, rule.Newest, false}, storeKey{rule.Name, key, rule.Newest, true}
	s.totals[let] += admitted
	s.totals[not] += denied
	s.alarm++
	a := alarmOf(&l.core.Group, now, 1, key, keyTotal{counter.DeniedHits, s.totals[not]}, keyTotal{counter.AdmittedHits, s.totals[let]})
	a.Version, a.Made = s.alarm, now
	payload := encode(t, a)
	s.mu.Unlock() // what the checker sends at once would wait for it
	atTime(now, l.checker()).Receive(events.KindAlarm, payload)
}

// settled reports and answers until nothing is in flight.
func (s *store) settled(t testing.TB, c *Checker, now int64) {
	for range 4 {
		now += 50 * ms
		c.reporter.Step(now, true)
		s.deliver(t, c, now)
	}
}

// answerTo counts a report whose keys nobody else has hit.
func answerTo(m *events.Report) *events.Refresh {
	return &events.Refresh{
		Epoch: m.Epoch, Shard: m.Shard, Sequence: m.Sequence, Generation: 1, Version: m.Sequence,
		KeyCells: m.Hits.KeyCells, Age: m.Hits.Age, Total: m.Hits.Value,
	}
}

func refusalOf(m *events.Report) *events.Refresh {
	return &events.Refresh{Epoch: m.Epoch, Shard: m.Shard, Sequence: m.Sequence, Error: "no"}
}
