package endtoend

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/testing/servers"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// The same suite over one Redis and over a Cluster of three masters.

func TestSingleRedis(t *testing.T)  { suite(t, singleRedis) }
func TestRedisCluster(t *testing.T) { suite(t, clusterRedis) }

func suite(t *testing.T, redis func(*testing.T) *backend) {
	for _, part := range []struct {
		name string
		test func(*testing.T, *backend)
	}{
		{"one limit over the fleet", oneLimit},
		{"aggregators die between write and answer", deaths},
		{"NATS is down", natsDown},
		{"Redis is down", redisDown},
		{"both are down", bothDown},
		{"both are down from the start", downFromTheStart},
		{"Redis loses everything", losesEverything},
		{"Redis comes back with an older snapshot", olderSnapshot},
	} {
		t.Run(part.name, func(t *testing.T) { part.test(t, redis(t)) })
	}
}

// oneLimit offers one key of 15 per second ten times as much, on four checkers. Once the limit is
// used up, every checker must deny within a flush (50 ms) and 200 ms more.
func oneLimit(t *testing.T, redis *backend) {
	const limit, rounds = 15, 5
	f := newLive(t, redis, 4, 2, rules.Rule{
		Name: "r", Key: []string{"user"}, Limit: limit, Window: window.Shape{Length: time.Second, Buckets: 1},
	})
	f.welcomed()
	clean := 0
	for round := range rounds {
		usedUp, last, n := f.saturate(fmt.Sprint("user", round), limit)
		t.Logf("round %d: %d hits passed, the last of them %v after the limit was used up", round, n, last-usedUp)
		if last-usedUp <= 250*time.Millisecond {
			clean++
		}
	}
	// The machine may be busy with something else once; not more often.
	if clean < rounds-1 {
		t.Errorf("only in %d of %d rounds were all checkers denying within 250 ms", clean, rounds)
	}
	f.conserved()
}

// saturate offers one key 150 hits/s over a bucket of one second, from its beginning, and returns
// when the limit was used up and when the last hit passed.
func (f *live) saturate(key string, limit int) (usedUp, last time.Duration, passed int) {
	begin := time.Now().Truncate(time.Second).Add(time.Second)
	time.Sleep(time.Until(begin.Add(10 * time.Millisecond))) // for the bucket's edge
	var mu sync.Mutex
	var running sync.WaitGroup
	for _, c := range f.checkers {
		running.Go(func() {
			tick := time.NewTicker(time.Second / 150 * time.Duration(len(f.checkers)))
			defer tick.Stop()
			for time.Since(begin) < 950*time.Millisecond {
				if f.hit(c, "r", key, 1) {
					mu.Lock()
					passed++
					last = time.Since(begin)
					if passed == limit {
						usedUp = last
					}
					mu.Unlock()
				}
				<-tick.C
			}
		})
	}
	running.Wait()
	return usedUp, last, passed
}

