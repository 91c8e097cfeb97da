package redisstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/events"
)

const (
	manyKeys   = 1_000_000
	reportKeys = 1000
)

// crowd is a bus with a number of checkers behind it, each of which sends its reports one after the
// other, as the answers come. No two of them hold the same key.
type crowd struct {
	nowhere
	checkers [][][]byte // for each checker, for each report, what follows its header
	sequence []uint64   // for each checker
	epoch    uint64     // of the first

	rounds chan int // how many reports to send, by all together
	done   chan struct{}
}

func newCrowd(tb testing.TB, checkers int, firstEpoch uint64, rule *events.Rule, keys int) *crowd {
	tb.Helper()
	c := &crowd{
		checkers: make([][][]byte, checkers),
		sequence: make([]uint64, checkers),
		epoch:    firstEpoch,
		rounds:   make(chan int),
		done:     make(chan struct{}),
	}
	order := rand.New(rand.NewPCG(1, 1)).Perm(keys)
	for i := 0; len(order) > 0; i++ {
		table := &events.Table{Rules: []*events.Rule{rule}}
		n := min(reportKeys, len(order))
		for _, key := range order[:n] {
			table.AddKey(0, fmt.Sprintf("user:%06d", key))
			table.AddCell(0, uint64(1+key%9))
		}
		order = order[n:]
		c.checkers[i%checkers] = append(c.checkers[i%checkers], encode(tb, &events.Report{Hits: table}))
	}
	return c
}

func encode(tb testing.TB, m *events.Report) []byte {
	tb.Helper()
	return must(events.Append(nil, m))(tb)
}

func (c *crowd) Serve(ctx context.Context, h func(events.Kind, []byte, func([]byte) error)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case reports := <-c.rounds:
			left := atomic.Int64{}
			left.Store(int64(reports))
			var all sync.WaitGroup
			for i := range c.checkers {
				all.Go(func() { c.check(i, &left, h) })
			}
			all.Wait()
			c.done <- struct{}{}
		}
	}
}

// check is one checker's life: a message is a header and a body, one after the other.
func (c *crowd) check(i int, left *atomic.Int64, h func(events.Kind, []byte, func([]byte) error)) {
	answered := make(chan struct{}, 1)
	var message []byte
	for left.Add(-1) >= 0 {
		c.sequence[i]++
		bodies := c.checkers[i]
		message, _ = events.Append(message[:0], &events.Report{Epoch: c.epoch + uint64(i) + 1, Shards: 1, Sequence: c.sequence[i]})
		message = append(message, bodies[c.sequence[i]%uint64(len(bodies))]...)
		h(events.KindReport, message, func([]byte) error { answered <- struct{}{}; return nil })
		<-answered
	}
}

// BenchmarkPipeline is a worker from the bytes of a report to those of its answer, with a real
// Redis: distinct keys per second, and what each took of Redis' CPU and of ours. Redis is what
// bounds it.
//
// Tried, in ns of Redis' CPU time per key with two buckets of 1 M keys, several runs side by side
// on a noisy machine:
//
//	the previous bucket read in every batch      2440 to 2950    remembered instead (recall): 1560 to 1900
//	2^12 groups, searched for longer            3040 to 3290    2^14 groups: 2210 to 2700 (without recall)
//	counts passed as numbers                    1540 to 1960    as texts: 1400 to 1980, no difference
//	a look at each field of a key's 60 buckets  21.8 µs         the reply of HGETALL as it is: 14.6 µs
//
// Half of the time goes into cache misses: a hash is found by way of two tables, two entries, a
// name and an object. That is why not looking at all pays.
func BenchmarkPipeline(b *testing.B) {
	bucket := time.Now().UnixNano() / int64(time.Hour)
	rule := func(bucket int64) *events.Rule {
		return &events.Rule{Name: "per-user", WindowMs: 3_600_000, Buckets: 1, Limit: 1e9, Newest: bucket}
	}
	const all = manyKeys / reportKeys
	for _, bm := range []struct {
		name         string
		before, warm int // reports of the previous and of the current bucket that come first
		atOnce       int // reports until all begins again, 0 for no end
	}{
		{"two buckets of 1 M keys", all, all, 0},
		{"first hits of a bucket", all, 0, all},
		{"one bucket", 0, all, 0},
	} {
		b.Run(bm.name, func(b *testing.B) {
			admin := empty(b)
			sendBefore := start(b, newCrowd(b, 8, 0, rule(bucket-1), manyKeys))
			send := start(b, newCrowd(b, 8, 8, rule(bucket), manyKeys))
			var used busyTime
			b.ReportAllocs()
			b.ResetTimer()
			for left := b.N; left > 0; {
				b.StopTimer()
				noError(b, admin.FlushAll(b.Context()).Err())
				sendBefore(bm.before)
				send(bm.warm)
				n := left
				if bm.atOnce > 0 {
					n = min(n, bm.atOnce)
				}
				left -= n
				used.add(b, admin, -1)
				b.StartTimer()
				send(n)
				used.add(b, admin, 1)
			}
			keys := float64(b.N * reportKeys)
			b.ReportMetric(keys/b.Elapsed().Seconds(), "keys/s")
			b.ReportMetric(float64(used.redis)/keys, "redis-ns/key")
			b.ReportMetric(float64(used.own)/keys, "own-ns/key")
		})
	}
}

// start starts a worker for the crowd, and returns what makes it work.
func start(b *testing.B, c *crowd) (send func(reports int)) {
	b.Helper()
	w := must(aggregate.New(aggregate.Options{Store: open(b, Options{}), Bus: c}))(b)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	b.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	})
	return func(reports int) {
		c.rounds <- reports
		<-c.done
	}
}

// busyTime is how long the CPUs of Redis and of this process have been busy.
type busyTime struct{ redis, own time.Duration }

// add adds the time since each began, times sign.
func (t *busyTime) add(b *testing.B, admin *redis.Client, sign time.Duration) {
	b.Helper()
	info := must(admin.InfoMap(b.Context(), "cpu").Result())(b)
	for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
		d := must(time.ParseDuration(info["CPU"][field] + "s"))(b)
		t.redis += sign * d
	}
	var usage syscall.Rusage
	noError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	t.own += sign * time.Duration(usage.Utime.Nano()+usage.Stime.Nano())
}
