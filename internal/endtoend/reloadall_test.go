package endtoend

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/testing/membus"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

// TestReloadEverything adds rules, takes them away, and changes their windows, algorithms and enforcement, at each
// checker at another time, while some go on with limiters of rules that have gone: the ledger is exact, and no strict
// rule's own count of hits exceeds its limit, in however many lives the rule had its permits granted.
func TestReloadEverything(t *testing.T) {
	schedules := uint64(600)
	if testing.Short() {
		schedules = 15
	}
	var admitted, asked, byOld int64
	for seed := range schedules {
		faults := randomFaults(seed)
		faults.Only = nil
		if seed%5 < 3 {
			faults.Lose, faults.Jitter = faults.Lose/8, faults.Jitter/16
		}
		w := newWorld(t, seed, 1+int(seed%4), 1+int(seed/4%3), 1+int(seed/12%3), faults)
		w.heeds = true
		held := make([][]*check.Limiter, len(w.checkers)) // limiters that somebody has, of whatever rules
		w.advance(time.Second)
		for range 200 {
			if w.rand.IntN(4) == 0 {
				w.accident()
			}
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
				byOld += w.anyHit(i, held[i])
			}
			w.advance(time.Duration(w.rand.Int64N(int64(60 * time.Millisecond))))
			if w.rand.IntN(50) == 0 { // long enough for limiters to be let go
				w.advance(time.Duration(w.rand.Int64N(int64(40 * time.Second))))
			}
		}
		w.settle()
		w.advance(time.Minute)
		w.conserved()
		for _, c := range w.checkers {
			if n := len(c.Stats().Rules); n != len(w.published[c.Revision()]) {
				w.fail("%s has %d rules, of %d", c.name, n, len(w.published[c.Revision()]))
			}
		}
		admitted, asked = admitted+w.admitted, asked+w.asked
	}
	t.Logf("%d schedules: %d requests, %d hits passed, %d by limiters of rules that had gone", schedules, asked, admitted, byOld)
	if admitted < asked/10 || byOld == 0 {
		t.Error("the schedules were too tame")
	}
}

// otherRules are some of testRules, some of another shape or enforcement. Limits go with name and shape.
func (w *world) otherRules() []rules.Rule {
	var list []rules.Rule
	for _, r := range testRules {
		if w.rand.IntN(5) == 0 && (len(list) > 0 || r.Name != testRules[len(testRules)-1].Name) {
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
	if len(list) == 0 {
		list = append(list, testRules[0])
	}
	w.rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// anyHit sends one request to a checker: by a limiter of its rules, by one that somebody holds, or by all rules. It returns
// the hits that passed by a rule that has gone.
func (w *world) anyHit(i int, held []*check.Limiter) (byOld int64) {
	w.t.Helper()
	w.asked++
	c, key, cost := w.checkers[i], fmt.Sprint("k", w.rand.IntN(3)), 1+w.rand.Int64N(2)
	defer w.heed(c)
	list := w.published[c.Revision()]
	if w.rand.IntN(6) == 0 {
		attrs := identity.Attributes{{Name: "user", Value: key}}
		if c.CheckAt(w.own(i), attrs, cost).Allowed {
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
	if !l.CheckAt(w.own(i), key, cost).Allowed {
		return 0
	}
	w.note(l.Rule(), key, cost)
	if now, ok := c.Limiter(l.Rule().Name); !ok || now != l {
		return cost
	}
	return 0
}

// note takes in a hit that has passed. Permits of a rule are counted by themselves, whatever hits there were when it was
// not strict.
func (w *world) note(r *rules.Rule, key string, cost int64) {
	w.t.Helper()
	w.admitted += cost
	if r.Enforcement != rules.Strict {
		return
	}
	h := recall(w.truth, place{counterOf(r.Name, r.Window) + " strict", key})
	if left := r.Window.Remaining(h.counts(r.Window, w.now), r.Limit, w.now); cost > left {
		w.fail("%d hits of %s pass under rule %s with %d left of %d", cost, key, r.Name, left, r.Limit)
	}
	(*h)[r.Window.Bucket(w.now)] += cost
}

// TestReloadChangesNothing runs the same schedule with and without sets that say the same as the one before, or change
// another rule's limit: all decisions are the same.
func TestReloadChangesNothing(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 4
	}
	for seed := range seeds {
		for _, strict := range []bool{false, true} {
			var runs [3][]check.Decision
			for i := range runs {
				runs[i] = decisionsOf(t, seed, strict, i)
			}
			for i := 1; i < len(runs); i++ {
				if !slices.Equal(runs[i], runs[0]) {
					t.Fatalf("seed %d, strict %v, run %d: other decisions", seed, strict, i)
				}
			}
			passed := 0
			for _, d := range runs[0] {
				if d.Allowed {
					passed++
				}
			}
			if passed == 0 || passed == len(runs[0]) {
				t.Fatalf("seed %d: %d of %d pass: too tame", seed, passed, len(runs[0]))
			}
		}
	}
}

// decisionsOf runs a schedule: without reloads (0), with equal sets (1), or with sets of which another rule differs (2).
func decisionsOf(t *testing.T, seed uint64, strict bool, reloads int) []check.Decision {
	list := slices.Clone(testRules)
	list[1].Limit = 200 // enough for forecasts
	list = append(list, rules.Rule{Name: "another", Key: []string{"other"}, Limit: 5, Window: list[0].Window})
	if strict {
		list = strictly(list)
	}
	w := newWorldOf(t, seed*3, 4, 2, 2, membus.Faults{Delay: 2 * time.Millisecond}, list...) // with forecasts
	w.advance(time.Second)
	var decisions []check.Decision
	for step := range 400 {
		if reloads > 0 && step%3 == 0 {
			next := slices.Clone(list)
			if reloads == 2 {
				next[len(next)-1].Limit = 5 + int64(step%2)
			}
			set, err := rules.NewSet(next...)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range w.checkers {
				if err := c.SetRulesAt(w.now, set, uint64(step)); err != nil {
					t.Fatal(err)
				}
			}
		}
		for range w.rand.IntN(12) {
			c, attrs := w.checkers[w.rand.IntN(4)], identity.Attributes{{Name: "user", Value: fmt.Sprint("k", w.rand.IntN(3))}}
			if name := testRules[w.rand.IntN(4)].Name; w.rand.IntN(2) == 0 {
				l, _ := c.Limiter(name)
				decisions = append(decisions, l.CheckAt(w.now, attrs[0].Value, 1))
				continue
			}
			decisions = append(decisions, c.CheckAt(w.now, attrs, 1))
		}
		w.advance(5 * time.Millisecond)
	}
	return decisions
}
