package endtoend

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/checktuning"
	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/membus"
	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// expect reports what was found unless it is as expected.
func expect(t *testing.T, ok bool, found string, args ...any) {
	if !ok {
		t.Helper()
		t.Errorf(found, args...)
	}
}

// require is expect for what the rest of a test needs.
func require(t *testing.T, ok bool, found string, args ...any) {
	if !ok {
		t.Helper()
		t.Fatalf(found, args...)
	}
}

var must = daemontest.Must

// world is a fleet in virtual time: the checker and aggregator code of production, stepped by hand
// over an in-memory bus. Beside it runs the truth, which knows of every hit at once.
type world struct {
	options
	t         *testing.T
	rand      *rand.Rand
	now       int64
	bus       *membus.Bus
	store     *flakyStore
	snapshot  *memstore.Snapshot
	memory    memstore.Memory // of all workers, unless they are forgetful
	workers   []*worker
	checkers  []*checker
	rules     *rules.Set
	revision  uint64         // of the rules
	published [][]rules.Rule // by revision
	truth     map[place]*history
	admitted  int64   // hits
	epochs    uint64  // of checkers that were restarted
	lives     uint64  // of workers, so many so far
	asked     int64   // requests
	agreed    int64   // how often a checker knew the truth in the end
	skew      []int64 // how far each checker's own clock is ahead; nil: none
	immortal  bool    // no worker dies
	reorders  bool    // a message can overtake one of before a change of the rules
}

// options make a world; what is zero is chosen by the seed.
type options struct {
	seed                      uint64
	checkers, workers, shards int
	faults                    membus.Faults
	rules                     []rules.Rule // testRules if nil
	prompt                    bool         // checkers are stepped as soon as they want to be, as Run does it
	plain                     bool         // checkers decide by what they know alone, without a forecast
	forgetful                 bool         // workers remember the states of shards for themselves alone
	quietFor                  time.Duration
	onApply                   func(aggregate.ApplyInfo)
	older                     older // what so many of the checkers and workers are
	oldCheckers, oldWorkers   int
}

type worker struct {
	*aggregate.Worker
	link   *membus.Worker
	next   int64
	paused int64    // until when the process stands still
	inbox  []func() // takes in what has come meanwhile
	cut    cut
}

// cut is what of a worker's messages is lost: those from it, or to it, or only those among workers.
type cut struct{ from, to, members bool }

func (c cut) loses(way bool, kind events.Kind) bool {
	return way && (!c.members || kind == events.KindMember)
}

// wakes says whether the process goes on at a time, and lets it take in what has come meanwhile.
func (k *worker) wakes(now int64) bool {
	if now < k.paused {
		return false
	}
	for _, receive := range k.inbox {
		receive()
	}
	k.inbox = nil
	return true
}

type checker struct {
	*check.Checker
	name  string
	epoch uint64
	link  *membus.Checker
	next  int64
	last  int64 // time of the last step
	own   map[place]*history
	knows knowledge
}

// start is a time at the beginning of a minute; schedules begin somewhere after it.
var start = time.Date(2026, 11, 20, 3, 0, 0, 0, time.UTC).UnixNano()

var testRules = []rules.Rule{
	counting("second", 20, window.Shape{Length: time.Second, Buckets: 1}),
	counting("fixed", 15, window.Shape{Length: time.Second, Buckets: 1, Fixed: true}),
	counting("cut", 30, window.Shape{Length: 2 * time.Second, Buckets: 4}),
	counting("minute", 60, window.Shape{Length: time.Minute, Buckets: 60}),
}

func counting(name string, limit int64, shape window.Shape) rules.Rule {
	return rules.Rule{Name: name, Key: []string{"user"}, Limit: limit, Window: shape}
}

// bucket is a rule of a token or leaky bucket, by user.
func bucket(name string, kind rules.Algorithm, limit, burst int64, per time.Duration) rules.Rule {
	return rules.Rule{
		Name: name, Key: []string{"user"}, Limit: limit, Burst: burst, Algorithm: kind, Window: window.Shape{Length: per},
	}
}

