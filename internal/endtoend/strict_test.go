package endtoend

import (
	"fmt"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/testing/membus"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// admit notes a hit that has passed, at the time that it truly is, and holds the rule's own count
// of all admitted hits against its limit.
func (w *world) admit(p place, shape window.Shape, limit, cost int64) {
	w.t.Helper()
	h := recall(w.truth, p)
	left := shape.Remaining(h.counts(shape, w.now), limit, w.now)
	w.require(cost <= left, "%d hits of %v pass with %d left of %d", cost, p, left, limit)
	(*h)[shape.Bucket(w.now)] += cost
	w.admitted += cost
}

// permit notes a hit of a strict rule that has passed.
func (w *world) permit(r *rules.Rule, key string, cost int64) {
	w.t.Helper()
	w.admit(place{counterOf(r.Name, r.Window), key}, r.Window, w.highest(r), cost)
}

// ask sends one request by one strict rule.
func (w *world) ask(i int, rule, key string, cost int64) check.Decision {
	w.t.Helper()
	w.asked++
	c := w.checkers[i]
	l, _ := c.Limiter(rule)
	d := l.Check(key, cost)
	if d.Allowed {
		w.permit(l.Rule(), key, cost)
	} else if d.RetryAfter <= 0 {
		w.fail("%s denies, and says to come again at once: %+v", c.name, d)
	}
	w.wake(c)
	return d
}

// askByAll sends one request by all strict rules at once: it is charged to all or to none.
func (w *world) askByAll(i int, key string, cost int64) {
	w.t.Helper()
	w.asked++
	c := w.checkers[i]
	if c.Check(attributes("user="+key), cost).Allowed {
		for _, r := range w.rules.Rules() {
			w.permit(r, key, cost)
		}
	}
	w.wake(c)
}

// TestStrictNeverExceedsTheLimit runs fleets under strict enforcement through random traffic, on
// networks that delay, lose and repeat everything, with clocks that are wrong, with killed checkers
// and aggregators, and with a store that loses data: no rule's own count of all admitted hits ever
// exceeds its limit.
func TestStrictNeverExceedsTheLimit(t *testing.T) {
	happened := seen{"repeated leases": 0}
	for seed := range seeds(20, 500) {
		o := options{seed: seed, faults: faultsOfAll(seed), rules: strictly(testRules...), prompt: true}
		loses := seed%5 == 4
		if loses { // on a good network, or so few hits would pass that it did not matter
			o.shards, o.faults = 1, membus.Faults{Delay: 2 * time.Millisecond}
		}
		w := newWorld(t, o)
		w.askStrictly(seed%2 == 0, seed%3 == 0, loses)
		if !loses { // after a loss nothing is granted for a window
			happened.add(w)
		}
	}
	happened.all(t)
	happened.passed(t, 10)
}

// askStrictly plays a schedule by strict rules.
func (w *world) askStrictly(skewed, kills, loses bool) {
	w.t.Helper()
	if skewed {
		w.skewClocks(2 * time.Second)
	}
	w.advance(time.Second)
	life, keys := 0, 3
	if loses {
		keys = 1
		w.advance(2 * time.Second) // until all workers, or the memory, know of the first state
		if w.immortal = len(w.workers) == 1; w.immortal {
			w.snapshot = w.store.Snapshot()
		}
	}
	w.play(150, mild, func() {
		if loses {
			w.loss(100)
		}
		if kills && w.rand.IntN(60) == 0 { // with all that a checker knows; another one takes its place
			i := w.rand.IntN(len(w.checkers))
			w.checkers[i].link.Attach(nil)
			life++
			w.checkers[i] = w.newChecker(i, fmt.Sprintf("c%d-%d", i, life), uint64(1000*life+i))
		}
		for range w.rand.IntN(12) {
			i, key, cost := w.rand.IntN(len(w.checkers)), w.key(keys), w.cost()
			if w.rand.IntN(8) == 0 {
				w.askByAll(i, key, cost)
				continue
			}
			w.ask(i, testRules[w.rand.IntN(len(testRules))].Name, key, cost)
		}
	})
	w.mend()
	if !kills && !loses { // what the dead have not delivered is lost
		w.conserved()
	}
}

// TestStrictHoldsAtTheEdgesOfBuckets lets all traffic come about the edges of buckets, where a
// clock that is late spends permits of a bucket that is over. Hellos take differently long each
// way, so that clocks stay wrong.
func TestStrictHoldsAtTheEdgesOfBuckets(t *testing.T) {
	for seed := range seeds(4, 120) {
		w := newWorld(t, options{
			seed: seed, checkers: 4, workers: 1, shards: 1, rules: strictly(testRules[1], testRules[0]), prompt: true,
			faults: membus.Faults{ // the lease requests are fast; only clocks suffer
				Jitter: time.Duration(20+seed%40) * time.Millisecond, Only: []events.Kind{events.KindHello, events.KindWelcome},
			},
		})
		w.skewClocks(2 * time.Second)
		w.advance(time.Second)
		for range 8 {
			shape := testRules[1].Window
			edge := shape.End(shape.Bucket(w.now + int64(100*time.Millisecond)))
			w.advance(time.Duration(edge - w.now - int64(60*time.Millisecond)))
			for w.now < edge+int64(60*time.Millisecond) {
				w.ask(w.rand.IntN(4), testRules[w.rand.IntN(2)].Name, "k", 1)
				w.pass(2 * time.Millisecond)
			}
		}
		w.require(w.admitted >= 8*15, "%d hits passed: too tame", w.admitted)
	}
}

// TestStrictHoldsWhenTheStoreLosesData, everything or what came after a copy: workers that remember
// that there was more, or that start meanwhile and are reminded by the memory, make the store grant
// nothing until no permit from before can count any more; then hits pass again.
func TestStrictHoldsWhenTheStoreLosesData(t *testing.T) {
	for seed := range seeds(5, 120) {
		w := newWorld(t, wellConnected(seed, 3, strictly(testRules[:3]...)...))
		w.advance(time.Second)
		ask := func(n int) {
			for range n {
				w.ask(w.rand.IntN(3), testRules[w.rand.IntN(3)].Name, "k", 1)
				w.pass(8 * time.Millisecond)
			}
		}
		ask(300)
		old := w.store.Snapshot()
		ask(300) // for more than a second, and so the memory knows of later states
		if seed%2 == 0 {
			for i := range w.workers {
				w.killWorker(i)
			}
		}
		if w.store.Restore(old); seed/2%2 == 0 {
			w.store.Lose()
		}
		ask(900)
		before := w.admitted
		ask(500)
		w.require(w.admitted > before, "nothing passes any more")
	}
}

// TestStrictUsesItsLimit offers one and a half times the limit on a good network. A hit that is
// denied comes again after 5 ms, four times, which is what Acquire is like: at least 98 % of the
// limit is used.
func TestStrictUsesItsLimit(t *testing.T) {
	fleets, length := []int{4}, 2*time.Second
	if !testing.Short() {
		fleets, length = []int{1, 4, 8}, 10*time.Second
	}
	for _, shape := range []window.Shape{
		{Length: time.Second, Buckets: 1},
		{Length: time.Second, Buckets: 10},
		{Length: time.Second, Buckets: 1, Fixed: true},
	} {
		for _, checkers := range fleets {
			w := newWorld(t, wellConnected(7, checkers, strictly(counting("r", 1000, shape))...))
			w.skewClocks(2 * time.Second)
			w.advance(2 * time.Second)
			w.offer("r", 1500, 2*time.Second)
			before := w.admitted
			w.offer("r", 1500, length)
			used := float64(w.admitted-before) / (1000 * length.Seconds())
			t.Logf("%+v, %d checkers: %.1f %% used", shape, checkers, 100*used)
			expect(t, used >= 0.98 && (used <= 1 || shape.Fixed || shape.Buckets == 1),
				"%+v, %d checkers: %.1f %% of the limit used, want 98 to 100", shape, checkers, 100*used)
		}
	}
}

// offer sends hits at random times and checkers for so long, and those denied again.
func (w *world) offer(rule string, perSecond float64, length time.Duration) {
	type again struct {
		at       int64
		i, tries int
	}
	var queue []again
	next := w.now
	for until := w.now + int64(length); w.now < until; {
		var a again
		if len(queue) > 0 && queue[0].at <= next {
			a, queue = queue[0], queue[1:]
		} else {
			a = again{next, w.rand.IntN(len(w.checkers)), 0}
			next += int64(w.rand.ExpFloat64() / perSecond * 1e9)
		}
		w.advance(time.Duration(max(a.at-w.now, 0)))
		if !w.ask(a.i, rule, "k", 1).Allowed && a.tries < 4 {
			queue = append(queue, again{w.now + int64(5*time.Millisecond), a.i, a.tries + 1})
		}
	}
}
