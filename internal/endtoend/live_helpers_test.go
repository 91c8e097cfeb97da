package endtoend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath/internal/testing/servers"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/redisstore"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/events/natsbus"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// backend is the Redis of a fleet: one server, or the masters of a cluster. Fleets share it, each
// in a namespace of its own.
type backend struct {
	url    string
	nodes  []*servers.Redis
	fleets int
	// settled waits until a cluster works again after a node was gone.
	settled func(context.Context) error
}

func singleRedis(t *testing.T) *backend {
	r := serverstest.Redis(t)
	return &backend{r.URL(), []*servers.Redis{r}, 0, func(context.Context) error { return nil }}
}

func clusterRedis(t *testing.T) *backend {
	c := serverstest.RedisCluster(t)
	b := &backend{settled: c.WaitOK}
	for i, addr := range c.Addrs() {
		if i > 0 {
			b.url += ","
		}
		b.url += "redis://" + addr
		b.nodes = append(b.nodes, c.Node(i))
	}
	return b
}

func (b *backend) each(t *testing.T, f func(*servers.Redis) error) {
	t.Helper()
	for _, n := range b.nodes {
		must(t, f(n))
	}
}

// live is a fleet of real parts: checkers, aggregators, NATS and Redis. What its tests assert holds
// on a machine of any speed; how well a limit is kept, tests in virtual time assert.
type live struct {
	t         *testing.T
	namespace string
	nats      *servers.NATS
	redis     *backend
	rules     *rules.Set
	workers   []*liveWorker
	checkers  []*liveChecker
	admitted  atomic.Int64 // hits, each once for every rule that it was charged to
	decided   atomic.Int64
	mu        sync.Mutex
	passed    []passed
}

// passed is a hit that was admitted, between two times.
type passed struct {
	begin, end int64
	rule       *rules.Rule
	key        string
	cost       int64
}

type liveChecker struct {
	*check.Checker
	stop func() error
}

type liveWorker struct {
	*aggregate.Worker
	store *deadlyStore
	conn  *nats.Conn
	stop  func() error
}

var liveRules = []rules.Rule{
	counting("second", 40, window.Shape{Length: time.Second, Buckets: 1}),
	counting("cut", 100, window.Shape{Length: 2 * time.Second, Buckets: 4}),
	counting("year", 1e6, year),
}

// year is a window that does not end while a test runs.
var year = window.Shape{Length: 365 * 24 * time.Hour, Buckets: 1}

func newLive(t *testing.T, redis *backend, checkers, workers int, list ...rules.Rule) *live {
	redis.fleets++
	f := &live{t: t, namespace: fmt.Sprint("live", redis.fleets), nats: serverstest.NATS(t), redis: redis}
	var err error
	f.rules, err = rules.NewSet(list...)
	must(t, err)
	for range workers {
		f.workers = append(f.workers, f.newWorker())
	}
	f.addCheckers(checkers)
	return f
}

func (f *live) must(err error) {
	f.t.Helper()
	must(f.t, err)
}

func (f *live) connect(name string) *nats.Conn {
	conn, err := natsbus.Connect(f.nats.URL(), name)
	f.must(err)
	f.t.Cleanup(conn.Close)
	return conn
}

func (f *live) newWorker() *liveWorker {
	store, err := redisstore.Open(redisstore.Options{URL: f.redis.url, Namespace: f.namespace})
	f.must(err)
	w := &liveWorker{conn: f.connect("aggregator")}
	w.store = &deadlyStore{Store: store, victim: w, slow: time.Duration(len(f.workers)%2) * 60 * time.Millisecond}
	bus, err := natsbus.NewWorker(w.conn, f.namespace)
	f.must(err)
	w.Worker, err = aggregate.New(aggregate.Options{Store: w.store, Bus: bus})
	f.must(err)
	w.stop = background(w.Run)
	f.t.Cleanup(func() {
		err := w.stop()
		expect(f.t, err == nil, "aggregator: %v", err)
		_ = store.Close()
	})
	return w
}

func (f *live) addCheckers(n int, change ...func(*check.Options)) {
	for range n {
		name := fmt.Sprint("c", len(f.checkers))
		link, err := natsbus.NewChecker(f.connect(name), f.namespace, name)
		f.must(err)
		o := check.Options{Rules: f.rules, Link: link, DrainTimeout: time.Minute, ReceiptKeys: func() events.ReceiptKeys { return worldKeys }}
		for _, by := range change {
			by(&o)
		}
		c := &liveChecker{}
		c.Checker, err = check.New(o)
		f.must(err)
		c.stop = background(c.Run)
		f.t.Cleanup(func() { _ = c.stop() })
		f.checkers = append(f.checkers, c)
	}
}

// steady lets a checker keep no hits back because there is much room, for which a test that waits
// for every report would wait 10 s, nor take to its share of a limit when the machine stands still.
func steady(o *check.Options) {
	o.QuietFor, o.ShareAfter, o.OutageAfter = time.Millisecond, never, never
}

// background runs f until the function it returns is called, which waits for its end.
func background(f func(context.Context) error) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	return sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
}

// deadlyStore is a store whose worker now and then dies between the write and the answer.
type deadlyStore struct {
	*redisstore.Store
	victim *liveWorker
	deadly atomic.Bool
	slow   time.Duration // what the answer to the first Join takes to come
}