// strictly returns rules of the same limits, strictly enforced.
func strictly(list ...rules.Rule) []rules.Rule {
	strict := make([]rules.Rule, len(list))
	for i, r := range list {
		r.Enforcement = rules.Strict
		strict[i] = r
	}
	return strict
}

// wellConnected is a fleet 2 ms from its aggregators.
func wellConnected(seed uint64, checkers int, list ...rules.Rule) options {
	return options{
		seed: seed, checkers: checkers, workers: 2, shards: 1, faults: membus.Faults{Delay: 2 * time.Millisecond}, rules: list,
		prompt: true,
	}
}

func newWorld(t *testing.T, o options) *world {
	t.Helper()
	o.checkers = cmp.Or(o.checkers, 1+int(o.seed%4))
	o.workers = cmp.Or(o.workers, 1+int(o.seed/4%3))
	o.shards = cmp.Or(o.shards, 1+int(o.seed/12%3))
	if o.rules == nil {
		o.rules = testRules
	}
	o.plain = o.plain || o.seed%3 != 0
	if o.quietFor = time.Nanosecond; o.seed%6 == 0 {
		o.quietFor = 5 * time.Second
	}
	w := &world{
		options: o, t: t, rand: rand.New(rand.NewPCG(o.seed, 7)),
		bus:   membus.New(membus.Options{Seed: o.seed, Faults: o.faults}),
		truth: make(map[place]*history), published: [][]rules.Rule{o.rules},
	}
	w.store = &flakyStore{Store: memstore.New(), rand: w.rand}
	w.now = start + w.rand.Int64N(int64(3*time.Second))
	var err error
	w.rules, err = rules.NewSet(o.rules...)
	must(t, err)
	_, err = w.store.Join(context.Background(), o.shards)
	must(t, err)
	for range o.workers {
		w.workers = append(w.workers, w.newWorker())
	}
	for i := range o.checkers {
		w.checkers = append(w.checkers, w.newChecker(i, fmt.Sprint("c", i), uint64(i+1)))
	}
	return w
}

func (w *world) newWorker() *worker {
	k := &worker{link: w.bus.Worker()}
	var version older
	if len(w.workers) < w.oldWorkers {
		version = w.older
		k.link.Knows(events.FormatPlain)
	}
	var err error
	w.lives++
	o := aggregate.Options{
		Store: w.store, ID: w.lives, OnApply: w.onApply,
		Bus: olderWorker{k.link, version, k, func(member []byte) { k.Receive(w.now, events.KindMember, member, nil) }},
	}
	if !w.forgetful {
		o.Memory = &w.memory
	}
	k.Worker, err = aggregate.New(o)
	must(w.t, err)
	receive := version.serve(func(kind events.Kind, payload []byte, reply func([]byte) error) {
		k.Receive(w.now, kind, payload, reply)
		due := w.now
		if kind != events.KindMember {
			due += int64(2 * time.Millisecond)
		}
		k.next = min(k.next, due)
	})
	k.link.Attach(func(kind events.Kind, payload []byte, reply func([]byte) error) {
		late := kind == events.KindHello && w.now < k.paused // its answer would set a wrong clock
		if late || k.cut.loses(k.cut.to, kind) {
			return
		}
		if send := reply; reply != nil {
			reply = func(answer []byte) error {
				if k.cut.loses(k.cut.from, kind) {
					return nil
				}
				return send(answer)
			}
		}
		k.inbox = append(k.inbox, func() { receive(kind, payload, reply) })
		k.wakes(w.now)
	})
	return k
}

// never is longer than any test lasts in virtual time.
const never = 1000 * time.Hour

// worldKeys are those by which checkers of a world know each other's receipts.
var worldKeys = events.NewReceiptKeys()

