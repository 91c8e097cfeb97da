package aggregate_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/events"
)

// sender is the least that a checker must be: one report in flight, sent again until it is answered.
type sender struct {
	epoch, sequence uint64
	report          *events.Report // in flight
	nextTry         int64
}

// delivery is a message under way: to a worker, or back to a sender.
type delivery struct {
	due    int64
	worker int
	report *events.Report
	answer *events.Refresh
}

// schedule is one random run: senders, workers that share a store, and a network that loses, doubles,
// delays and reorders.
type schedule struct {
	t        *testing.T
	random   *rand.Rand
	now      int64
	store    *memstore.Store
	failures float64 // which share of folds fails, before or after
	workers  []*fixture
	senders  []*sender
	way      []delivery
	sent     int64 // hits, which have to be in the ledger in the end
	answered int
}

var errMoody = errors.New("not now")

// fail makes a store fail sometimes, before or after the work is done.
func (s *schedule) fail(_ *aggregate.Fold, do func() (aggregate.Applied, error)) (aggregate.Applied, error) {
	if s.random.Float64() < s.failures {
		return aggregate.Applied{}, errMoody
	}
	applied, err := do()
	if err == nil && s.random.Float64() < s.failures {
		return aggregate.Applied{}, errMoody
	}
	return applied, err
}

// TestEveryReportIsCountedOnce runs many random schedules: whatever the network and the store do,
// the ledger is what was sent, and no answer ever leaves out its report's own hits.
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
	s := &schedule{t: t, random: random, now: start, store: memstore.New()}
	s.failures = random.Float64() / 4
	for range 1 + random.IntN(3) {
		d := newFixture(t, &faulty{Store: s.store, hook: s.fail}, func(o *aggregate.Options) { o.FoldKeys = 1 + random.IntN(20) })
		s.workers = append(s.workers, d)
	}
	for i := range 1 + random.IntN(5) {
		s.senders = append(s.senders, &sender{epoch: uint64(i) + 1})
	}
	return s
}

func (s *schedule) run() {
	const reports = 30
	for s.answered < reports {
		s.now += s.random.Int64N(5 * ms)
		if s.random.IntN(200) == 0 {
			s.now += 3 * second // buckets go
		}
		for _, sender := range s.senders {
			s.send(sender)
		}
		s.deliver()
		for i, w := range s.workers {
			if s.random.IntN(3) > 0 {
				w.step(s.now)
			}
			s.collect(i)
		}
	}
	for _, sender := range s.senders {
		if sender.report != nil { // nobody knows whether it was counted: ask until it is
			s.finish(sender)
		}
	}
	all, err := s.store.Ledger(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	l := all["per-second"]
	if got := l.Counted + l.Late + l.Refused; got != s.sent {
		s.t.Errorf("ledger: got %d (%+v), want %d", got, l, s.sent)
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
	for range s.random.IntN(3) { // lost, once, twice
		s.way = append(s.way, delivery{due: s.delay(), worker: s.random.IntN(len(s.workers)), report: c.report})
	}
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

func (s *schedule) delay() int64 {
	if s.random.IntN(10) == 0 {
		return s.now + s.random.Int64N(2*second) // far too late
	}
	return s.now + s.random.Int64N(10*ms)
}

func (s *schedule) deliver() {
	slices.SortStableFunc(s.way, func(a, b delivery) int { return cmp.Compare(a.due, b.due) })
	for len(s.way) > 0 && s.way[0].due <= s.now {
		m := s.way[0]
		s.way = s.way[1:]
		if m.answer != nil {
			s.hear(m.answer)
			continue
		}
		s.workers[m.worker].send(s.now, m.report)
	}
}

// collect puts a worker's answers on their way.
func (s *schedule) collect(worker int) {
	for _, m := range s.workers[worker].take() {
		for range s.random.IntN(3) {
			s.way = append(s.way, delivery{due: s.delay(), answer: m})
		}
	}
}

// hear takes in an answer; only that to the report in flight means anything.
func (s *schedule) hear(m *events.Refresh) {
	for _, c := range s.senders {
		if c.epoch == m.GetEpoch() && c.report != nil && c.sequence == m.GetSequence() {
			s.settle(c, m)
		}
	}
}

// settle books a sender's answered report: its hits are counted now, and the totals that are still
// live are no less than its own.
func (s *schedule) settle(c *sender, m *events.Refresh) {
	if m.GetError() != "" {
		s.t.Fatalf("refused: %s", m.GetError())
	}
	for _, n := range c.report.GetHits().GetValue() {
		s.sent += int64(n)
	}
	totals := make(map[[2]int64]uint64)
	at := 0
	for key, cells := range m.GetKeyCells() {
		for range cells {
			totals[[2]int64{int64(key), m.Age[at]}] = m.Total[at]
			at++
		}
	}
	at = 0
	bucket := s.now / second
	for key, cells := range c.report.GetHits().GetKeyCells() {
		own := make(map[int64]uint64)
		for range cells {
			own[c.report.Hits.Age[at]] += c.report.Hits.Value[at]
			at++
		}
		for age, n := range own {
			live := c.report.GetHits().GetRules()[0].GetNewest()-age >= bucket-1
			if live && totals[[2]int64{int64(key), age}] < n {
				s.t.Errorf("own hits are missing in the answer: %d of %d", totals[[2]int64{int64(key), age}], n)
			}
		}
	}
	c.report = nil
	s.answered++
}

// finish sends the report in flight until it is answered, by a good network and store.
func (s *schedule) finish(c *sender) {
	s.failures = 0
	w := s.workers[0]
	w.send(s.now, c.report)
	s.now += 2 * ms
	w.step(s.now)
	for _, m := range w.take() { // there may be others that had waited
		s.hear(m)
	}
	if c.report != nil {
		s.t.Error("no answer by a good store")
	}
}
