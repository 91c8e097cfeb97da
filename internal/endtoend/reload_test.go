package endtoend

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// counterOf names what is counted apart from others: a rule of testRules by its name, and one of
// another shape by that too.
func counterOf(rule string, s window.Shape) string {
	for _, r := range testRules {
		if r.Name == rule && r.Window != s {
			return fmt.Sprint(rule, s)
		}
	}
	return rule
}

func shapeOf(r *events.Rule) window.Shape {
	return window.Shape{
		Length: time.Duration(r.WindowMs) * time.Millisecond, Buckets: int(r.Buckets),
		Fixed: r.Algorithm == events.Algorithm_FIXED_WINDOW,
	}
}

// publish makes the newest rules, which reload brings to the checkers.
func (w *world) publish(list []rules.Rule) {
	w.published = append(w.published, list)
	w.revision++
}

// reload lets a checker take over all that has been published since it last did.
func (w *world) reload(i int) {
	w.t.Helper()
	c := w.checkers[i]
	for r := min(c.Revision()+1, w.revision); r <= w.revision; r++ {
		set, err := rules.NewSet(w.published[r]...)
		if err == nil {
			err = c.SetRules(set, r)
		}
		must(w.t, err)
	}
	w.wake(c)
}

func (w *world) reloadAll() {
	w.t.Helper()
	for i := range w.checkers {
		w.reload(i)
	}
}

// highest is the highest limit that permits may have been granted by: of the revisions from the
// oldest that a checker decides by, or of all if a request of before a change may be carried out
// after one of after it, by an aggregator that has not heard of the change.
func (w *world) highest(r *rules.Rule) int64 {
	if w.revision == 0 {
		return r.Limit
	}
	oldest := w.revision
	for _, c := range w.checkers {
		oldest = min(oldest, c.Revision())
	}
	if w.reorders {
		oldest = 0
	}
	highest := int64(0)
	for _, list := range w.published[oldest:] {
		for i := range list {
			if list[i].Name == r.Name && list[i].Window == r.Window {
				highest = max(highest, list[i].Limit)
			}
		}
	}
	return highest
}

// otherLimits are testRules with other limits, some higher, some lower.
func (w *world) otherLimits() []rules.Rule {
	other := slices.Clone(testRules)
	for i := range other {
		limit := other[i].Limit
		other[i].Limit = []int64{limit, 1, limit / 2, limit + 1, 2 * limit, 150}[w.rand.IntN(6)]
	}
	w.rand.Shuffle(len(other), func(i, j int) { other[i], other[j] = other[j], other[i] })
	return other
}

// TestStrictHoldsTheNewLimits changes limits under strict enforcement, at each checker at another
// time: no hit passes that does not fit the highest limit by which any checker decides, whatever
// was granted before. So once all have taken over a lower one, no hit passes beyond that.
func TestStrictHoldsTheNewLimits(t *testing.T) {
	happened := seen{"repeated leases": 0}
	for seed := range seeds(10, 400) {
		faults, workers := faultsOfAll(seed), 0
		if seed%2 == 0 { // messages are lost and late, but in order
			workers, faults.Repeat, faults.Jitter = 1, 0, 0
		}
		w := newWorld(t, options{seed: seed, workers: workers, faults: faults, rules: strictly(testRules...), prompt: true})
		w.reorders, w.immortal = seed%2 != 0, seed%2 == 0
		if seed%3 == 0 {
			w.skewClocks(2 * time.Second)
		}
		w.advance(time.Second)
		w.play(150, mild, func() {
			if w.rand.IntN(8) == 0 {
				w.publish(strictly(w.otherLimits()...))
				if w.rand.IntN(2) == 0 {
					w.reloadAll()
				}
			}
			if w.rand.IntN(4) == 0 {
				w.reload(w.rand.IntN(len(w.checkers)))
			}
			for range w.rand.IntN(12) {
				rule := testRules[w.rand.IntN(len(testRules))].Name
				w.ask(w.rand.IntN(len(w.checkers)), rule, w.key(3), 1+w.rand.Int64N(2))
			}
		})
		w.mend()
		w.conserved()
		happened.add(w)
	}
	happened.all(t)
	happened.passed(t, 20)
}

