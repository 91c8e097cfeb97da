package endtoend

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath/internal/testing/servers"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/redisstore"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/events/natsbus"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// backend is the Redis of a fleet: one server, or the masters of a cluster.
type backend struct {
	url   string
	nodes []*servers.Redis
	// settled waits until a cluster works again after a node was gone.
	settled func(context.Context) error
}

func singleRedis(t *testing.T) *backend {
	r := serverstest.Redis(t)
	return &backend{r.URL(), []*servers.Redis{r}, func(context.Context) error { return nil }}
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
		if err := f(n); err != nil {
			t.Fatal(err)
		}
	}
}

// live is a fleet of real parts: checkers, aggregators, NATS and Redis.
type live struct {
	t        *testing.T
	nats     *servers.NATS
	redis    *backend
	rules    *rules.Set
	workers  []*liveWorker
	checkers []*liveChecker
	admitted atomic.Int64 // hits, each once for every rule that it was charged to
	decided  atomic.Int64
	slowest  atomic.Int64
}

type liveChecker struct {
	*check.Checker
	stop func() error
}

type liveWorker struct {
	*aggregate.Worker
	store *murderous
	conn  *nats.Conn
	stop  func() error
}

var liveRules = []rules.Rule{
	{Name: "second", Key: []string{"user"}, Limit: 40, Window: window.Shape{Length: time.Second, Buckets: 1}},
	{Name: "cut", Key: []string{"user"}, Limit: 100, Window: window.Shape{Length: 2 * time.Second, Buckets: 4}},
	{Name: "hour", Key: []string{"user"}, Limit: 1e6, Window: window.Shape{Length: time.Hour, Buckets: 60}},
}

func newLive(t *testing.T, redis *backend, checkers, workers int, list ...rules.Rule) *live {
	f := &live{t: t, nats: serverstest.NATS(t), redis: redis}
	var err error
	if f.rules, err = rules.NewSet(list...); err != nil {
		t.Fatal(err)
	}
	for range workers {
		f.workers = append(f.workers, f.newWorker())
	}
	for i := range checkers {
		f.checkers = append(f.checkers, f.newChecker(fmt.Sprint("c", i)))
	}
	return f
}

func (f *live) connect(name string) *nats.Conn {
	conn, err := natsbus.Connect(f.nats.URL(), name)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(conn.Close)
	return conn
}

func (f *live) newWorker() *liveWorker {
	store, err := redisstore.Open(redisstore.Options{URL: f.redis.url, Namespace: "live"})
	if err != nil {
		f.t.Fatal(err)
	}
	w := &liveWorker{conn: f.connect("aggregator")}
	w.store = &murderous{Store: store, victim: w}
	bus, err := natsbus.NewWorker(w.conn, "live")
	if err != nil {
		f.t.Fatal(err)
	}
	agg, err := aggregate.New(aggregate.Options{Store: w.store, Bus: bus})
	if err != nil {
		f.t.Fatal(err)
	}
	w.Worker, w.stop = agg, background(agg.Run)
	f.t.Cleanup(func() {
		if err := w.stop(); err != nil {
			f.t.Errorf("aggregator: %v", err)
		}
		_ = store.Close()
	})
	return w
}