func deaths(t *testing.T, redis *backend) {
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
// become late meanwhile. That time passes is what these tests are about; they wait for nothing by it.
const outage = 2500 * time.Millisecond

func natsDown(t *testing.T, redis *backend) {
	accident(t, redis, func(f *live) {
		f.must(f.nats.Stop())
		time.Sleep(outage)
		f.must(f.nats.Restart())
	})
}

func redisDown(t *testing.T, redis *backend) {
	accident(t, redis, func(f *live) {
		redis.each(t, (*servers.Redis).Pause)
		time.Sleep(outage)
		redis.each(t, (*servers.Redis).Resume)
	})
}

func bothDown(t *testing.T, redis *backend) {
	accident(t, redis, func(f *live) {
		redis.each(t, (*servers.Redis).Pause)
		f.must(f.nats.Stop())
		time.Sleep(outage)
		redis.each(t, (*servers.Redis).Resume)
		f.must(f.nats.Restart())
	})
}

// accident puts a fleet under load and lets something happen to it for longer than two of its three
// windows.
func accident(t *testing.T, redis *backend, happen func(*live)) {
	f := newLive(t, redis, 4, 2, liveRules...)
	f.welcomed()
	stop := f.load(20)
	f.until("reports are answered", f.answering())
	before := f.decided.Load()
	happen(f)
	if n := f.decided.Load() - before; n < 1000 {
		t.Errorf("only %d decisions in 2.5 s of outage", n)
	}
	f.until("reports are answered again", f.answering())
	f.until("more of them are", f.answering())
	stop()
	f.conserved()
}

// answering returns a condition: every checker has had three more reports answered.
func (f *live) answering() func() bool {
	before := make([]int64, len(f.checkers))
	for i, c := range f.checkers {
		before[i] = c.Stats().ReportsAnswered
	}
	return func() bool {
		for i, c := range f.checkers {
			if c.Stats().ReportsAnswered < before[i]+3 {
				return false
			}
		}
		return true
	}
}

func (f *live) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func downFromTheStart(t *testing.T, redis *backend) {
	redis.each(t, (*servers.Redis).Pause)
	f := newLive(t, redis, 4, 2, liveRules...)
	f.must(f.nats.Stop())
	stop := f.load(20)
	time.Sleep(outage)
	f.until("1000 are decided without anybody", func() bool { return f.decided.Load() >= 1000 })
	redis.each(t, (*servers.Redis).Resume)
	f.must(f.nats.Restart())
	f.until("reports are answered", f.answering())
	f.until("more of them are", f.answering())
	stop()
	f.conserved()
}

func losesEverything(t *testing.T, redis *backend) {
	f := newLive(t, redis, 0, 2, liveRules...)
	f.addPrompt(2)
	f.lose(func() {
		redis.each(t, func(r *servers.Redis) error { return r.Restart(context.Background()) })
		f.must(redis.settled(context.Background()))
	}, 0)
}

func olderSnapshot(t *testing.T, redis *backend) {
	f := newLive(t, redis, 0, 2, liveRules...)
	f.addPrompt(2)
	f.welcomed()
	f.take(f.checkers[0], 100)
	f.reported()
	dir := t.TempDir()
	path := func(r *servers.Redis) string { return filepath.Join(dir, fmt.Sprint(r.PID())) }
	paths := make(map[*servers.Redis]string)
	redis.each(t, func(r *servers.Redis) error {
		paths[r] = path(r)
		return r.SaveTo(context.Background(), paths[r])
	})
	f.lose(func() {
		redis.each(t, func(r *servers.Redis) error { return r.RestartFrom(context.Background(), paths[r]) })
		f.must(redis.settled(context.Background()))
	}, 100)
}

// addPrompt adds checkers that keep no hits back because there is much room: who waits for every report would wait for 10 s each time.
func (f *live) addPrompt(n int, change ...func(*check.Options)) {
	for i := range n {
		f.checkers = append(f.checkers, f.newChecker(fmt.Sprint("c", i), append(change, func(o *check.Options) { o.QuietFor = time.Millisecond })...))
	}
}

const lossLimit = 1e6 // of the rule that is looked at, "hour"

// lose counts hits, lets happen what loses all but the first kept of them, and watches the checkers
// follow.
func (f *live) lose(happen func(), kept int64) {
	f.t.Helper()
	f.welcomed()
	f.take(f.checkers[0], 300)
	f.take(f.checkers[1], 200)
	f.reported()
	f.take(f.checkers[0], 1) // so that both have heard of each other's
	f.take(f.checkers[1], 1)
	f.reported()
	f.take(f.checkers[0], 1)
	f.reported()
	if got := f.left(f.checkers[0]); got != lossLimit-kept-503 {
		f.t.Fatalf("before: %d left, want %d", got, int64(lossLimit)-kept-503)
	}
	happen()
	// One hit each and an answer: the new totals are what the store kept, and what came since.
	f.until("the checkers follow the new generation", func() bool {
		f.take(f.checkers[0], 1)
		f.take(f.checkers[1], 1)
		f.reported()
		since := f.admitted.Load() - 503 - kept
		low, high := lossLimit-kept-since, lossLimit-kept
		for _, c := range f.checkers {
			if left := f.left(c); left < int64(low) || left > int64(high) {
				return false
			}
		}
		return true
	})
	// The number of shards is lost too, and recorded again when an aggregator next asks for it.
	f.until("the ledger is there again", func() bool {
		all, err := f.workers[0].store.Ledger(context.Background())
		return err == nil && all["hour"].Counted > kept
	})
	ledger, charged := f.stopCheckers()
	admitted := f.admitted.Load()
	lost := charged - ledger.Counted - ledger.Late - ledger.Refused
	f.t.Logf("%d hits admitted, %d charged, ledger %+v, lost with Redis' data: %d", admitted, charged, ledger, lost)
	if charged != admitted || lost != 503 {
		f.t.Errorf("want 503 hits lost, exactly those counted after the snapshot and before the loss")
	}
}

// take sends hits of one key that must all pass.
func (f *live) take(c *liveChecker, n int64) {
	f.t.Helper()
	if !f.hit(c, "hour", "k", n) {
		f.t.Fatal("denied")
	}
}

// reported waits until all hits are answered for.
func (f *live) reported() {
	f.t.Helper()
	f.until("all hits are reported", func() bool {
		var charged int64
		for _, c := range f.checkers {
			s := c.Stats()
			if s.Unreported() != 0 {
				return false
			}
			for _, r := range s.Rules {
				charged += r.Charged
			}
		}
		return charged == f.admitted.Load()
	})
}

func (f *live) left(c *liveChecker) int64 {
	l, _ := c.Limiter("hour")
	return l.Check("k", lossLimit+1).Remaining
}

// TestReadyKnowsOfADeadNode: an aggregator without traffic is not ready while one node of the cluster
// is dead, and is again when that is back. It answers hellos all the while, whichever node it is: the other nodes count.
func TestReadyKnowsOfADeadNode(t *testing.T) {
	redis := clusterRedis(t)
	f := newLive(t, redis, 0, 1, liveRules...)
	ready := func() error { return f.workers[0].Ready() }
	const every = 200 * time.Millisecond
	checker := f.newChecker("idle", func(o *check.Options) { o.HelloEvery = every })
	f.until("it is ready", func() bool { return ready() == nil })
	for i, node := range redis.nodes {
		f.must(node.Kill())
		f.until(fmt.Sprint("it is not ready without node ", i), func() bool { return ready() != nil })
		unready := time.Now()
		f.until(fmt.Sprint("it answers without node ", i), func() bool {
			return time.Since(unready) > every && checker.Stats().Heard < every
		})
		f.must(node.Restart(context.Background()))
		f.must(redis.settled(context.Background()))
		f.until(fmt.Sprint("it is ready with node ", i), func() bool { return ready() == nil })
	}
}
