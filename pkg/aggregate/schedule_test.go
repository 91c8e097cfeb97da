package aggregate_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/events"
)

// sender is the least that a checker must be: one report in flight, sent again until it is
// answered.
type sender struct {
	epoch, sequence uint64
	report          *events.Report // in flight
	nextTry         int64
}

// delivery is what happens when a message arrives.
type delivery struct {
	due    int64
	arrive func()
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
	way      []delivery
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
	for range 1 + random.IntN(3) {
		store := &faulty{Store: s.store, hook: s.fail}
		s.workers = append(s.workers, newFixture(t, store, func(o *aggregate.Options) { o.BatchKeys = 1 + random.IntN(20) }))
	}
	for i := range 1 + random.IntN(5) {
		s.senders = append(s.senders, &sender{epoch: uint64(i) + 1})
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
		for _, c := range s.senders {
			s.send(c)
		}
		s.work()
	}
	s.failures = 0
	for _, c := range s.senders {
		if c.report != nil { // nobody knows whether it was counted: ask until it is
			s.workers[0].send(s.now, c.report)
			s.now += 2 * ms
			s.workers[0].step(s.now)
			for _, m := range s.workers[0].refreshes.take() { // there may be others that had waited
				s.hear(m)
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
	m, w := c.report, s.workers[s.random.IntN(len(s.workers))]
	s.post(func() { w.send(s.now, m) })
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

// post loses a message, or delivers it once or twice, some far too late.
func (s *schedule) post(arrive func()) {
	for range s.random.IntN(3) {
		delay := 10 * ms
		if s.random.IntN(10) == 0 {
			delay = 2 * second
		}
		s.way = append(s.way, delivery{s.now + s.random.Int64N(delay), arrive})
	}
}

// work delivers what is due, and lets the workers take steps.
func (s *schedule) work() {
	var due []delivery
	s.way = slices.DeleteFunc(s.way, func(m delivery) bool {
		if m.due <= s.now {
			due = append(due, m)
		}
		return m.due <= s.now
	})
	s.random.Shuffle(len(due), func(i, j int) { due[i], due[j] = due[j], due[i] })
	for _, m := range due {
		m.arrive()
	}
	for _, w := range s.workers {
		if s.random.IntN(3) > 0 {
			w.step(s.now)
		}
		for _, m := range w.refreshes.take() {
			s.post(func() { s.hear(m) })
		}
	}
}

// hear takes in an answer; only that to the report in flight means anything. Its hits are counted
// now, and the totals that are still live are no less than its own.
func (s *schedule) hear(m *events.Refresh) {
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
