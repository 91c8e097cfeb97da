package endtoend

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/testing/membus"
	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// world is a fleet in virtual time: the same checker and aggregator code as in production, stepped
// by hand over an in-memory bus. Beside it runs the truth, which knows of every hit at once.
type world struct {
	plain      bool          // checkers decide by what they know alone
	quietFor   time.Duration // how long hits of quiet keys wait
	t          *testing.T
	seed       uint64
	rand       *rand.Rand
	now        int64
	bus        *membus.Bus
	store      *flakyStore
	workers    []*worker
	checkers   []*checker
	rules      *rules.Set
	revision   uint64         // of the rules
	published  [][]rules.Rule // by revision
	overtaking bool           // messages may overtake each other
	truth      map[place]*history
	admitted   int64   // hits
	asked      int64   // requests
	immortal   bool    // no worker dies
	skew       []int64 // how far each checker's own clock is ahead; nil: none
	heeds      bool    // checkers are stepped when they want to be, as Run does it
}

type worker struct {
	*aggregate.Worker
	link *membus.Worker
	next int64
}

type checker struct {
	*check.Checker
	name string
	link *membus.Checker
	next int64
	last int64 // time of the last step
	own  map[place]*history
	mind mind
}

// place is one key under one rule.
type place struct{ rule, key string }

// history is how many hits of a key there were per bucket.
type history map[int64]int64

func (h history) counts(s window.Shape, now int64) []int64 {
	counts := make([]int64, s.Live())
	for i := range counts {
		counts[i] = h[s.Bucket(now)-int64(i)]
	}
	return counts
}

// start is a time at the beginning of a minute; schedules begin somewhere after it.
var start = time.Date(2026, 11, 20, 3, 0, 0, 0, time.UTC).UnixNano()

var testRules = []rules.Rule{
	{Name: "second", Key: []string{"user"}, Limit: 20, Window: window.Shape{Length: time.Second, Buckets: 1}},
	{Name: "fixed", Key: []string{"user"}, Limit: 15, Window: window.Shape{Length: time.Second, Buckets: 1, Fixed: true}},
	{Name: "cut", Key: []string{"user"}, Limit: 30, Window: window.Shape{Length: 2 * time.Second, Buckets: 4}},
	{Name: "minute", Key: []string{"user"}, Limit: 60, Window: window.Shape{Length: time.Minute, Buckets: 60}},
}

func newWorld(t *testing.T, seed uint64, checkers, workers, shards int, faults membus.Faults) *world {
	return newWorldOf(t, seed, checkers, workers, shards, faults, testRules...)
}

func newWorldOf(t *testing.T, seed uint64, checkers, workers, shards int, faults membus.Faults, list ...rules.Rule) *world {
	w := &world{
		t: t, seed: seed, rand: rand.New(rand.NewPCG(seed, 7)),
		plain: seed%3 != 0, quietFor: time.Nanosecond,
		bus:   membus.New(membus.Options{Seed: seed, Faults: faults}),
		store: &flakyStore{Store: memstore.New()},
		truth: make(map[place]*history), published: [][]rules.Rule{list},
	}
	w.now = start + w.rand.Int64N(int64(3*time.Second))
	var err error
	if w.rules, err = rules.NewSet(list...); err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.Join(context.Background(), shards); err != nil {
		t.Fatal(err)
	}
	for range workers {
		w.workers = append(w.workers, w.newWorker())
	}
	if seed%6 == 0 {
		w.quietFor = 5 * time.Second
	}
	for i := range checkers {
		w.checkers = append(w.checkers, w.newChecker(fmt.Sprint("c", i), uint64(i+1)))
	}
	return w
}

func (w *world) newWorker() *worker {
	k := &worker{link: w.bus.Worker()}
	var err error
	k.Worker, err = aggregate.New(aggregate.Options{Store: w.store, Bus: k.link})
	if err != nil {
		w.t.Fatal(err)
	}
	k.link.Attach(func(kind events.Kind, payload []byte, reply func([]byte) error) {
		k.Receive(w.now, kind, payload, reply)
		k.next = min(k.next, w.now+int64(2*time.Millisecond))
	})
	return k
}

