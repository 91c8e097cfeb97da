package endtoend

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/testing/servers"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

func TestEveryHitIsCountedOverRedis(t *testing.T)        { testOutages(t, singleRedis) }
func TestEveryHitIsCountedOverRedisCluster(t *testing.T) { testOutages(t, clusterRedis) }

func testOutages(t *testing.T, start func(*testing.T) *backend) {
	if testing.Short() {
		t.Skip("long: runs in make test-all")
	}
	redis := start(t)
	for _, part := range []struct {
		name string
		test func(*testing.T, *backend)
	}{
		{"while nothing is wrong", countsExactly},
		{"when aggregators die between write and answer", aggregatorsDie},
		{"when servers are away", serversAway},
		{"when servers are away from the start", serversAwayFromTheStart},
		{"but for what Redis loses", losesEverything},
		{"but for what is newer than Redis' snapshot", olderSnapshot},
	} {
		t.Run(part.name, func(t *testing.T) { part.test(t, redis) })
	}
}

func aggregatorsDie(t *testing.T, redis *backend) {
	f := newLive(t, redis, 4, 2, liveRules...)
	f.welcomed()
	stop := f.load(20)
	for i := range 12 {
		victim := f.workers[i%2]
		victim.store.deadly.Store(true)
		f.until("the aggregator dies", func() bool { return victim.conn.IsClosed() })
		f.workers[i%2] = f.newWorker()
	}
	stop()
	f.conserved()
	var repeated int64
	for _, c := range f.checkers {
		repeated += c.Stats().ReportsRepeated
	}
	if repeated == 0 {
		t.Error("no report was repeated: nobody was killed at a bad moment")
	}
}

// outage is how long the servers are away: longer than the windows of two of the rules, so that hits
// become late meanwhile. Checkers go on deciding.
func (f *live) outage() {
	f.t.Helper()
	before := f.decided.Load()
	time.Sleep(2500 * time.Millisecond)
	f.until("1000 are decided in the outage", func() bool { return f.decided.Load() >= before+1000 })
}

func serversAway(t *testing.T, redis *backend) {
	f := newLive(t, redis, 0, 2, liveRules...)
	f.addCheckers(4, func(o *check.Options) { o.HelloEvery, o.ShareAfter = 200*time.Millisecond, 5 })
	f.welcomed()
	stop := f.load(20)
	f.answered()
	for _, away := range []struct{ nats, redis bool }{{nats: true}, {redis: true}, {true, true}} {
		if away.redis {
			redis.each(t, (*servers.Redis).Pause)
		}
		if away.nats {
			f.must(f.nats.Stop())
		}
		f.outage()
		f.until("all keep to their share", f.all(func(c *liveChecker) bool { return c.Stats().Freshness == check.LocalShare }))
		if away.redis {
			redis.each(t, (*servers.Redis).Resume)
		}
		if away.nats {
			f.must(f.nats.Restart())
		}
		f.answered()
		f.answered()
		f.welcomed()
	}
	stop()
	f.conserved()
}

// answered waits until every checker has had three more reports answered.
func (f *live) answered() {
	f.t.Helper()
	before := make(map[*liveChecker]int64)
	for _, c := range f.checkers {
		before[c] = c.Stats().ReportsAnswered
	}
	f.until("reports are answered", f.all(func(c *liveChecker) bool { return c.Stats().ReportsAnswered >= before[c]+3 }))
}

func serversAwayFromTheStart(t *testing.T, redis *backend) {
	redis.each(t, (*servers.Redis).Pause)
	f := newLive(t, redis, 4, 2, liveRules...)
	f.must(f.nats.Stop())
	stop := f.load(20)
	f.outage()
	redis.each(t, (*servers.Redis).Resume)
	f.must(f.nats.Restart())
	f.answered()
	f.answered()
	stop()
	f.conserved()
}

func losesEverything(t *testing.T, redis *backend) {
	f := newLive(t, redis, 0, 2, liveRules...)
	f.addCheckers(2, prompt)
	f.welcomed()
	f.lose(func() {
		redis.each(t, func(r *servers.Redis) error { return r.Restart(context.Background()) })
	}, 0)
}

func olderSnapshot(t *testing.T, redis *backend) {
	f := newLive(t, redis, 0, 2, liveRules...)
	f.addCheckers(2, prompt)
	f.welcomed()
	f.take(f.checkers[0], 100)
	dir := t.TempDir()
	paths := make(map[*servers.Redis]string)
	redis.each(t, func(r *servers.Redis) error {
		paths[r] = filepath.Join(dir, fmt.Sprint(r.PID()))
		return r.SaveTo(context.Background(), paths[r])
	})
	f.lose(func() {
		redis.each(t, func(r *servers.Redis) error { return r.RestartFrom(context.Background(), paths[r]) })
	}, 100)
}

// take sends hits of one key that must all pass, and waits until they are counted.
func (f *live) take(c *liveChecker, n int64) {
	f.t.Helper()
	f.pass(c, "year", n)
	f.reported()
}