func (s *deadlyStore) Join(ctx context.Context, shards int) (storage.Fleet, error) {
	fleet, err := s.Store.Join(ctx, shards)
	time.Sleep(s.slow)
	s.slow = 0
	return fleet, err
}

func (s *deadlyStore) Apply(ctx context.Context, fold *storage.Batch) (storage.Applied, error) {
	applied, err := s.Store.Apply(ctx, fold)
	return applied, cmp.Or(err, s.die(len(applied.Repeated) == 0))
}

func (s *deadlyStore) Lease(ctx context.Context, fold *storage.LeaseBatch) (storage.Leased, error) {
	leased, err := s.Store.Lease(ctx, fold)
	return leased, cmp.Or(err, s.die(true))
}

func (s *deadlyStore) die(written bool) error {
	if !written || !s.deadly.Swap(false) {
		return nil
	}
	s.victim.conn.Close() // nothing more leaves this worker
	return errors.New("killed after the write")
}

// load sends hits of all rules to all checkers, one per checker and millisecond or so, until
// stopped.
func (f *live) load(keys int) (stop func()) {
	var running sync.WaitGroup
	stopped := make(chan struct{})
	for i, c := range f.checkers {
		running.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 1))
			for list := f.rules.Rules(); ; {
				select {
				case <-stopped:
					return
				case <-time.After(time.Millisecond):
					f.hit(c, list[r.IntN(len(list))].Name, fmt.Sprint("k", r.IntN(keys)), 1+r.Int64N(2))
				}
			}
		})
	}
	return func() { close(stopped); running.Wait() }
}

func (f *live) hit(c *liveChecker, rule, key string, cost int64) bool {
	l, _ := c.Limiter(rule)
	begin := time.Now().UnixNano()
	d := l.Check(key, cost)
	f.decided.Add(1)
	if d.Allowed {
		f.admitted.Add(cost)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.passed = append(f.passed, passed{begin, time.Now().UnixNano(), l.Rule(), key, cost})
	}
	return d.Allowed
}

// neverOver holds the rules' own counts of all hits against their limits. Redis runs on this
// machine's clock, so that is the true time.
func (f *live) neverOver() {
	f.t.Helper()
	slices.SortStableFunc(f.passed, func(a, b passed) int { return cmp.Compare(a.end, b.end) })
	w := &world{t: f.t, truth: make(map[place]*history)}
	for _, p := range f.passed {
		// Nobody can tell in which of two buckets a hit was decided; without it the count is only
		// lower.
		if p.rule.Window.Bucket(p.begin) == p.rule.Window.Bucket(p.end) {
			w.now = p.end
			w.permit(p.rule, p.key, p.cost)
		}
	}
	expect(f.t, w.admitted != 0, "no hit has passed")
}

// left is how many hits a checker would still let pass.
func (c *liveChecker) left(rule string) int64 {
	l, _ := c.Limiter(rule)
	return l.Check("k", l.Rule().Capacity()+1).Remaining
}

// until polls for a condition. The deadline is for tests that hang.
func (f *live) until(what string, holds func() bool) {
	f.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); <-tick.C {
		if holds() {
			return
		}
	}
	for _, c := range f.checkers {
		f.t.Logf("%+v", c.Stats())
	}
	f.t.Fatalf("waited in vain: %s", what)
}

// all returns a condition: something holds of every checker.
func (f *live) all(holds func(c *liveChecker) bool) func() bool {
	return func() bool {
		return !slices.ContainsFunc(f.checkers, func(c *liveChecker) bool { return !holds(c) })
	}
}

// welcomed waits until every checker has heard of an aggregator.
func (f *live) welcomed() {
	f.t.Helper()
	f.until("every checker is welcomed", f.all(func(c *liveChecker) bool { return c.Stats().Freshness == check.Fresh }))
}

// reported waits until all hits are answered for.
func (f *live) reported() {
	f.t.Helper()
	f.until("all hits are reported", func() bool {
		var charged, open int64
		for _, c := range f.checkers {
			s := c.Stats()
			open += s.Unreported() + s.SettlementsTaken - s.SettlementsAnswered
			for _, r := range s.Rules {
				charged += r.Charged
			}
		}
		return open == 0 && charged == f.admitted.Load()
	})
}

// stopCheckers stops the checkers, which deliver what they have, and returns what is in the ledger
// and what the checkers charged.
func (f *live) stopCheckers() (ledger, charged int64) {
	f.t.Helper()
	for _, c := range f.checkers {
		err := c.stop()
		expect(f.t, err == nil, "a checker: %v", err)
		for _, r := range c.Stats().Rules {
			charged += r.Charged
			expect(f.t, r.Overflow+r.Lost+r.Pending+r.InFlight == 0, "a checker stopped with %+v", r)
		}
	}
	all, err := f.workers[0].store.Ledger(context.Background())
	f.must(err)
	for _, r := range all {
		ledger += r.Counted + r.Late + r.Refused - r.Settled
	}
	return ledger, charged
}

// conserved stops the checkers and holds the ledger against every hit admitted.
func (f *live) conserved() {
	f.t.Helper()
	ledger, charged := f.stopCheckers()
	admitted := f.admitted.Load()
	expect(f.t, charged == admitted && ledger == admitted,
		"%d hits admitted, %d charged, %d in the ledger", admitted, charged, ledger)
}
