package endtoend

import (
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/testing/membus"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// TestCutOffBelowTheLimit offers 0.8 of a limit to four checkers, one of which hears nothing for five windows. It reckons
// with others' hits by its own that it could not report, and these must leave the window meanwhile: nobody is denied.
func TestCutOffBelowTheLimit(t *testing.T) {
	for _, buckets := range []int{1, 4} {
		r := rules.Rule{Name: "r", Key: []string{"user"}, Limit: 1000, Window: window.Shape{Length: time.Second, Buckets: buckets}}
		for seed := uint64(0); seed < 24; seed += 3 { // with these checkers forecast
			w := newWorldOf(t, seed, 4, 2, 1, membus.Faults{Delay: 2 * time.Millisecond}, r)
			w.heeds = true
			w.advance(2 * time.Second)
			for hit := range 8000 { // in ten seconds
				if hit == 2000 || hit == 6000 {
					w.bus.Cut("c0", hit == 2000)
				}
				if d := w.ask(w.rand.IntN(4), r.Name, "k", 1); !d.Allowed {
					w.fail("%d buckets, hit %d: %+v, though a fifth of the limit is free", buckets, hit, d)
				}
				w.advance(1250 * time.Microsecond)
			}
		}
	}
}