// lose counts hits, lets happen what loses all but the first kept of them, and watches the checkers
// follow.
func (f *live) lose(happen func(), kept int64) {
	f.t.Helper()
	const limit = 1e6
	for i, n := range []int64{300, 200, 1, 1, 1} { // the ones let both hear of each other's
		f.take(f.checkers[i%2], n)
	}
	counted := kept + 503
	if left := f.checkers[0].left("year"); left != limit-counted {
		f.t.Fatalf("before: %d left, want %d", left, limit-counted)
	}
	happen()
	f.must(f.redis.settled(context.Background()))
	// One hit each and an answer: the new totals are what the store kept, and what came since.
	f.until("the checkers follow the new generation", func() bool {
		f.take(f.checkers[0], 1)
		f.take(f.checkers[1], 1)
		least := limit - kept - (f.admitted.Load() - counted)
		return f.all(func(c *liveChecker) bool { left := c.left("year"); return left >= least && left <= limit-kept })()
	})
	// The number of shards is lost too, and recorded again when an aggregator next asks for it.
	f.until("the ledger is there again", func() bool {
		all, err := f.workers[0].store.Ledger(context.Background())
		return err == nil && all["year"].Counted > kept
	})
	ledger, charged := f.stopCheckers()
	if admitted := f.admitted.Load(); charged != admitted || charged-ledger != 503 {
		f.t.Errorf("%d hits admitted, %d charged, %d in the ledger: want 503 lost, those counted after the snapshot and before the loss",
			admitted, charged, ledger)
	}
}

// TestStrictHoldsOverRedis asks real checkers for permits of a real Redis, from many goroutines, while an
// aggregator dies between a grant's write and its answer, and a checker with the permits that it has. Redis
// runs on this machine's clock, so that is the true time.
func TestStrictHoldsOverRedis(t *testing.T) {
	if testing.Short() {
		t.Skip("long: runs in make test-all")
	}
	f := newLive(t, singleRedis(t), 3, 2, strictly(
		counting("second", 100, window.Shape{Length: time.Second, Buckets: 1}),
		counting("fixed", 60, window.Shape{Length: time.Second, Buckets: 1, Fixed: true}),
		counting("cut", 150, window.Shape{Length: 2 * time.Second, Buckets: 4}),
	)...)
	f.welcomed()
	type passed struct {
		begin, at int64 // it was decided between these
		rule      *rules.Rule
		key       string
		cost      int64
	}
	var mu sync.Mutex
	var all []passed
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var running sync.WaitGroup
	for i, c := range f.checkers {
		for g := range 4 {
			running.Go(func() {
				r := rand.New(rand.NewPCG(uint64(i), uint64(g)))
				for ctx.Err() == nil {
					p := passed{rule: f.rules.Rules()[r.IntN(3)], key: fmt.Sprint("k", r.IntN(2)), cost: 1 + r.Int64N(2)}
					l, _ := c.Limiter(p.rule.Name)
					p.begin = time.Now().UnixNano()
					wait, stop := context.WithTimeout(ctx, 20*time.Millisecond)
					d, err := l.Acquire(wait, p.key, p.cost)
					stop()
					if p.at = time.Now().UnixNano(); d.Allowed {
						mu.Lock()
						all = append(all, p)
						mu.Unlock()
					}
					if d.Allowed && err != nil {
						t.Errorf("allowed, and yet %v", err)
					}
					<-time.After(min(d.RetryAfter, time.Millisecond)) // so that a blocked key does not take the processor
				}
			})
		}
	}
	pass := func(n int) {
		f.until(fmt.Sprint(n, " hits pass"), func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(all) >= n
		})
	}
	pass(200)
	f.workers[0].store.deadly.Store(true)
	f.until("the aggregator dies", func() bool { return f.workers[0].conn.IsClosed() })
	pass(700)
	_ = f.checkers[2].stop()
	pass(1200)
	cancel()
	running.Wait()

	slices.SortStableFunc(all, func(a, b passed) int { return int(a.at - b.at) })
	w := &world{t: t, truth: make(map[place]*history)}
	for _, p := range all {
		f.admitted.Add(p.cost)
		// Nobody can tell in which of two buckets a hit was decided; without it the count is only lower.
		if w.now = p.at; p.rule.Window.Bucket(p.begin) == p.rule.Window.Bucket(p.at) {
			w.permit(p.rule, p.key, p.cost)
		}
	}
	f.conserved()
}

// TestReadyKnowsOfADeadNode: an aggregator without traffic is not ready while one node of the cluster
// is dead, and is again when that is back. It answers hellos all the while, whichever node it is: the
// other nodes count.
func TestReadyKnowsOfADeadNode(t *testing.T) {
	if testing.Short() {
		t.Skip("long: runs in make test-all")
	}
	redis := clusterRedis(t)
	f := newLive(t, redis, 0, 1, liveRules...)
	ready := func() error { return f.workers[0].Ready() }
	const every = 200 * time.Millisecond
	f.addCheckers(1, func(o *check.Options) { o.HelloEvery = every })
	f.until("it is ready", func() bool { return ready() == nil })
	for i, node := range redis.nodes {
		f.must(node.Kill())
		f.until(fmt.Sprint("it is not ready without node ", i), func() bool { return ready() != nil })
		unready := time.Now()
		f.until(fmt.Sprint("it answers without node ", i), func() bool {
			return time.Since(unready) > every && f.checkers[0].Stats().Heard < every
		})
		f.must(node.Restart(context.Background()))
		f.must(redis.settled(context.Background()))
		f.until(fmt.Sprint("it is ready with node ", i), func() bool { return ready() == nil })
	}
}