func (f *live) newChecker(name string, change ...func(*check.Options)) *liveChecker {
	link, err := natsbus.NewChecker(f.connect(name), "live", name)
	if err != nil {
		f.t.Fatal(err)
	}
	c := &liveChecker{}
	o := check.Options{Rules: f.rules, Link: link, DrainTimeout: 30 * time.Second}
	for _, by := range change {
		by(&o)
	}
	c.Checker, err = check.New(o)
	if err != nil {
		f.t.Fatal(err)
	}
	c.stop = background(c.Run)
	f.t.Cleanup(func() { _ = c.stop() })
	return c
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

// murderous is a store whose worker now and then dies between the write and the answer.
type murderous struct {
	*redisstore.Store
	victim *liveWorker
	deadly atomic.Bool
}

var errKilled = errors.New("killed after the write")

func (s *murderous) Apply(ctx context.Context, fold *aggregate.Fold) (aggregate.Applied, error) {
	applied, err := s.Store.Apply(ctx, fold)
	if err == nil && len(applied.Repeated) == 0 && s.deadly.Swap(false) {
		s.victim.conn.Close() // nothing more leaves this worker
		return aggregate.Applied{}, errKilled
	}
	return applied, err
}

// Lease is as deadly.
func (s *murderous) Lease(ctx context.Context, fold *aggregate.LeaseFold) (aggregate.Leased, error) {
	leased, err := s.Store.Lease(ctx, fold)
	if err == nil && s.deadly.Swap(false) {
		s.victim.conn.Close()
		return aggregate.Leased{}, errKilled
	}
	return leased, err
}

// load sends hits of all rules to all checkers, one per checker and millisecond or so, until stopped.
func (f *live) load(keys int) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for i, c := range f.checkers {
		running.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 1))
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for ctx.Err() == nil {
				<-tick.C
				f.hit(c, f.rules.Rules()[r.IntN(len(f.rules.Rules()))].Name, fmt.Sprint("k", r.IntN(keys)), 1+r.Int64N(2))
			}
		})
	}
	return func() {
		cancel()
		running.Wait()
	}
}

func (f *live) hit(c *liveChecker, rule, key string, cost int64) bool {
	l, _ := c.Limiter(rule)
	begin := time.Now()
	d := l.Check(key, cost)
	took := int64(time.Since(begin))
	for old := f.slowest.Load(); took > old && !f.slowest.CompareAndSwap(old, took); old = f.slowest.Load() {
	}
	f.decided.Add(1)
	if d.Allowed {
		f.admitted.Add(cost)
	}
	return d.Allowed
}

// until polls for a condition, for as long as a slow machine could need.
func (f *live) until(what string, holds func() bool) {
	f.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); <-tick.C {
		if holds() {
			return
		}
	}
	for _, c := range f.checkers {
		f.t.Logf("%+v", c.Stats())
	}
	f.t.Fatalf("waited in vain: %s", what)
}

// welcomed waits until every checker has heard of an aggregator.
func (f *live) welcomed() {
	f.t.Helper()
	f.until("every checker is welcomed", func() bool {
		for _, c := range f.checkers {
			if c.Stats().Freshness != check.Fresh {
				return false
			}
		}
		return true
	})
}

// stopCheckers stops the checkers, which deliver what they have, and returns what is in the ledger
// and what the checkers charged.
func (f *live) stopCheckers() (ledger aggregate.RuleLedger, charged int64) {
	f.t.Helper()
	for _, c := range f.checkers {
		if err := c.stop(); err != nil {
			f.t.Errorf("a checker: %v", err)
		}
		for _, r := range c.Stats().Rules {
			charged += r.Charged
			if r.Overflow+r.Lost+r.Pending+r.InFlight != 0 {
				f.t.Errorf("a checker stopped with %+v", r)
			}
		}
	}
	all, err := f.workers[0].store.Ledger(context.Background())
	if err != nil {
		f.t.Fatal(err)
	}
	for _, r := range all {
		ledger.Counted += r.Counted
		ledger.Late += r.Late
		ledger.Refused += r.Refused
	}
	return ledger, charged
}

// conserved stops the checkers and holds the ledger against every hit admitted.
func (f *live) conserved() {
	f.t.Helper()
	ledger, charged := f.stopCheckers()
	admitted := f.admitted.Load()
	f.t.Logf("%d decisions, the slowest took %v; %d hits admitted, %d charged; ledger: %+v",
		f.decided.Load(), time.Duration(f.slowest.Load()), admitted, charged, ledger)
	if charged != admitted || ledger.Counted+ledger.Late+ledger.Refused != admitted {
		f.t.Error("the ledger is not what was admitted")
	}
	if slowest := time.Duration(f.slowest.Load()); slowest > time.Second {
		f.t.Errorf("a decision took %v: it waited for something", slowest)
	}
}
