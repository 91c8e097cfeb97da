package endtoend

import (
	"fmt"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/testing/membus"
	"github.com/offpath-io/offpath/pkg/events"
)

// counting are the messages whose loss, repeat and delay must not change any count. Hellos are left
// alone here, so that all clocks agree and the truth is exact.
var counting = []events.Kind{events.KindReport, events.KindRefresh, events.KindAlarm}

// TestSchedules runs thousands of fleets, each through random traffic on a random bad network with
// random accidents, and holds every single decision against the truth, and the ledger at the end.
func TestSchedules(t *testing.T) {
	schedules := uint64(4000)
	if testing.Short() {
		schedules = 100
	}
	var hits, admitted, repeated, late int64
	for seed := range schedules {
		w := runSchedule(t, seed)
		hits += w.asked
		admitted += w.admitted
		for _, c := range w.checkers {
			repeated += c.Stats().ReportsRepeated
		}
		for _, r := range w.ledger() {
			late += r.Late
		}
	}
	t.Logf("%d schedules: %d hits asked, %d admitted and found in the ledger, %d of them late; %d reports repeated by checkers",
		schedules, hits, admitted, late, repeated)
	if late == 0 || repeated == 0 {
		t.Error("the schedules were too tame: nothing late or nothing repeated")
	}
}

func runSchedule(t *testing.T, seed uint64) *world {
	t.Helper()
	w := newWorld(t, seed, 1+int(seed%4), 1+int(seed/4%3), 1+int(seed/12%3), randomFaults(seed))
	if w.rand.IntN(4) == 0 { // the network is down from the start
		w.bus.Cut("", true)
	}
	for range 150 {
		w.accident()
		for range w.rand.IntN(4) {
			w.randomHit()
		}
		w.advance(time.Duration(w.rand.Int64N(int64(30 * time.Millisecond))))
		if w.rand.IntN(60) == 0 { // longer than some windows
			w.advance(time.Duration(w.rand.Int64N(int64(4 * time.Second))))
		}
	}
	w.settle()
	w.conserved()
	w.agree()
	w.outlast()
	w.conserved()
	return w
}

func randomFaults(seed uint64) membus.Faults {
	pick := func(n, of uint64) float64 { return float64(seed/n%of) / float64(of) }
	return membus.Faults{
		Lose:         pick(3, 5) * 0.6,
		Repeat:       pick(5, 4) * 0.8,
		RepeatWithin: time.Second + time.Duration(pick(7, 3)*float64(4*time.Minute)),
		Delay:        time.Duration(pick(2, 3) * 15 * float64(time.Millisecond)),
		Jitter:       time.Duration(pick(11, 4) * 200 * float64(time.Millisecond)),
		Only:         counting,
	}
}

// accident happens now and then.
func (w *world) accident() {
	switch w.rand.IntN(40) {
	case 0:
		w.killWorker(w.rand.IntN(len(w.workers)))
	case 1: // the write arrives, the answer does not, and then the worker dies
		w.store.mode = storeCutOff
	case 2:
		w.store.mode = storeDown
	case 3, 4:
		if w.store.mode == storeCutOff {
			w.killWorker(w.rand.IntN(len(w.workers)))
		}
		w.store.mode = storeWorks
	case 5:
		w.bus.Cut(w.checkers[w.rand.IntN(len(w.checkers))].name, true)
	case 6:
		w.bus.Cut("", true)
	case 7, 8, 9:
		w.bus.Cut("", false)
		for _, c := range w.checkers {
			w.bus.Cut(c.name, false)
		}
	}
}

func (w *world) randomHit() {
	w.asked++
	c := w.checkers[w.rand.IntN(len(w.checkers))]
	rule := testRules[w.rand.IntN(len(testRules))].Name
	cost := int64(1)
	if w.rand.IntN(5) == 0 {
		cost += w.rand.Int64N(4)
	}
	w.hit(c, rule, fmt.Sprint("k", w.rand.IntN(4)), cost)
}

// agree lets every checker report a hit of every key of the longest window, and then they must all
// know exactly the same, which is the truth.
func (w *world) agree() {
	w.t.Helper()
	rule := testRules[len(testRules)-1]
	for p := range w.truth {
		if p.rule != rule.Name {
			continue
		}
		for _, c := range w.checkers {
			w.hit(c, p.rule, p.key, 1)
		}
		w.advance(time.Second + w.quietFor)
		for _, c := range w.checkers {
			l, _ := c.Limiter(p.rule)
			shape := rule.Window
			want := shape.Remaining(w.truth[p].counts(shape, w.now), rule.Limit, w.now)
			// More than is left is denied, and tells how much is left without taking it.
			d := l.CheckAt(w.now, p.key, rule.Limit+1)
			if known := w.heard(c, p); known && d.Remaining != want {
				w.fail("%s knows of %d left of %v, the truth is %d", c.name, d.Remaining, p, want)
			}
		}
	}
}

// heard says whether the checker has been told of a key by an answer, having reported hits of it in
// the live window.
func (w *world) heard(c *checker, p place) bool {
	shape := testRules[len(testRules)-1].Window
	newest := recall(c.own, p).counts(shape, w.now)[0]
	return newest > 0
}

// TestUsedUpMeansDenied offers one key ten times its limit on four checkers, 2 ms from the aggregators,
// in exact time: once the limit is used up no hit passes on any of them later than a flush and 200 ms
// after that, for as long as it stays used up.
func TestUsedUpMeansDenied(t *testing.T) {
	w := newWorld(t, 11, 4, 2, 1, membus.Faults{Delay: 2 * time.Millisecond})
	w.advance(time.Second)
	p, shape, limit := place{"second", "k"}, testRules[0].Window, testRules[0].Limit
	var since, latest int64 // since when it has been used up; 0 while it is not
	over := 0
	for i := range 4000 { // 20 s at 200 hits per second
		used := shape.Remaining(recall(w.truth, p).counts(shape, w.now), limit, w.now) == 0
		switch {
		case !used:
			since = 0
		case since == 0:
			since = w.now
		}
		before := w.admitted
		w.hit(w.checkers[i%4], p.rule, p.key, 1)
		if used && w.admitted > before {
			over++
			latest = max(latest, w.now-since)
			if w.now-since > int64(250*time.Millisecond) {
				w.fail("a hit passed %v after the limit was used up", time.Duration(w.now-since))
			}
		}
		w.advance(5 * time.Millisecond)
	}
	t.Logf("%d of 4000 hits passed; %d of them while the limit was used up, at most %v after it was", w.admitted, over, time.Duration(latest))
	w.settle()
	w.conserved()
}
