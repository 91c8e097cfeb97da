package endtoend

import (
	"fmt"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/testing/membus"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// strictly returns rules of the same limits, strictly enforced.
func strictly(list []rules.Rule) []rules.Rule {
	strict := make([]rules.Rule, len(list))
	for i, r := range list {
		r.Enforcement = rules.Strict
		strict[i] = r
	}
	return strict
}

func newStrictWorld(t *testing.T, seed uint64, checkers, workers, shards int, faults membus.Faults, list ...rules.Rule) *world {
	w := newWorldOf(t, seed, checkers, workers, shards, faults, strictly(list)...)
	w.heeds = true
	return w
}

// admit notes a hit that has passed, at the time that it truly is, and holds the rule's own count of all
// admitted hits against its limit.
func (w *world) admit(r *rules.Rule, key string, cost int64) {
	w.t.Helper()
	h, limit := recall(w.truth, place{counterOf(r.Name, r.Window), key}), w.highest(r)
	if left := r.Window.Remaining(h.counts(r.Window, w.now), limit, w.now); cost > left {
		w.fail("%d hits of %s pass under rule %s with %d left of %d", cost, key, r.Name, left, limit)
	}
	(*h)[r.Window.Bucket(w.now)] += cost
	w.admitted += cost
}

// ask sends one request by one rule.
func (w *world) ask(i int, rule, key string, cost int64) check.Decision {
	w.t.Helper()
	w.asked++
	c := w.checkers[i]
	l, _ := c.Limiter(rule)
	d := l.CheckAt(w.own(i), key, cost)
	if d.Allowed {
		w.admit(l.Rule(), key, cost)
	} else if d.RetryAfter <= 0 {
		w.fail("%s denies, and says to come again at once: %+v", c.name, d)
	}
	w.heed(c)
	return d
}

// askAll sends one request by all rules at once: it is charged to all or to none.
func (w *world) askAll(i int, key string, cost int64) {
	w.t.Helper()
	w.asked++
	c := w.checkers[i]
	attrs := identity.Attributes{{Name: "user", Value: key}}
	if c.CheckAt(w.own(i), attrs, cost).Allowed {
		for _, r := range w.rules.Rules() {
			text, _ := r.AppendKey(nil, attrs)
			w.admit(r, string(text), cost)
		}
	}
	w.heed(c)
}

// killChecker takes a checker away with all that it knows, and starts another in its place. What the dead one
// had not delivered is nobody's, so the ledger cannot be held against the hits any more.
func (w *world) killChecker(i int, life int) {
	w.checkers[i].link.Attach(nil)
	c := w.newChecker(fmt.Sprintf("c%d-%d", i, life), uint64(1000*(life+1)+i))
	w.attach(c, i)
	w.checkers[i] = c
}

// skewClocks puts every checker's clock up to 2 s off.
func (w *world) skewClocks() {
	w.skew = make([]int64, len(w.checkers))
	for i := range w.skew {
		w.skew[i] = w.rand.Int64N(4*int64(time.Second)) - 2*int64(time.Second)
	}
}

// TestStrictSchedules runs fleets under strict enforcement through random traffic, on networks that delay, lose
// and repeat everything, with clocks that are wrong, and with killed checkers and aggregators: no rule's own
// count of all admitted hits ever exceeds its limit.
func TestStrictSchedules(t *testing.T) {
	schedules := uint64(1500)
	if testing.Short() {
		schedules = 40
	}
	var asked, admitted, repeated int64
	for seed := range schedules {
		w := runStrict(t, seed)
		asked, admitted = asked+w.asked, admitted+w.admitted
		for _, c := range w.checkers {
			repeated += c.Stats().LeasesRepeated
		}
	}
	t.Logf("%d schedules: %d requests, %d hits passed; %d lease requests repeated", schedules, asked, admitted, repeated)
	if admitted < asked/10 || repeated == 0 {
		t.Error("the schedules were too tame")
	}
}

func runStrict(t *testing.T, seed uint64) *world {
	t.Helper()
	faults := randomFaults(seed)
	faults.Only = nil
	if seed%5 < 3 { // mild enough for permits to come in time
		faults.Lose, faults.Jitter = faults.Lose/8, faults.Jitter/16
	}
	w := newStrictWorld(t, seed, 1+int(seed%4), 1+int(seed/4%3), 1+int(seed/12%3), faults, testRules...)
	if seed%2 == 0 {
		w.skewClocks()
	}
	kills := seed%3 == 0
	w.advance(time.Second)
	for step := range 150 {
		if w.rand.IntN(4) == 0 {
			w.accident()
		}
		if kills && w.rand.IntN(60) == 0 {
			w.killChecker(w.rand.IntN(len(w.checkers)), step)
		}
		for range w.rand.IntN(12) {
			w.randomStrictHit()
		}
		w.advance(time.Duration(w.rand.Int64N(int64(30 * time.Millisecond))))
		if w.rand.IntN(60) == 0 {
			w.advance(time.Duration(w.rand.Int64N(int64(4 * time.Second))))
		}
	}
	w.settle()
	if !kills {
		w.conserved()
	}
	return w
}

func (w *world) randomStrictHit() {
	i, key, cost := w.rand.IntN(len(w.checkers)), fmt.Sprint("k", w.rand.IntN(3)), int64(1)
	if w.rand.IntN(5) == 0 {
		cost += w.rand.Int64N(4)
	}
	if w.rand.IntN(8) == 0 {
		w.askAll(i, key, cost)
		return
	}
	w.ask(i, testRules[w.rand.IntN(len(testRules))].Name, key, cost)
}

// TestStrictAtTheEdge lets all traffic come about the edges of buckets, where a clock that is behind spends
// permits of a bucket that is over. Hellos take differently long each way, so that clocks stay wrong.
func TestStrictAtTheEdge(t *testing.T) {
	seeds := uint64(120)
	if testing.Short() {
		seeds = 8
	}
	for seed := range seeds {
		// The lease requests are fast; only clocks suffer.
		faults := membus.Faults{Jitter: time.Duration(20+seed%40) * time.Millisecond, Only: []events.Kind{events.KindHello, events.KindWelcome}}
		w := newStrictWorld(t, seed, 4, 1, 1, faults, testRules[1], testRules[0])
		w.skewClocks()
		w.advance(time.Second)
		for range 8 {
			edge := w.rules.Rules()[0].Window.End(w.rules.Rules()[0].Window.Bucket(w.now + int64(100*time.Millisecond)))
			w.advance(time.Duration(edge - w.now - int64(60*time.Millisecond)))
			for w.now < edge+int64(60*time.Millisecond) {
				w.ask(w.rand.IntN(4), testRules[w.rand.IntN(2)].Name, "k", 1)
				w.advance(time.Duration(w.rand.Int64N(int64(2 * time.Millisecond))))
			}
		}
		if w.admitted < 8*15 {
			w.fail("%d hits passed: too tame", w.admitted)
		}
	}
}

// TestStrictStoreLosesEverything: those who remember that there was more make the store grant nothing until no
// permit from before can count any more.
func TestStrictStoreLosesEverything(t *testing.T) {
	for seed := range uint64(60) {
		w := newStrictWorld(t, seed, 3, 2, 1, membus.Faults{Delay: time.Millisecond}, testRules[:3]...)
		w.advance(time.Second)
		for step := range 1500 {
			if step == 600 {
				w.store.Lose()
			}
			w.ask(w.rand.IntN(3), testRules[w.rand.IntN(3)].Name, "k", 1)
			w.advance(time.Duration(w.rand.Int64N(int64(8 * time.Millisecond))))
		}
		before := w.admitted
		for range 500 {
			w.ask(w.rand.IntN(3), testRules[w.rand.IntN(3)].Name, "k", 1)
			w.advance(4 * time.Millisecond)
		}
		if w.admitted == before {
			w.fail("nothing passes any more")
		}
	}
}

// TestStrictUsesItsLimit offers one and a half times the limit on a good network. A hit that is denied comes
// again after 5 ms, four times, which is what Acquire is like: at least 95 % of the limit is used.
func TestStrictUsesItsLimit(t *testing.T) {
	for _, shape := range []window.Shape{
		{Length: time.Second, Buckets: 1},
		{Length: time.Second, Buckets: 10},
		{Length: time.Second, Buckets: 1, Fixed: true},
	} {
		for _, checkers := range []int{1, 4, 8} {
			r := rules.Rule{Name: "r", Key: []string{"user"}, Limit: 1000, Window: shape}
			w := newStrictWorld(t, 7, checkers, 2, 1, membus.Faults{Delay: 2 * time.Millisecond}, r)
			w.skewClocks()
			w.advance(2 * time.Second)
			w.offer(r.Name, 1500, 3*time.Second)
			before := w.admitted
			w.offer(r.Name, 1500, 10*time.Second)
			used := float64(w.admitted-before) / 10_000
			t.Logf("%+v, %d checkers: %.1f %% used", shape, checkers, 100*used)
			if used < 0.95 || used > 1 && !shape.Fixed && shape.Buckets > 1 {
				t.Errorf("%+v, %d checkers: %.1f %% of the limit used, want at least 95", shape, checkers, 100*used)
			}
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
