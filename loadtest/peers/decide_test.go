package peers

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/memorystore"

	"google.golang.org/protobuf/proto"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/events/membus"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// A traffic is a sequence of keys, drawn beforehand so that drawing costs nothing. As in a service,
// the text of a key has just been read (it is next to the one before), and is a copy of its own, not
// the very string that the limiter keeps.
type traffic struct {
	name string
	keys []string
}

const distinct = 1_000_000

var traffics = sync.OnceValue(func() []traffic {
	r := rand.New(rand.NewPCG(1, 2))
	text := make([]string, distinct)
	for i := range text {
		text[i] = fmt.Sprintf("user:%06d", i)
	}
	zipf := rand.NewZipf(r, 1.1, 1, distinct-1)
	return []traffic{
		{"hot", draw(text, func() int { return 0 })},
		{"zipf", draw(text, func() int { return int(zipf.Uint64()) })},
		{"uniform", draw(text, func() int { return r.IntN(distinct) })},
	}
})

func draw(text []string, next func() int) []string {
	const hits = 1 << 22
	var all strings.Builder
	all.Grow(hits * len(text[0]))
	keys := make([]string, hits)
	for i := range keys {
		from := all.Len()
		all.WriteString(text[next()])
		keys[i] = all.String()[from:]
	}
	return keys
}

// limit is high enough that more than 99 % of the hits of every traffic pass.
const limit = 1_000_000_000

// BenchmarkDecide measures one decision in process, of cost 1: offpath with its reporter running
// into an in-memory bus (1 ms each way), and go-limiter's memory store.
func BenchmarkDecide(b *testing.B) {
	for _, t := range traffics() {
		b.Run("limiter=offpath/keys="+t.name, func(b *testing.B) { decideOffpath(b, t.keys) })
		b.Run("limiter=sethvargo/keys="+t.name, func(b *testing.B) { decideSethvargo(b, t.keys) })
	}
}

func decideOffpath(b *testing.B, keys []string) {
	set, err := rules.NewSet(rules.Rule{
		Name: "bench", Key: []string{"user"}, Limit: limit,
		Window: window.Shape{Length: time.Second, Buckets: 1},
	})
	if err != nil {
		b.Fatal(err)
	}
	bus := membus.New(membus.Options{Faults: membus.Faults{Delay: time.Millisecond}})
	answerReports(bus)
	c, err := check.New(check.Options{Rules: set, Link: bus.Checker("bench"), MaxLiveKeys: 2 * distinct})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { bus.Run(context.WithoutCancel(ctx)) })
	running.Go(func() { c.Run(ctx) })
	limiter, _ := c.Limiter("bench")
	warm(keys, func(key string) bool { return limiter.Check(key, 1).Allowed })
	before := c.Stats()
	measure(b, keys, func(key string) bool { return limiter.Check(key, 1).Allowed })
	after := c.Stats()
	b.ReportMetric(float64(after.ReportsAnswered-before.ReportsAnswered)/b.Elapsed().Seconds(), "reports/s")
	cancel()
}

// answerReports attaches a worker that answers every report at once with its own hits as totals: the
// cheapest aggregator there can be, since a real one's work is not the checker's.
func answerReports(bus *membus.Bus) {
	bus.Worker().Attach(func(kind events.Kind, payload []byte, reply func([]byte) error) {
		if reply == nil {
			return
		}
		if kind == events.KindHello {
			m, err := events.DecodeHello(payload)
			if err != nil {
				panic(err)
			}
			answer(reply, &events.Welcome{Epoch: m.Epoch, Sent: m.Sent, Shards: 1, Time: time.Now().UnixNano(), Checkers: 1})
			return
		}
		m, err := events.DecodeReport(payload)
		if err != nil {
			panic(err)
		}
		answer(reply, &events.Refresh{
			Epoch: m.Epoch, Shard: m.Shard, Sequence: m.Sequence, Generation: 1, Version: m.Sequence,
			KeyCells: m.Hits.KeyCells, Age: m.Hits.Age, Total: m.Hits.Value,
		})
	})
}

func decideSethvargo(b *testing.B, keys []string) {
	// An interval that does not end within the run: its refill of large buckets gives back too little.
	store, err := memorystore.New(&memorystore.Config{Tokens: 1 << 50, Interval: 24 * time.Hour, SweepInterval: 24 * time.Hour, SweepMinTTL: 24 * time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	defer store.Close(ctx)
	take := func(s limiter.Store) func(string) bool {
		return func(key string) bool {
			_, _, _, ok, _ := s.Take(ctx, key)
			return ok
		}
	}(store)
	warm(keys, take)
	measure(b, keys, take)
}

// warm shows every key once.
func warm(keys []string, decide func(string) bool) {
	for _, key := range keys {
		decide(strings.Clone(key))
	}
	runtime.GC()
}

// measure runs decide over the keys in parallel, each goroutine from a place of its own.
func measure(b *testing.B, keys []string, decide func(string) bool) {
	var starts atomic.Uint64
	var denied atomic.Int64
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		i := int(starts.Add(1)*7919*104729) % len(keys)
		no := int64(0)
		for pb.Next() {
			if !decide(keys[i]) {
				no++
			}
			if i++; i == len(keys) {
				i = 0
			}
		}
		denied.Add(no)
	})
	b.StopTimer()
	if share := float64(denied.Load()) / float64(b.N); share > 0.01 {
		b.Fatalf("%.1f %% of the hits were denied", 100*share)
	}
}

func answer(reply func([]byte) error, m proto.Message) {
	payload, err := events.Append(nil, m)
	if err == nil {
		err = reply(payload)
	}
	if err != nil {
		panic(err)
	}
}
