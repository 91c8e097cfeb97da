package endtoend

import (
	"fmt"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

var algorithmRules = []rules.Rule{
	{Name: "log", Key: []string{"user"}, Limit: 60, Algorithm: rules.SlidingLog, Window: window.Shape{Length: time.Minute}},
	{Name: "tokens", Key: []string{"user"}, Limit: 60, Burst: 90, Algorithm: rules.TokenBucket, Window: window.Shape{Length: time.Minute}},
	{Name: "fast", Key: []string{"user"}, Limit: 30, Burst: 50, Algorithm: rules.TokenBucket, Window: window.Shape{Length: time.Second}},
	{Name: "queue", Key: []string{"user"}, Limit: 20, Burst: 10, Algorithm: rules.LeakyBucket, Window: window.Shape{Length: time.Second}},
}

// TestSchedulesOfEveryAlgorithm: through random traffic on bad networks with accidents, nothing is lost and nothing is counted
// twice by any algorithm, and in the end all checkers know of each key what a limiter that saw every hit
// knows.
func TestSchedulesOfEveryAlgorithm(t *testing.T) {
	schedules := uint64(1500)
	if testing.Short() {
		schedules = 50
	}
	var admitted, repeated int64
	for seed := range schedules {
		w := newWorldOf(t, seed, 1+int(seed%4), 1+int(seed/4%3), 1+int(seed/12%3), randomFaults(seed), algorithmRules...)
		for range 120 {
			w.accident()
			for range w.rand.IntN(8) {
				r := algorithmRules[w.rand.IntN(len(algorithmRules))].Name
				w.tryOut(w.checkers[w.rand.IntN(len(w.checkers))], r, fmt.Sprint("k", w.rand.IntN(2)), 1+w.rand.Int64N(3))
			}
			w.advance(time.Duration(w.rand.Int64N(int64(30 * time.Millisecond))))
			if w.rand.IntN(60) == 0 {
				w.advance(time.Duration(w.rand.Int64N(int64(4 * time.Second))))
			}
		}
		w.settle()
		w.conserved()
		w.agreeOn("log")
		w.agreeOn("tokens")
		w.outlast()
		w.conserved()
		admitted += w.admitted
		for _, c := range w.checkers {
			repeated += c.Stats().ReportsRepeated
		}
	}
	if admitted == 0 || repeated == 0 {
		t.Errorf("too tame: %d hits admitted, %d reports repeated", admitted, repeated)
	}
}

// tryOut sends one request to a checker, and takes note of it if it passes.
func (w *world) tryOut(c *checker, rule, key string, cost int64) {
	l, _ := c.Limiter(rule)
	at := w.now + int64(c.Stats().ClockOffset)
	if l.CheckAt(w.now, key, cost).Allowed {
		(*recall(w.truth, place{rule, key}))[l.Rule().Window.Bucket(at)] += cost
		w.admitted += cost
	}
}

// agreeOn lets one checker after the other report a hit of every key of a rule. By its answer each must know exactly the
// truth. Nothing of it is late, since the rule's window is longer than any accident.
func (w *world) agreeOn(rule string) {
	w.t.Helper()
	for _, key := range []string{"k0", "k1"} {
		w.advance(5 * time.Second) // so that some hits fit
		for _, c := range w.checkers {
			before := w.admitted
			w.tryOut(c, rule, key, 1)
			w.advance(time.Second + w.quietFor)
			l, _ := c.Limiter(rule)
			r := l.Rule()
			want := w.leftOf(r, *recall(w.truth, place{rule, key}))
			got := l.CheckAt(w.now, key, r.Capacity()+1).Remaining
			if w.admitted > before && got != want {
				w.fail("%s knows of %d left of %s of %s, the truth is %d", c.name, got, key, rule, want)
			}
		}
	}
}

// leftOf is what is left by the rule's arithmetic, on everything that ever passed.
func (w *world) leftOf(r *rules.Rule, all history) int64 {
	if !r.Window.Drains() {
		return r.Window.Remaining(all.counts(r.Window, w.now), r.Limit, w.now)
	}
	first := r.Window.Bucket(start) - 1
	var counts []int64
	for b := r.Window.Bucket(w.now); b > first; b-- {
		counts = append(counts, all[b])
	}
	return r.Drain().Remaining(window.Level{Bucket: first}, counts, w.now)
}
