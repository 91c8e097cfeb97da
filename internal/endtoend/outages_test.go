package endtoend

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/testing/servers"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/window"
)

// TestEveryHitIsCountedOverRedis: whatever dies (aggregators, NATS, Redis), the ledger ends equal
// to the hits that were admitted, but for what Redis itself has lost; and strict limits hold.
func TestEveryHitIsCountedOverRedis(t *testing.T)        { testOutages(t, singleRedis) }
func TestEveryHitIsCountedOverRedisCluster(t *testing.T) { testOutages(t, clusterRedis) }

func testOutages(t *testing.T, start func(*testing.T) *backend) {
	if testing.Short() {
		t.Skip("long: runs in make test-all")
	}
	t.Parallel() // it mostly waits
	redis := start(t)
	for _, part := range []struct {
		name string
		test func(*testing.T, *backend)
	}{
		{"while nothing is wrong", countsExactly},
		{"when aggregators die between write and answer", aggregatorsDie},
		{"and strict limits hold", strictLimitsHold},
		{"when servers are away", serversAway},
		{"when servers are away from the start", serversAwayFromTheStart},
		{"but for what Redis loses", loses(false)},
		{"but for what is newer than Redis' snapshot", loses(true)},
	} {
		t.Run(part.name, func(t *testing.T) { part.test(t, redis) })
	}
}

// kill lets an aggregator die at its next write, and starts another.
func (f *live) kill(i int) {
	f.t.Helper()
	victim := f.workers[i]
	victim.store.deadly.Store(true)
	f.until("the aggregator dies", func() bool { return victim.conn.IsClosed() })
	f.workers[i] = f.newWorker()
}

func aggregatorsDie(t *testing.T, redis *backend) {
	f := newLive(t, redis, 4, 2, liveRules...)
	f.welcomed()
	stop := f.load(20)
	for i := range 12 {
		f.kill(i % 2)
	}
	stop()
	f.conserved()
	var repeated int64
	for _, c := range f.checkers {
		repeated += c.Stats().ReportsRepeated
	}
	expect(t, repeated != 0, "no report was repeated: nobody was killed at a bad moment")
}

// strictLimitsHold although an aggregator that has just started has the time from one slow answer.
func strictLimitsHold(t *testing.T, redis *backend) {
	f := newLive(t, redis, 4, 2, strictly(liveRules[0], liveRules[1], testRules[1])...)
	f.welcomed()
	stop := f.load(6)
	for i := range int64(4) {
		f.until("hits pass", func() bool { return f.admitted.Load() > 400*i })
		f.kill(int(i % 2))
	}
	f.until("hits pass", func() bool { return f.admitted.Load() > 1600 })
	stop()
	f.conserved()
	f.neverOver()
}

// outage is how long the servers are away: longer than the windows of two of the rules, so that
// hits become late meanwhile. Checkers go on deciding.
func (f *live) outage() {
	f.t.Helper()
	before := f.decided.Load()
	time.Sleep(2500 * time.Millisecond)
	f.until("1000 are decided in the outage", func() bool { return f.decided.Load() >= before+1000 })
}

func serversAway(t *testing.T, redis *backend) {
	f := newLive(t, redis, 0, 2, liveRules...)
	f.addCheckers(4, func(o *check.Options) { o.HelloEvery, o.ShareAfter = 200*time.Millisecond, time.Second })
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

// take sends hits of one key that must all pass, and waits until they are counted.
func (f *live) take(c *liveChecker, n int64) {
	f.t.Helper()
	f.pass(c, "year", n)
	f.reported()
}

// loses counts hits, lets Redis lose all of them but for those of a snapshot, if there is one, and
// watches the checkers follow.
func loses(toSnapshot bool) func(*testing.T, *backend) {
	return func(t *testing.T, redis *backend) {
		const limit, lost = 1e6, 503
		f := newLive(t, redis, 0, 2, liveRules...)
		f.addCheckers(2, steady)
		f.welcomed()
		dir, kept := t.TempDir(), int64(0)
		file := make(map[*servers.Redis]string)
		if toSnapshot {
			kept = 100
			f.take(f.checkers[0], kept)
			redis.each(t, func(r *servers.Redis) error {
				file[r] = filepath.Join(dir, fmt.Sprint(r.PID()))
				return r.SaveTo(t.Context(), file[r])
			})
		}
		for i, n := range []int64{300, 200, 1, 1, 1} { // the ones let both hear of each other's
			f.take(f.checkers[i%2], n)
		}
		left := f.checkers[0].left("year")
		require(t, left == limit-kept-lost, "before: %d left, want %d", left, limit-kept-lost)
		redis.each(t, func(r *servers.Redis) error {
			if toSnapshot {
				return r.RestartFrom(t.Context(), file[r])
			}
			return r.Restart(t.Context())
		})
		f.must(redis.settled(t.Context()))
		// One hit each and an answer: the new totals are what the store kept, and what came since.
		f.until("the checkers follow the new generation", func() bool {
			f.take(f.checkers[0], 1)
			f.take(f.checkers[1], 1)
			least := limit - (f.admitted.Load() - lost)
			return f.all(func(c *liveChecker) bool { left := c.left("year"); return left >= least && left <= limit-kept })()
		})
		// The number of shards is lost too, and recorded again when an aggregator next asks for it.
		f.until("the ledger is there again", func() bool {
			all, err := f.workers[0].store.Ledger(t.Context())
			return err == nil && all["year"].Counted > kept
		})
		ledger, charged := f.stopCheckers()
		admitted := f.admitted.Load()
		expect(t, charged == admitted && charged-ledger == lost,
			"%d hits admitted, %d charged, %d in the ledger: want %d lost", admitted, charged, ledger, lost)
	}
}

// TestReadyKnowsOfADeadNode: an aggregator without traffic is not ready while one node of the
// cluster is dead, and is again when that is back. It answers hellos all the while, whichever node
// it is: the other nodes count.
func TestReadyKnowsOfADeadNode(t *testing.T) {
	if testing.Short() {
		t.Skip("long: runs in make test-all")
	}
	t.Parallel() // it mostly waits
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

// A limit holds in the third outage as in the first: what comes together at the end of one says
// nothing of a checker's share of the traffic. (It was 1.3 times the limit in the second one.)
func TestLimitsHoldInEachOutage(t *testing.T) {
	for _, how := range []struct {
		name  string
		begin func(*world)
	}{
		{"cut off", func(w *world) {
			for _, c := range w.checkers {
				w.bus.Cut(c.name, true)
			}
		}},
		{"the store hangs", func(w *world) { w.store.mode = storeHangs }},
		{"the store is down", func(w *world) { w.store.mode = storeDown }},
	} {
		const limit, demand = 200, 300 // a second
		w := newWorld(t, wellConnected(3, 4, counting("hot", limit, window.Shape{Length: time.Second, Buckets: 1})))
		w.meet()
		run := func(seconds int) (admitted int) {
			for range seconds * demand {
				w.advance(time.Second / demand)
				if l, _ := w.anyone().Limiter("hot"); l.Check("k", 1).Allowed {
					admitted++
				}
			}
			return admitted
		}
		run(5)
		for n := range 3 {
			how.begin(w)
			if got, most := run(10), limit*10*105/100; got > most || got < limit*9 {
				t.Errorf("%s, outage %d: %d hits in 10 s, at most %d", how.name, n+1, got, most)
			}
			w.connect()
			w.store.mode = storeWorks
			run(11)
		}
	}
}
