package endtoend

import (
	"fmt"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// TestDecisionsAndLedgerAreExact holds every single decision against what its checker can know, and
// the ledger in the end against what was admitted, through random traffic, accidents and bad
// networks. In every second fleet limits change, at each checker at another time: the next decision
// is by the new one.
func TestDecisionsAndLedgerAreExact(t *testing.T) {
	happened := seen{"late": 0, "reloaded": 0, "agreed": 0, "two owners": 0}
	for seed := range seeds(12, 1600) {
		w := newWorld(t, options{seed: seed / 2, faults: faultsOf(seed / 2)})
		if w.rand.IntN(4) == 0 { // the network is down from the start
			w.bus.Cut("", true)
		}
		w.play(150, rough, func() {
			if seed%2 == 1 && w.rand.IntN(8) == 0 {
				w.publish(w.otherLimits())
			}
			if seed%2 == 1 && w.rand.IntN(4) == 0 {
				w.reload(w.rand.IntN(len(w.checkers)))
				happened["reloaded"]++
			}
			for range w.rand.IntN(4) {
				w.randomHit()
			}
			happened.note("two owners", w.owned() > w.shards)
		})
		w.publish(testRules)
		w.reloadAll()
		w.end(func() { w.agreeOnHits("minute", 4, w.hit) })
		happened.add(w)
		for _, r := range w.ledger() {
			happened["late"] += r.Late
		}
	}
	happened.all(t)
}

// owned is how many shards the workers believe to own, in all.
func (w *world) owned() (n int) {
	for _, k := range w.workers {
		n += k.Stats().Owned
	}
	return n
}

var algorithmRules = []rules.Rule{
	{Name: "log", Key: []string{"user"}, Limit: 60, Algorithm: rules.SlidingLog, Window: window.Shape{Length: time.Minute}},
	bucket("tokens", rules.TokenBucket, 60, 90, time.Minute),
	bucket("fast", rules.TokenBucket, 30, 50, time.Second),
	bucket("queue", rules.LeakyBucket, 20, 10, time.Second),
}

// TestEveryAlgorithmCountsExactly: nothing is lost and nothing is counted twice by any algorithm,
// and in the end all checkers know of each key what a limiter that saw every hit knows. No outage
// is so long that hits come too late to be in a bucket's level.
func TestEveryAlgorithmCountsExactly(t *testing.T) {
	happened := seen{"agreed": 0}
	for seed := range seeds(8, 500) {
		w := newWorld(t, options{seed: seed, faults: faultsOf(seed), rules: algorithmRules})
		p := rough
		p.outage = 10 * time.Second
		w.play(120, p, func() {
			for range w.rand.IntN(8) {
				r := algorithmRules[w.rand.IntN(len(algorithmRules))].Name
				w.request(w.anyone(), r, w.key(2), 1+w.rand.Int64N(3))
			}
		})
		w.end(func() { w.agreeOnHits("log", 2, w.request) }, func() { w.agreeOnHits("tokens", 2, w.request) })
		happened.add(w)
	}
	happened.all(t)
}

// request sends one request to a checker, and notes it if it passes.
func (w *world) request(c *checker, rule, key string, cost int64) bool {
	w.asked++
	l, _ := c.Limiter(rule)
	at := w.now + int64(c.Stats().ClockOffset)
	if !l.Check(key, cost).Allowed {
		return false
	}
	(*recall(w.truth, place{rule, key}))[l.Rule().Window.Bucket(at)] += cost
	w.admitted += cost
	return true
}

// agreeOnHits is agree by all hits that ever passed.
func (w *world) agreeOnHits(rule string, keys int, hit func(c *checker, rule, key string, cost int64) bool) {
	w.t.Helper()
	r, _ := w.rules.Lookup(rule)
	w.agree(r, keys, func(c *checker, key string) bool { return hit(c, rule, key, 1) },
		func(key string) history { return *recall(w.truth, place{rule, key}) })
}

// agree lets one checker after the other report a hit of every key of a rule. By its answer each
// must know exactly what the truth leaves; under a token bucket, where its own hits may be dated in
// their buckets of time, no less, and no more than hits that had all come when those began. Nothing
// of it is late, since the rule's window is longer than any accident.
func (w *world) agree(r *rules.Rule, keys int, hit func(c *checker, key string) bool, truth func(key string) history) {
	w.t.Helper()
	for i := range keys {
		key := fmt.Sprint("k", i)
		w.advance(5 * time.Second) // so that some hits fit
		for _, c := range w.checkers {
			passed := hit(c, key)
			w.advance(time.Second + w.quietFor)
			if !passed {
				continue
			}
			w.agreed++
			want, got := w.leftOf(r, truth(key)), w.left(c, r.Name, key)
			most := want
			if r.Algorithm == rules.TokenBucket { // if all came when their buckets began
				most = w.leftOf(r, truth(key).sooner())
			}
			w.require(got >= want && got <= most, "%s knows of %d left of %s of %s, the truth is %d to %d",
				c.name, got, key, r.Name, want, most)
		}
	}
}

// leftOf is what is left by the rule's arithmetic, on everything that ever passed.
func (w *world) leftOf(r *rules.Rule, all history) int64 {
	if !r.Window.Drains() {
		return r.Window.Remaining(all.counts(r.Window, w.now), r.Limit, w.now)
	}
	begin := start - int64(r.Window.BucketSize()) // of hits that came sooner
	return r.Drain().Remaining(window.Level{Bucket: r.Window.Bucket(begin) - 1}, all.since(begin, r.Window, w.now), w.now)
}

// sooner is the history of hits that each came a bucket sooner.
func (h history) sooner() history {
	before := make(history)
	for bucket, n := range h {
		before[bucket-1] = n
	}
	return before
}

// since returns the counts of all buckets from that of a time on, the newest first.
func (h history) since(begin int64, s window.Shape, now int64) (counts []int64) {
	for b := s.Bucket(now); b >= s.Bucket(begin); b-- {
		counts = append(counts, h[b])
	}
	return counts
}
