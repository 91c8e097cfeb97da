package endtoend

import (
	"fmt"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/testing/membus"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// counterOf names what is counted apart from others: a rule of testRules by its name, and one of another shape by that
// too.
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
		if err != nil {
			w.t.Fatal(err)
		}
		if err := c.SetRulesAt(w.own(i), set, r); err != nil {
			w.t.Fatal(err)
		}
	}
	w.heed(c)
}

func (w *world) reloadAll() {
	w.t.Helper()
	for i := range w.checkers {
		w.reload(i)
	}
}

// highest is the highest limit that permits may have been granted by: of the revisions from the oldest that a checker
// decides by, or of all if a request of before a change may be carried out after one of after it, by an aggregator
// that has not heard of the change.
func (w *world) highest(r *rules.Rule) int64 {
	if w.revision == 0 {
		return r.Limit
	}
	oldest := w.revision
	for _, c := range w.checkers {
		oldest = min(oldest, c.Revision())
	}
	if w.overtaking {
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

// otherLimits are the rules with other limits, some higher, some lower.
func (w *world) otherLimits(list []rules.Rule) []rules.Rule {
	other := make([]rules.Rule, len(list))
	for i, r := range list {
		r.Limit = []int64{r.Limit, 1, r.Limit / 2, r.Limit + 1, 2 * r.Limit, 150}[w.rand.IntN(6)]
		other[i] = r
	}
	w.rand.Shuffle(len(other), func(i, j int) { other[i], other[j] = other[j], other[i] })
	return other
}

// TestReloadSchedules changes limits under random traffic and accidents, at each checker at another time: each decision
// is what its checker's own limit and all that it can know make of it, at once, and the ledger is exact.
func TestReloadSchedules(t *testing.T) {
	schedules := uint64(1500)
	if testing.Short() {
		schedules = 40
	}
	var admitted, asked, reloads int64
	for seed := range schedules {
		w := newWorld(t, seed, 1+int(seed%4), 1+int(seed/4%3), 1+int(seed/12%3), randomFaults(seed))
		for range 150 {
			w.accident()
			if w.rand.IntN(8) == 0 {
				w.publish(w.otherLimits(testRules))
			}
			if w.rand.IntN(4) == 0 {
				w.reload(w.rand.IntN(len(w.checkers)))
				reloads++
			}
			for range w.rand.IntN(4) {
				w.randomHit()
			}
			w.advance(time.Duration(w.rand.Int64N(int64(30 * time.Millisecond))))
			if w.rand.IntN(60) == 0 {
				w.advance(time.Duration(w.rand.Int64N(int64(4 * time.Second))))
			}
		}
		w.publish(testRules)
		w.reloadAll()
		w.settle()
		w.conserved()
		w.outlast()
		w.conserved()
		admitted, asked = admitted+w.admitted, asked+w.asked
	}
	t.Logf("%d schedules, %d changes of limits: %d hits asked, %d admitted and found in the ledger", schedules, reloads, asked, admitted)
}

// TestReloadStrictSchedules is the same under strict enforcement: no hit passes that does not fit the highest limit by
// which any checker decides, whatever was granted before. So once all have taken over a lower one, no hit passes
// beyond that.
func TestReloadStrictSchedules(t *testing.T) {
	schedules := uint64(1000)
	if testing.Short() {
		schedules = 25
	}
	var admitted, asked int64
	for seed := range schedules {
		faults := randomFaults(seed)
		faults.Only = nil
		if seed%5 < 3 {
			faults.Lose, faults.Jitter = faults.Lose/8, faults.Jitter/16
		}
		workers := 1 + int(seed/4%3)
		if seed%2 == 0 { // messages are lost and late, but in order
			workers, faults.Repeat, faults.Jitter = 1, 0, 0
		}
		w := newStrictWorld(t, seed, 1+int(seed%4), workers, 1+int(seed/12%3), faults, testRules...)
		w.overtaking = seed%2 != 0
		w.immortal = !w.overtaking
		if seed%3 == 0 {
			w.skewClocks()
		}
		w.advance(time.Second)
		for range 150 {
			if w.rand.IntN(4) == 0 {
				w.accident()
			}
			if w.rand.IntN(8) == 0 {
				w.publish(strictly(w.otherLimits(testRules)))
				if w.rand.IntN(2) == 0 {
					w.reloadAll()
				}
			}
			if w.rand.IntN(4) == 0 {
				w.reload(w.rand.IntN(len(w.checkers)))
			}
			for range w.rand.IntN(12) {
				i, rule := w.rand.IntN(len(w.checkers)), testRules[w.rand.IntN(len(testRules))].Name
				w.ask(i, rule, fmt.Sprint("k", w.rand.IntN(3)), 1+w.rand.Int64N(2))
			}
			w.advance(time.Duration(w.rand.Int64N(int64(30 * time.Millisecond))))
		}
		w.settle()
		w.conserved()
		admitted, asked = admitted+w.admitted, asked+w.asked
	}
	t.Logf("%d schedules: %d requests, %d hits passed", schedules, asked, admitted)
	if admitted < asked/20 {
		t.Error("the schedules were too tame")
	}
}

// TestReloadUsesNewLimit: a key that is used up everywhere passes at the new rate as soon as the limit is raised.
func TestReloadUsesNewLimit(t *testing.T) {
	for _, strict := range []bool{false, true} {
		r := rules.Rule{Name: "r", Key: []string{"user"}, Limit: 20, Window: window.Shape{Length: time.Minute, Buckets: 1}}
		list := []rules.Rule{r}
		if strict {
			list = strictly(list)
		}
		w := newWorldOf(t, 7, 4, 2, 1, membus.Faults{Delay: 2 * time.Millisecond}, list...)
		w.heeds = true
		w.advance(2 * time.Second)
		offer := func(n int) (passed int) {
			for range n {
				if l, _ := w.checkers[w.rand.IntN(4)].Limiter("r"); l.CheckAt(w.now, "k", 1).Allowed {
					passed++
				}
				w.advance(5 * time.Millisecond)
			}
			return passed
		}
		offer(200)
		if n := offer(50); n != 0 {
			t.Fatalf("strict %v: %d pass when it is used up", strict, n)
		}
		list[0].Limit = 60
		w.publish(list)
		w.reloadAll()
		if n := offer(20); n < 12 {
			t.Errorf("strict %v: %d of 20 pass in the 100 ms after the limit has been raised", strict, n)
		}
		offer(200)
		list[0].Limit = 10
		w.publish(list)
		w.reloadAll()
		if n := offer(50); n != 0 {
			t.Errorf("strict %v: %d pass after the limit has been lowered", strict, n)
		}
	}
}
