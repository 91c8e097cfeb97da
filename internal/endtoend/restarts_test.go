package endtoend

import (
	"fmt"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/window"
)

// restart stops a checker whose hits have been reported, and starts another one in its place.
func (w *world) restart(i int) {
	w.t.Helper()
	c := w.checkers[i]
	w.require(c.Stats().Unreported() == 0, "%s is stopped too soon", c.name)
	goodbye, err := events.Append(nil, &events.Hello{Epoch: c.epoch, Sent: w.now, Leaving: true})
	must(w.t, err)
	must(w.t, c.link.Hello(goodbye))
	c.link.Attach(nil)
	w.epochs++
	w.checkers[i] = w.newChecker(i, fmt.Sprint("r", w.epochs), 1000+w.epochs)
	w.checkers[i].next = w.now
}

// TestRollingRestartsReopenNoLimit: a checker that starts knows what is used up before it lets much
// pass. Four times within a window all eight are restarted, one after the other.
func TestRollingRestartsReopenNoLimit(t *testing.T) {
	shape := window.Shape{Length: 10 * time.Minute, Buckets: 60}
	for _, tt := range []struct {
		limit int64
		loads []float64
	}{{100, []float64{45}}, {1000, []float64{12, 1.5, 0.02}}}[:seeds(1, 2)] {
		limit := tt.limit
		for _, load := range tt.loads {
			w := newWorld(t, wellConnected(6, 8, counting("r", limit, shape)))
			every := time.Duration(float64(shape.Length) / float64(limit) / load)
			most, next := 0.0, w.now
			// traffic lets hits come to all checkers but one, which is negative for none.
			traffic := func(until int64, but int) {
				for ; next < until; next += int64(every) {
					w.advance(time.Duration(next - w.now))
					i := w.rand.IntN(len(w.checkers))
					if i == but {
						i = (i + 1) % len(w.checkers)
					}
					allowed := w.request(w.checkers[i], "r", "k", 1)
					used := w.used("r", "k", shape)
					w.require(allowed || load > 1, "limit %d, %v times: a hit is denied at %.0f", limit, load, used)
					most = max(most, used)
				}
				w.advance(time.Duration(until - w.now))
			}
			traffic(w.now+int64(shape.Length), -1)
			for range seeds(1, 4) {
				for i := range w.checkers {
					traffic(w.now+int64(11*time.Second), i)
					w.restart(i)
				}
				traffic(w.now+int64(shape.Length/5)-8*int64(11*time.Second), -1)
			}
			t.Logf("limit %d, %v times: at most %.0f", limit, load, most)
			expect(t, 100*most <= float64(102*limit), "limit %d, %v times: %.0f hits in a window", limit, load, most)
		}
	}
}

// used is how many hits of a key weigh in its window.
func (w *world) used(rule, key string, shape window.Shape) float64 {
	return shape.Count(recall(w.truth, place{rule, key}).counts(shape, w.now), w.now)
}

// TestWhoComesBackKnowsWhatIsUsedUp: a checker that was cut off asks for what alarms have told
// meanwhile, and lets next to nothing pass of what others have used up.
func TestWhoComesBackKnowsWhatIsUsedUp(t *testing.T) {
	shape := window.Shape{Length: 10 * time.Minute, Buckets: 60}
	w := newWorld(t, wellConnected(6, 8, counting("r", 1000, shape)))
	w.advance(time.Second)
	w.bus.Cut("c0", true)
	for range 1100 {
		w.advance(30 * time.Millisecond)
		w.request(w.checkers[1+w.rand.IntN(7)], "r", "k", 1)
	}
	w.bus.Cut("c0", false)
	w.advance(5 * time.Second)
	before := w.used("r", "k", shape)
	for range 100 {
		w.request(w.checkers[0], "r", "k", 1)
	}
	passed := w.used("r", "k", shape) - before
	w.require(before >= 990 && passed <= 10, "at %.0f of 1000, %.0f hits pass", before, passed)
}