func (w *world) newChecker(name string, epoch uint64) *checker {
	link := w.bus.Checker(name)
	c := &checker{name: name, link: link, own: make(map[place]*history)}
	c.mind = newMind(c)
	o := check.Options{
		Rules: w.rules, Revision: w.revision, Link: spy{link, &c.mind}, Epoch: epoch, MaxIdleKeys: -1, NoForecast: w.plain, QuietFor: w.quietFor, ReportKeys: 1 + w.rand.IntN(5),
	}
	if w.plain { // for ever: in the other worlds they go down the ladder, where they decide by their share
		o.ShareAfter, o.OutageAfter = 1_000_000, 1_000_000
	}
	var err error
	c.Checker, err = check.New(o)
	if err != nil {
		w.t.Fatal(err)
	}
	i := len(w.checkers)
	w.attach(c, i)
	return c
}

// attach lets a checker hear, which goes by the clock of this number.
func (w *world) attach(c *checker, i int) {
	c.link.Attach(func(kind events.Kind, payload []byte) {
		c.mind.learn(kind, payload)
		c.Receive(w.own(i), kind, payload)
	})
}

// heed lets a checker take a step soon if it wants one.
func (w *world) heed(c *checker) {
	select {
	case <-c.Wake():
		c.next = min(c.next, max(w.now, c.last+int64(time.Millisecond)))
	default:
	}
}

// own returns the time by a checker's own clock.
func (w *world) own(i int) int64 {
	if w.skew == nil {
		return w.now
	}
	return w.now + w.skew[i]
}

// killWorker takes a worker away with everything it has in hand, and starts another.
func (w *world) killWorker(i int) {
	if w.immortal {
		return
	}
	w.workers[i].link.Attach(nil)
	w.workers[i] = w.newWorker()
}

// advance lets everything happen that is due within d.
func (w *world) advance(d time.Duration) {
	until := w.now + int64(d)
	for {
		next := until
		if t, ok := w.bus.Step(w.now); ok {
			next = min(next, t)
		}
		for _, k := range w.workers {
			if k.next <= w.now {
				k.next = k.Step(context.Background(), w.now)
			}
			next = min(next, max(k.next, w.now+1))
		}
		for i, c := range w.checkers {
			if w.heeds {
				w.heed(c)
			}
			if c.next <= w.now {
				own := w.own(i)
				c.last = w.now
				c.next = c.Step(own) - own + w.now
			}
			next = min(next, max(c.next, w.now+1))
		}
		if t, ok := w.bus.Step(w.now); ok {
			next = min(next, t)
		}
		if w.now >= until {
			return
		}
		w.now = max(min(next, until), w.now)
	}
}

// hit sends one request to a checker by one rule, and holds the answer against what this checker can
// know: all its own hits, and those of others that messages have told it of, no more and no less. If it
// also reckons with others' hits that nobody has told it of, it may deny more than that, but not allow more.
func (w *world) hit(c *checker, rule, key string, cost int64) {
	w.t.Helper()
	l, _ := c.Limiter(rule)
	at := w.now + int64(c.Stats().ClockOffset)
	shape, limit := l.Rule().Window, l.Rule().Limit
	p := place{counterOf(rule, shape), key}
	known, all := c.mind.counts(p, shape, at), recall(w.truth, p).counts(shape, at)
	for i := range known {
		if known[i] > all[i] {
			w.fail("%s was told of %d hits of %v, there were %d", c.name, known[i], p, all[i])
		}
	}
	left := shape.Remaining(known, limit, at)
	if w.rand.IntN(2) == 0 { // look first: a cost above the limit takes nothing and tells what is left
		if d := l.CheckAt(w.now, key, limit+1); d.Remaining != left {
			w.fail("%s sees %d left of %v, knows of %d", c.name, d.Remaining, p, left)
		}
	}
	d := l.CheckAt(w.now, key, cost)
	if !d.Allowed {
		if w.plain && (d.Remaining != left || cost <= left) || d.Remaining > left {
			w.fail("%s denies a cost of %d with %d left of %v: %+v", c.name, cost, left, p, d)
		}
		return
	}
	// An allowance was reckoned earlier in the bucket, when no more was left than now.
	begin := shape.End(shape.Bucket(at) - 1)
	least := shape.Remaining(known, limit, begin)
	if d.Remaining+cost > left || w.plain && d.Remaining+cost < least {
		w.fail("%s allows a cost of %d of %v with %d (%d) left: %+v", c.name, cost, p, left, least, d)
	}
	(*recall(c.own, p))[shape.Bucket(at)] += cost
	(*recall(w.truth, p))[shape.Bucket(at)] += cost
	w.admitted += cost
}

