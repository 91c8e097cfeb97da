package aggregate_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/testing/membus"
	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/events"
)

// sender is the least that a checker must be: one report in flight, sent again until it is
// answered.
type sender struct {
	epoch, sequence uint64
	link            *membus.Checker
	report          *events.Report // in flight
	nextTry         int64
}

// schedule is one random run: senders, workers that share a store, and a network that loses,
// doubles, delays and reorders.
type schedule struct {
	t        *testing.T
	random   *rand.Rand
	now      int64
	store    *memstore.Store
	failures float64 // which share of batches fails, before or after
	workers  []*fixture
	senders  []*sender
	bus      *membus.Bus
	sent     int64 // hits, which have to be in the ledger in the end
	answered int
}

// Whatever the network and the store do, the ledger is what was sent, and no answer ever leaves out
// its report's own hits.
func TestEveryReportIsCountedOnce(t *testing.T) {
	schedules := 1000
	if testing.Short() {
		schedules = 100
	}
	for seed := range schedules {
		newSchedule(t, uint64(seed)).run()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func newSchedule(t *testing.T, seed uint64) *schedule {
	random := rand.New(rand.NewPCG(seed, 0))
	s := &schedule{t: t, random: random, now: start, store: memstore.New(), failures: random.Float64() / 4}
	s.bus = membus.New(membus.Options{Seed: seed})
	for range 1 + random.IntN(3) {
		store := &faulty{Store: s.store, hook: s.fail}
		w := newFixture(t, store, func(o *aggregate.Options) { o.BatchKeys = 1 + random.IntN(20) })
		s.workers = append(s.workers, w)
		s.bus.Worker().Attach(func(kind events.Kind, data []byte, reply func([]byte) error) {
			w.worker.Receive(s.now, kind, data, reply)
		})
	}
	for i := range 1 + random.IntN(5) {
		c := &sender{epoch: uint64(i) + 1, link: s.bus.Checker(fmt.Sprint(i))}
		s.senders = append(s.senders, c)
		c.link.Attach(func(_ events.Kind, data []byte) {
			m, err := events.DecodeRefresh(data)
			if err != nil {
				t.Fatal(err)
			}
			s.observe(m)
		})
	}
	return s
}

// fail makes a store fail sometimes, before or after the work is done.
func (s *schedule) fail(_ *storage.Batch, do func() (storage.Applied, error)) (storage.Applied, error) {
	if s.random.Float64() < s.failures {
		return storage.Applied{}, errors.New("before")
	}
	applied, err := do()
	if s.random.Float64() < s.failures {
		return storage.Applied{}, errors.New("after")
	}
	return applied, err
}

func (s *schedule) run() {
	for s.answered < 30 {
		s.now += s.random.Int64N(5 * ms)
		if s.random.IntN(200) == 0 {
			s.now += 3 * second // buckets go
		}
		f := membus.Faults{Lose: 1. / 3, Repeat: 0.5, RepeatWithin: 10 * time.Millisecond, Jitter: 10 * time.Millisecond}
		if s.random.IntN(10) == 0 { // far too late
			f.RepeatWithin, f.Jitter = 2*time.Second, 2*time.Second
		}
		s.bus.SetFaults(f)
		for _, c := range s.senders {
			s.send(c)
		}
		s.bus.Step(s.now)
		for _, w := range s.workers {
			if s.random.IntN(3) > 0 {
				w.step(s.now)
			}
		}
	}
	s.failures = 0
	for _, c := range s.senders {
		if c.report != nil { // nobody knows whether it was counted: ask until it is
			s.workers[0].send(s.now, c.report)
			s.now += 2 * ms
			s.workers[0].step(s.now)
			for _, m := range s.workers[0].refreshes.take() { // there may be others that had waited
				s.observe(m)
			}
		}
		if c.report != nil {
			s.t.Error("no answer by a good store")
		}
	}
	all, err := s.store.Ledger(s.t.Context())
	l := all["per-second"]
	if got := l.Counted + l.Late + l.Refused; err != nil || got != s.sent {
		s.t.Errorf("ledger: got %d (%+v), %v, want %d", got, l, err, s.sent)
	}
}

// send sends a new report, or the old one again if it is time.
func (s *schedule) send(c *sender) {
	if c.report == nil {
		c.sequence++
		c.report = report(c.epoch, c.sequence, perSecond(s.now), s.hits()...)
		c.nextTry = s.now
	}
	if s.now < c.nextTry {
		return
	}
	c.nextTry = s.now + 10*ms + s.random.Int64N(40*ms)
	_ = c.link.Report(0, false, encode(s.t, c.report))
}

// hits are hits of now and, some, of earlier and too much later.
func (s *schedule) hits() []own {
	var hits []own
	for i := range s.random.IntN(4) {
		key := fmt.Sprint("key-", i*3+s.random.IntN(3))
		for range 1 + s.random.IntN(2) {
			hits = append(hits, own{key, s.random.Int64N(4) - 1, uint64(s.random.IntN(3))})
		}
	}
	return hits
}

// observe takes in an answer; only one to the report in flight counts. Its hits are counted
// now, and the totals that are still live are no less than its own.
func (s *schedule) observe(m *events.Refresh) {
	c := s.senders[m.GetEpoch()-1]
	if c.report == nil || c.sequence != m.GetSequence() {
		return
	}
	if m.GetError() != "" {
		s.t.Fatalf("refused: %s", m.GetError())
	}
	hits := c.report.GetHits()
	oldest := hits.GetRules()[0].GetNewest() - s.now/second + 1 // the age of the last bucket that is live
	totals := byCell(m.GetKeyCells(), m.Age, m.Total)
	for cell, n := range byCell(hits.GetKeyCells(), hits.Age, hits.Value) {
		if s.sent += int64(n); cell.age <= oldest && totals[cell] < n {
			s.t.Errorf("own hits are missing in the answer: %d of %d", totals[cell], n)
		}
	}
	c.report = nil
	s.answered++
}

type cell struct {
	key int
	age int64
}

// byCell sums up the columns of a table.
func byCell(keyCells []uint32, age []int64, value []uint64) map[cell]uint64 {
	sums := make(map[cell]uint64)
	at := 0
	for key, cells := range keyCells {
		for range cells {
			sums[cell{key, age[at]}] += value[at]
			at++
		}
	}
	return sums
}