// newChecker makes the checker of number i, which goes by the clock of this number.
func (w *world) newChecker(i int, name string, epoch uint64) *checker {
	c := &checker{name: name, epoch: epoch, link: w.bus.Checker(name), own: make(map[place]*history)}
	c.knows = newKnowledge(c)
	var version older
	if i < w.oldCheckers {
		version = w.older
	}
	o := check.Options{
		Rules: w.rules, Revision: w.revision, Link: observed{olderChecker{c.link, version}, &c.knows}, Epoch: epoch,
		MaxIdleKeys: -1, ReceiptKeys: func() events.ReceiptKeys { return worldKeys }, QuietFor: w.quietFor,
		Tuning: checktuning.Tuning{NoForecast: w.plain, ReportKeys: 1 + w.rand.IntN(5)},
		Trace:  func(uint32, uint64, int) (string, func(check.TraceEvent)) { return "00-a-trace", nil },
	}
	o.Now = func() time.Time { return time.Unix(0, w.own(i)) }
	if w.plain { // never: in the other worlds an outage makes them decide by their share
		o.ShareAfter, o.OutageAfter = never, never
	}
	var err error
	c.Checker, err = check.New(o)
	must(w.t, err)
	c.link.Attach(func(kind events.Kind, payload []byte) {
		if version.lacks != nil && kind == events.KindAlarm && events.PeekFormat(payload) > events.FormatPlain {
			return // an older version has not subscribed to it
		}
		payload = version.of(kind, payload)
		c.knows.learn(kind, payload)
		c.Receive(kind, payload)
	})
	return c
}

