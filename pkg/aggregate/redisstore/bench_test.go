package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/events"
)

const (
	manyKeys = 1_000_000
	fewKeys  = 30_000 // of 60 buckets
)

// reportKeys is how many keys of a rule a checker puts into a report.
func reportKeys(rule *events.Rule) int {
	if rule.Buckets > 1 {
		return 250
	}
	return 1000
}

// crowd is a bus with a number of checkers behind it, each of which sends its reports one after the
// other, as the answers come. No two of them hold the same key.
type crowd struct {
	nowhere
	checkers [][][]byte // for each checker, for each report, what follows its header
	sequence []uint64   // for each checker
	epoch    uint64     // of the first

	ready  chan struct{}
	handle func(events.Kind, []byte, func([]byte) error)
}

func newCrowd(tb testing.TB, checkers int, firstEpoch uint64, rule *events.Rule, keys, cells int) *crowd {
	tb.Helper()
	c := &crowd{
		checkers: make([][][]byte, checkers),
		sequence: make([]uint64, checkers),
		epoch:    firstEpoch,
		ready:    make(chan struct{}),
	}
	order := rand.New(rand.NewPCG(1, 1)).Perm(keys)
	for i := 0; len(order) > 0; i++ {
		table := &events.Table{Rules: []*events.Rule{rule}}
		n := min(reportKeys(rule), len(order))
		for _, key := range order[:n] {
			table.AddKey(0, fmt.Sprintf("user:%06d", key))
			for age := range cells {
				table.AddCell(int64(age), uint64(1+key%9))
			}
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
	c.handle = h
	close(c.ready)
	<-ctx.Done()
	return nil
}

// send sends so many reports, by all checkers together, and returns when they are answered.
func (c *crowd) send(reports int) {
	<-c.ready
	var left atomic.Int64
	left.Store(int64(reports))
	var all sync.WaitGroup
	for i := range c.checkers {
		all.Go(func() { c.check(i, &left) })
	}
	all.Wait()
}

// check is one checker's life: a message is a header and a body, one after the other.
func (c *crowd) check(i int, left *atomic.Int64) {
	answered := make(chan struct{}, 1)
	var message []byte
	for left.Add(-1) >= 0 {
		c.sequence[i]++
		bodies := c.checkers[i]
		message, _ = events.Append(message[:0], &events.Report{Epoch: c.epoch + uint64(i) + 1, Shards: 1, Sequence: c.sequence[i]})
		message = append(message, bodies[c.sequence[i]%uint64(len(bodies))]...)
		c.handle(events.KindReport, message, func([]byte) error { answered <- struct{}{}; return nil })
		<-answered
	}
}

// BenchmarkPipeline is a worker from the bytes of a report to those of its answer, with a real
// Redis: distinct keys per second, and what each took of Redis' CPU and of ours. Redis is what
// bounds it.
//
// Redis' CPU time in ns per key, before totals were remembered by the id of the last batch and
// since, in turn on a machine with many other things to do, which made all of it about twice as
// slow:
//
//	                               before    since
//	two buckets of 1 M keys          3690     2840    HINCRBY alone: 2350 (BenchmarkFloor)
//	first hits of a bucket           6270     3020
//	first hits, not remembered       6000     7290    read once, to know whether the key is new
//	60 buckets                     20,530     2960
//
// Tried, before: 2^12 groups, searched for longer, 3040 to 3290 against 2210 to 2700 with 2^14.
//
// Absolute totals by HSET, if the id is the expected one, would take 2180 instead of 2690 (one
// search of the hash instead of two; medians of 4 of BenchmarkFloor), and as much memory. But then
// a call cannot be made before the one before it has been read, as that changes the totals, and
// Redis would wait for it; and what this process believed wrongly would become true.
//
// Half of the time goes into cache misses: a hash is found by way of two tables, two entries, a
// name and an object. That is why not looking at all pays.
func BenchmarkPipeline(b *testing.B) {
	now := time.Now().UnixNano()
	one := func(age int64) *events.Rule {
		bucket := now/int64(time.Hour) - age
		return &events.Rule{Name: "per-user", WindowMs: 3_600_000, Buckets: 1, Limit: 1e9, Newest: bucket}
	}
	many := &events.Rule{Name: "per-user", WindowMs: 3_600_000, Buckets: 60, Limit: 1e9, Newest: now / int64(time.Minute)}
	for _, bm := range []struct {
		name         string
		before, rule *events.Rule
		keys, cells  int  // of the rule before
		warm         bool // all have been reported in the current bucket, too
		others       bool // another aggregator has reported what was before
	}{
		{"two buckets of 1 M keys", one(1), one(0), manyKeys, 1, true, false},
		{"first hits of a bucket", one(1), one(0), manyKeys, 1, false, false},
		{"first hits, not remembered", one(1), one(0), manyKeys, 1, false, true},
		{"60 buckets", many, many, fewKeys, 60, true, false},
	} {
		b.Run(bm.name, func(b *testing.B) {
			admin, store, other := empty(b), open(b, Options{}), open(b, Options{})
			if !bm.others {
				other = store
			}
			sendBefore := start(b, other, newCrowd(b, 8, 0, bm.before, bm.keys, bm.cells))
			send := start(b, store, newCrowd(b, 8, 8, bm.rule, bm.keys, 1))
			all := bm.keys / reportKeys(bm.rule)
			var used busyTime
			b.ReportAllocs()
			b.ResetTimer()
			for left := b.N; left > 0; {
				b.StopTimer()
				noError(b, admin.FlushAll(b.Context()).Err())
				sendBefore(all)
				n := left
				if bm.warm {
					send(all)
				} else {
					n = min(n, all)
				}
				left -= n
				used.add(b, admin, -1)
				b.StartTimer()
				send(n)
				used.add(b, admin, 1)
			}
			keys := float64(b.N * reportKeys(bm.rule))
			b.ReportMetric(keys/b.Elapsed().Seconds(), "keys/s")
			b.ReportMetric(float64(used.redis)/keys, "redis-ns/key")
			b.ReportMetric(float64(used.own)/keys, "own-ns/key")
		})
	}
}

// BenchmarkFloor is what Redis takes for nothing but the additions of a batch, in this layout: one
// command for each of 2,000 keys in a script, with keys and values as the store sends them. HSET
// would be for absolute totals.
func BenchmarkFloor(b *testing.B) {
	store, admin := newStore(b, 1)
	now := time.Now().UnixNano()
	order := rand.New(rand.NewPCG(1, 1)).Perm(manyKeys)
	frames := make([]frame, manyKeys/2000)
	run := func(b *testing.B, command string, frame int) {
		b.Helper()
		source := fmt.Sprintf(floorSource, command)
		if _, err := store.eval(b.Context(), &frames[frame], redis.NewScript(source), source); !errors.Is(err, redis.Nil) {
			b.Fatal(err)
		}
	}
	for age := range int64(2) {
		for i := range frames {
			batch := hitAt(now, 0, 1, 1-age)
			cells := batch.Keys[0].Cells
			batch.Keys = nil
			for _, key := range order[2000*i:][:2000] {
				batch.Keys = append(batch.Keys, storage.Key{Text: fmt.Sprintf("user:%06d", key), Cells: cells})
			}
			c, f := newCall(store, batch), &frames[i]
			f.begin(store.namespace, 0)
			f.body = packList(nil, 2*len(batch.Keys))
			for key := range batch.Keys {
				f.name(strings.TrimPrefix(c.bucketName(0, cells[0].Bucket), c.pre), string(appendGroup(nil, c.checks[key]&(c.groups-1), false)))
				f.body = packDigits(packText(f.body, c.fields[key]), 1+int64(key)%9)
			}
			f.finish()
			run(b, "HINCRBY", i)
		}
	}
	for _, command := range []string{"HINCRBY", "HSET"} {
		b.Run(command, func(b *testing.B) {
			var used busyTime
			used.add(b, admin, -1)
			b.ResetTimer()
			for i := range b.N {
				run(b, command, i%len(frames))
			}
			b.StopTimer()
			used.add(b, admin, 1)
			keys := float64(2000 * b.N)
			b.ReportMetric(keys/b.Elapsed().Seconds(), "keys/s")
			b.ReportMetric(float64(used.redis)/keys, "redis-ns/key")
		})
	}
}

const floorSource = `
local a = cmsgpack.unpack(ARGV[1])
for i = 1, #KEYS do redis.call('%s', KEYS[i], a[2 * i - 1], a[2 * i]) end`

// start starts a worker for the crowd on a store, and returns what makes it work.
func start(b *testing.B, store *Store, c *crowd) (send func(reports int)) {
	b.Helper()
	w := must(aggregate.New(aggregate.Options{Store: store, Bus: c}))(b)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	b.Cleanup(func() { stop(); noError(b, <-ended) })
	try(func() bool { time.Sleep(10 * time.Millisecond); return w.Ready() == nil }) // it takes no reports before
	noError(b, w.Ready())
	return c.send
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
