package endtoend

import (
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/testing/membus"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// TestOutflowOfAFleet: what a leaky bucket lets pass is one stream over all checkers, about as even as that of one. Each of them knows
// its own hits to the nanosecond and others' by their messages, so hits of two may come together, and after such there is a
// gap. -v prints the figures of docs/rules.md.
func TestOutflowOfAFleet(t *testing.T) {
	const limit, second = 1000, int64(time.Second)
	r := rules.Rule{
		Name: "queue", Key: []string{"user"}, Limit: limit, Burst: 100, Algorithm: rules.LeakyBucket, Window: window.Shape{Length: time.Second},
	}
	for _, fleet := range []struct {
		checkers, most int           // hits in 20 ms; an even stream has 20
		gap            time.Duration // of an even stream: 1 ms
	}{{1, 20, time.Millisecond}, {8, 38, 28 * time.Millisecond}} {
		for seed := range uint64(5) {
			w := newWorldOf(t, seed, fleet.checkers, 2, 1, membus.Faults{Delay: 2 * time.Millisecond}, r)
			w.advance(2 * time.Second)
			begin := w.now
			var passed []int64
			for w.now < begin+6*second {
				l, _ := w.checkers[w.rand.IntN(fleet.checkers)].Limiter(r.Name)
				if l.CheckAt(w.now, "k", 1).Allowed && w.now >= begin+second { // they have heard of each other
					passed = append(passed, w.now)
				}
				w.advance(time.Second / (5 * limit))
			}
			most, gap := unevenness(passed, 20*time.Millisecond)
			rate := float64(len(passed)) / 5
			t.Logf("%d checkers: %.0f hits/s of %d, most in 20 ms %d, longest gap %v", fleet.checkers, rate, limit, most, gap)
			if rate < 0.95*limit || rate > 1.01*limit || most > fleet.most || gap > fleet.gap {
				t.Errorf("%d checkers: want %d hits/s within 5 %% and not 1 %% more, at most %d in 20 ms, and no gap above %v", fleet.checkers, limit, fleet.most, fleet.gap)
			}
		}
	}
}

// unevenness returns the most of these times that lie within a span, and the longest time between two.
func unevenness(times []int64, span time.Duration) (most int, gap time.Duration) {
	from := 0
	for i, at := range times {
		for times[from] <= at-int64(span) {
			from++
		}
		most = max(most, i-from+1)
		if i > 0 {
			gap = max(gap, time.Duration(at-times[i-1]))
		}
	}
	return most, gap
}