// wake lets a checker of a prompt fleet take a step soon if it wants one.
func (w *world) wake(c *checker) {
	if !w.prompt {
		return
	}
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

// skewClocks puts every checker's clock up to d off.
func (w *world) skewClocks(d time.Duration) {
	w.skew = make([]int64, len(w.checkers))
	for i := range w.skew {
		w.skew[i] = w.rand.Int64N(2*int64(d)) - int64(d)
	}
}

// killWorker takes a worker away with everything it has in hand, and starts another.
func (w *world) killWorker(i int) {
	if !w.immortal {
		w.workers[i].link.Attach(nil)
		w.workers[i] = w.newWorker()
	}
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
			if k.wakes(w.now) && k.next <= w.now {
				k.next = k.Step(context.Background(), w.now)
			}
			next = min(next, max(k.next, k.paused, w.now+1))
		}
		for i, c := range w.checkers {
			w.wake(c)
			if c.next <= w.now {
				own := w.own(i)
				c.last = w.now
				c.next = c.Step().UnixNano() - own + w.now
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

// meet lets every checker hear how many there are: aggregators listen for 2.5 s before they say so,
// and checkers ask every 2 s.
func (w *world) meet() { w.advance(5 * time.Second) }

// pass lets a random time pass, shorter than d.
func (w *world) pass(d time.Duration) { w.advance(time.Duration(w.rand.Int64N(int64(d)))) }

// hit sends one request to a checker by one rule, and holds the answer against what this checker
// can know: all its own hits, and those of others in the messages that it got, no more and no less.
// If it also forecasts others' hits, or keeps to its share, it may deny more than that, but not
// allow more.
func (w *world) hit(c *checker, rule, key string, cost int64) bool {
	w.t.Helper()
	l, _ := c.Limiter(rule)
	at := w.now + int64(c.Stats().ClockOffset)
	shape, limit := l.Rule().Window, l.Rule().Limit
	p := place{counterOf(rule, shape), key}
	known, all := c.knows.counts(p, shape, at), recall(w.truth, p).counts(shape, at)
	for i := range known {
		w.require(known[i] <= all[i], "%s was told of %d hits of %v, there were %d", c.name, known[i], p, all[i])
	}
	left := shape.Remaining(known, limit, at)
	if w.rand.IntN(2) == 0 { // look first: a cost above the limit takes nothing and tells what is left
		d := l.Check(key, limit+1)
		alone := d.Freshness >= check.LocalShare && d.Remaining < left
		w.require(d.Remaining == left || alone, "%s sees %d left of %v, knows of %d", c.name, d.Remaining, p, left)
	}
	d := l.Check(key, cost)
	if !d.Allowed {
		w.require((!w.plain || d.Remaining == left && cost > left) && d.Remaining <= left,
			"%s denies a cost of %d with %d left of %v: %+v", c.name, cost, left, p, d)
		return false
	}
	// An allowance was computed earlier in the bucket, when no more was left than now.
	begin := shape.End(shape.Bucket(at) - 1)
	least := shape.Remaining(known, limit, begin)
	w.require(d.Remaining+cost <= left && (!w.plain || d.Remaining+cost >= least),
		"%s allows a cost of %d of %v with %d (%d) left: %+v", c.name, cost, p, left, least, d)
	(*recall(c.own, p))[shape.Bucket(at)] += cost
	(*recall(w.truth, p))[shape.Bucket(at)] += cost
	w.admitted += cost
	return true
}

func recall(m map[place]*history, p place) *history {
	if m[p] == nil {
		m[p] = &history{}
	}
	return m[p]
}

// left returns how many hits a checker would still let pass.
func (w *world) left(c *checker, rule, key string) int64 {
	l, _ := c.Limiter(rule)
	return l.Check(key, l.Rule().Capacity()+1).Remaining
}

// require fails the test unless it is ok.
func (w *world) require(ok bool, format string, args ...any) {
	if !ok {
		w.t.Helper()
		w.fail(format, args...)
	}
}

func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("seed %d, %v in: %s", w.seed, time.Duration(w.now-start), fmt.Sprintf(format, args...))
}

// mend ends all faults and lets the fleet come to rest.
func (w *world) mend() {
	w.bus.SetFaults(membus.Faults{})
	w.connect()
	w.connectWorkers()
	w.store.mode, w.store.dead = storeWorks, nil
	w.store.finish(len(w.store.late))
	w.advance(10*time.Second + w.quietFor)
}

// connect puts every checker back on the network.
func (w *world) connect() {
	w.bus.Cut("", false)
	for _, c := range w.checkers {
		w.bus.Cut(c.name, false)
	}
}

// connectWorkers does so with every worker.
func (w *world) connectWorkers() {
	for _, k := range w.workers {
		k.cut = cut{}
	}
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

func (w *world) ledger() storage.Ledger {
	w.t.Helper()
	l, err := w.store.Ledger(context.Background())
	must(w.t, err)
	return l
}

// conserved holds the ledger against what was admitted, and against what was charged to each
// counter.
func (w *world) conserved() {
	w.t.Helper()
	charged := w.conservedByName()
	w.require(charged == w.admitted, "%d hits charged, %d admitted", charged, w.admitted)
}

// conservedByName holds each counter of the ledger against what was charged to it, and returns the
// sum.
func (w *world) conservedByName() (charged int64) {
	w.t.Helper()
	byName, delivered, stored := make(map[string]int64), int64(0), int64(0)
	removed := false
	for _, c := range w.checkers {
		s := c.Stats()
		n := s.Unreported()
		w.require(n == 0, "%s still has %d hits: %+v", c.name, n, s)
		removed = removed || s.Removed.Charged > 0
		for _, r := range append(s.Rules, s.Removed) {
			charged += r.Charged
			delivered += r.Charged - r.Overflow - r.Lost
			byName[r.Rule] += r.Charged - r.Overflow - r.Lost
		}
	}
	ledger := w.ledger()
	for name, r := range ledger {
		n := r.Counted + r.Late + r.Refused - r.Settled
		stored += n
		w.require(removed || n == byName[name], "%s: %d hits charged, the ledger has %+v", name, byName[name], r)
	}
	w.require(stored == delivered, "%d hits charged, the ledger has %d: %+v", delivered, stored, ledger)
	return charged
}
