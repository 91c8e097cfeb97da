package endtoend

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// passed is a hit that was admitted between begin and at.
type passed struct {
	begin, at int64

	rule *rules.Rule
	key  string
	cost int64
}

// TestStrictLive asks real checkers for permits of a real Redis, from many goroutines, while an aggregator dies
// between a grant's write and its answer, and a checker with the permits that it has. Redis runs on this
// machine's clock, so that is the true time.
func TestStrictLive(t *testing.T) {
	list := strictly([]rules.Rule{
		{Name: "second", Key: []string{"user"}, Limit: 100, Window: window.Shape{Length: time.Second, Buckets: 1}},
		{Name: "fixed", Key: []string{"user"}, Limit: 60, Window: window.Shape{Length: time.Second, Buckets: 1, Fixed: true}},
		{Name: "cut", Key: []string{"user"}, Limit: 150, Window: window.Shape{Length: 2 * time.Second, Buckets: 4}},
	})
	f := newLive(t, singleRedis(t), 3, 2, list...)
	f.welcomed()
	ctx, cancel := context.WithTimeout(context.Background(), 6*time.Second)
	defer cancel()
	var mu sync.Mutex
	var all []passed
	var running sync.WaitGroup
	for i, c := range f.checkers {
		for g := range 4 {
			running.Go(func() {
				r := rand.New(rand.NewPCG(uint64(i), uint64(g)))
				for ctx.Err() == nil {
					p := passed{rule: f.rules.Rules()[r.IntN(len(list))], key: fmt.Sprint("k", r.IntN(2)), cost: 1 + r.Int64N(2)}
					l, _ := c.Limiter(p.rule.Name)
					p.begin = time.Now().UnixNano()
					wait, stop := context.WithTimeout(ctx, 20*time.Millisecond)
					d, err := l.Acquire(wait, p.key, p.cost)
					stop()
					p.at = time.Now().UnixNano()
					if d.Allowed {
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
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(all)
	}
	f.until("some hits pass", func() bool { return count() > 200 })
	f.workers[0].store.deadly.Store(true)
	f.until("the aggregator dies", func() bool { return f.workers[0].conn.IsClosed() })
	before := count()
	f.until("hits pass again", func() bool { return count() > before+50 || ctx.Err() != nil })
	_ = f.checkers[2].stop()
	running.Wait()

	slices.SortStableFunc(all, func(a, b passed) int { return int(a.at - b.at) })
	truth, straddling := make(map[place]*history), 0
	for _, p := range all {
		h, w := recall(truth, place{p.rule.Name, p.key}), p.rule.Window
		f.admitted.Add(p.cost)
		if w.Bucket(p.begin) != w.Bucket(p.at) { // nobody can tell in which it was decided
			straddling++
			continue
		}
		if left := w.Remaining(h.counts(w, p.at), p.rule.Limit, p.at); p.cost > left {
			t.Fatalf("%d hits of %s pass under rule %s with %d left", p.cost, p.key, p.rule.Name, left)
		}
		(*h)[w.Bucket(p.at)] += p.cost
	}
	if straddling > len(all)/4 {
		t.Errorf("%d of %d hits were decided about the edge of a bucket", straddling, len(all))
	}
	f.decided.Store(int64(len(all)))
	f.conserved()
	if f.admitted.Load() < 1500 { // of 2 keys under 3 rules in about 6 s, with an aggregator gone for a while
		t.Errorf("%d hits passed: too few", f.admitted.Load())
	}
}