func recall(m map[place]*history, p place) *history {
	if m[p] == nil {
		m[p] = &history{}
	}
	return m[p]
}

func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("seed %d, %v in: %s", w.seed, time.Duration(w.now-start), fmt.Sprintf(format, args...))
}

// settle mends everything and lets the fleet come to rest.
func (w *world) settle() {
	w.bus.SetFaults(membus.Faults{})
	w.bus.Cut("", false)
	for _, c := range w.checkers {
		w.bus.Cut(c.name, false)
	}
	w.store.mode = storeWorks
	w.advance(10*time.Second + w.quietFor)
}

// outlast lets everything arrive that is still under way: repeats of minutes ago, mostly. They must
// change nothing any more.
func (w *world) outlast() {
	for range 30 {
		if w.bus.Pending() == 0 {
			return
		}
		w.advance(10 * time.Second)
	}
	w.fail("%d messages are still under way", w.bus.Pending())
}

// conserved holds the ledger against what was admitted.
func (w *world) conserved() {
	w.t.Helper()
	var charged, overflow, lost int64
	for _, c := range w.checkers {
		s := c.Stats()
		if n := s.Unreported(); n != 0 {
			w.fail("%s still has %d hits: %+v", c.name, n, s)
		}
		for _, r := range append(s.Rules, s.Removed) {
			charged, overflow, lost = charged+r.Charged, overflow+r.Overflow, lost+r.Lost
		}
	}
	if charged != w.admitted {
		w.fail("%d hits charged, %d admitted", charged, w.admitted)
	}
	ledger, err := w.store.Ledger(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	var stored int64
	for _, r := range ledger {
		stored += r.Counted + r.Late + r.Refused - r.Settled
	}
	if stored+overflow+lost != charged {
		w.fail("charged %d, in the ledger %d, overflow %d, lost %d: %+v", charged, stored, overflow, lost, ledger)
	}
}

// flakyStore is a store that can be out of reach, or be cut off just after it has done its work.
type flakyStore struct {
	*memstore.Store
	mode  storeMode
	clock func() time.Time // nil: the store has none
}

type storeMode uint8

const (
	storeWorks storeMode = iota
	storeDown
	storeCutOff // applies, but the caller hears nothing of it
)

var errDown = errors.New("the store is down")

func (s *flakyStore) Join(ctx context.Context, shards int) (aggregate.Fleet, error) {
	if s.mode == storeDown {
		return aggregate.Fleet{}, errDown
	}
	fleet, err := s.Store.Join(ctx, shards)
	if s.clock != nil {
		fleet.Time = s.clock()
	}
	return fleet, err
}

func (s *flakyStore) Apply(ctx context.Context, f *aggregate.Fold) (aggregate.Applied, error) {
	if s.mode == storeDown {
		return aggregate.Applied{}, errDown
	}
	applied, err := s.Store.Apply(ctx, f)
	if s.mode == storeCutOff {
		return aggregate.Applied{}, errDown
	}
	return applied, err
}

func (s *flakyStore) Lease(ctx context.Context, f *aggregate.LeaseFold) (aggregate.Leased, error) {
	if s.mode == storeDown {
		return aggregate.Leased{}, errDown
	}
	leased, err := s.Store.Lease(ctx, f)
	if s.mode == storeCutOff {
		return aggregate.Leased{}, errDown
	}
	return leased, err
}

func (w *world) ledger() aggregate.Ledger {
	w.t.Helper()
	l, err := w.store.Ledger(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	return l
}
