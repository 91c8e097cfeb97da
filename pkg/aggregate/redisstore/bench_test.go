package redisstore_test

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

	"github.com/offpath-io/offpath/internal/servers/serverstest"
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
	data, err := events.Append(nil, m)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

func (c *crowd) Alarm(uint32, []byte) error { return nil }

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

// BenchmarkPipeline is a worker from the bytes of a report to those of its answer, with a real Redis:
// distinct keys per second.
func BenchmarkPipeline(b *testing.B) {
	bucket := time.Now().UnixNano() / int64(time.Hour)
	rule := func(bucket int64) *events.Rule {
		return &events.Rule{Name: "per-user", WindowMs: 3_600_000, Buckets: 1, Limit: 1e9, Newest: bucket}
	}
	const all = manyKeys / reportKeys
	for _, bm := range []struct {
		name         string
		before, warm int // reports of the previous and of the current bucket that come first
	}{
		{"two buckets of 1 M keys", all, all},
		{"first hits of a bucket", all, 0},
		{"one bucket", 0, all},
	} {
		b.Run(bm.name, func(b *testing.B) {
			url := serverstest.Redis(b).URL()
			busy := busyTime(b, url)
			start(b, url, newCrowd(b, 8, 0, rule(bucket-1), manyKeys))(bm.before)
			send := start(b, url, newCrowd(b, 8, 8, rule(bucket), manyKeys))
			send(bm.warm)
			b.ReportAllocs()
			b.ResetTimer()
			redisTime, ownTime := busy()
			send(b.N)
			b.ReportMetric(float64(b.N)*reportKeys/b.Elapsed().Seconds(), "keys/s")
			redisUsed, ownUsed := busy()
			b.ReportMetric(float64(redisUsed-redisTime)/float64(b.N*reportKeys), "redis-ns/key")
			b.ReportMetric(float64(ownUsed-ownTime)/float64(b.N*reportKeys), "own-ns/key")
		})
	}
}

// start starts a worker for the crowd, and returns what makes it work.
func start(b *testing.B, url string, c *crowd) (send func(reports int)) {
	b.Helper()
	w, err := aggregate.New(aggregate.Options{Store: open(b, url), Bus: c})
	if err != nil {
		b.Fatal(err)
	}
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

// busyTime returns what tells how long the server's and this process' CPUs have been busy.
func busyTime(b *testing.B, url string) func() (server, own time.Duration) {
	b.Helper()
	options, err := redis.ParseURL(url)
	if err != nil {
		b.Fatal(err)
	}
	admin := redis.NewClient(options)
	b.Cleanup(func() { admin.Close() })
	return func() (server, own time.Duration) {
		info, err := admin.InfoMap(context.Background(), "cpu").Result()
		if err != nil {
			b.Fatal(err)
		}
		for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
			d, err := time.ParseDuration(info["CPU"][field] + "s")
			if err != nil {
				b.Fatal(err)
			}
			server += d
		}
		var usage syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
			b.Fatal(err)
		}
		return server, time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
}