// TestRulesComeAndGo adds rules, takes them away, and changes their windows, algorithms and
// enforcement, at each checker at another time, while some go on with limiters of rules that have
// gone: the ledger is exact, and no strict rule's own count of hits exceeds its limit, in however
// many lives the rule had its permits granted.
func TestRulesComeAndGo(t *testing.T) {
	happened := seen{"passed by a limiter of a rule that had gone": 0, "repeated leases": 0}
	for seed := range seeds(6, 250) {
		w := newWorld(t, options{seed: seed, faults: faultsOfAll(seed), prompt: true})
		held := make([][]*check.Limiter, len(w.checkers)) // limiters that somebody has, of whatever rules
		w.advance(time.Second)
		// The pauses are long enough for limiters to be let go.
		w.play(200, pace{4, 60 * time.Millisecond, 50, 40 * time.Second, time.Minute}, func() {
			if w.rand.IntN(10) == 0 {
				w.publish(w.otherRules())
			}
			for i, c := range w.checkers {
				if w.rand.IntN(6) == 0 {
					w.reload(i)
				}
				for _, r := range w.published[c.Revision()] {
					if l, _ := c.Limiter(r.Name); w.rand.IntN(10) == 0 {
						held[i] = append(held[i], l)
					}
				}
				if w.rand.IntN(20) == 0 {
					held[i] = nil
					if seed%12 == 0 { // it takes long
						runtime.GC()
					}
				}
			}
			for range w.rand.IntN(8) {
				i := w.rand.IntN(len(w.checkers))
				happened["passed by a limiter of a rule that had gone"] += w.anyHit(i, held[i])
			}
		})
		w.mend()
		w.advance(time.Minute)
		w.conserved()
		for _, c := range w.checkers {
			n := len(c.Stats().Rules)
			w.require(n == len(w.published[c.Revision()]), "%s has %d rules, of %d", c.name, n, len(w.published[c.Revision()]))
		}
		happened.add(w)
	}
	happened.all(t)
	happened.passed(t, 10)
}

// otherRules are some of testRules, some of another shape or enforcement. Limits go with name and
// shape.
func (w *world) otherRules() []rules.Rule {
	var list []rules.Rule
	for i, r := range testRules {
		if w.rand.IntN(5) == 0 && (len(list) > 0 || i < len(testRules)-1) {
			continue
		}
		if w.rand.IntN(4) == 0 {
			r.Window.Length *= 2
		}
		if w.rand.IntN(2) == 0 {
			r.Enforcement = rules.Strict
		}
		list = append(list, r)
	}
	w.rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// anyHit sends one request to a checker: by a limiter of its rules, by one that somebody holds, or
// by all rules. It returns the hits that passed by a rule that has gone.
func (w *world) anyHit(i int, held []*check.Limiter) (byOld int64) {
	w.t.Helper()
	w.asked++
	c, key, cost := w.checkers[i], w.key(3), 1+w.rand.Int64N(2)
	defer w.wake(c)
	list := w.published[c.Revision()]
	if w.rand.IntN(6) == 0 {
		if c.Check(attributes("user="+key), cost).Allowed {
			for j := range list {
				w.note(&list[j], key, cost)
			}
		}
		return 0
	}
	l, _ := c.Limiter(list[w.rand.IntN(len(list))].Name)
	if len(held) > 0 && w.rand.IntN(3) == 0 {
		l = held[w.rand.IntN(len(held))]
	}
	if !l.Check(key, cost).Allowed {
		return 0
	}
	w.note(l.Rule(), key, cost)
	if now, ok := c.Limiter(l.Rule().Name); !ok || now != l {
		return cost
	}
	return 0
}

// note takes in a hit that has passed. Permits of a rule are counted by themselves, whatever hits
// there were when it was not strict.
func (w *world) note(r *rules.Rule, key string, cost int64) {
	w.t.Helper()
	if r.Enforcement != rules.Strict {
		w.admitted += cost
		return
	}
	w.admit(place{counterOf(r.Name, r.Window) + " strict", key}, r.Window, r.Limit, cost)
}
