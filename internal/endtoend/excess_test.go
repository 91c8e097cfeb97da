package endtoend

import (
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/rules"
)

// TestNoExcessWhereTokensAreSpentInTime: aggregators find no hits beyond the limit of a token
// bucket whose tokens a checker spends as they come, many in each bucket of time; but they do where
// they know of half that limit.
func TestNoExcessWhereTokensAreSpentInTime(t *testing.T) {
	for _, burst := range []int64{10, 1, 1000}[:seeds(1, 3)] {
		for _, times := range []int64{1, 2} {
			excess, most := 0.0, 0.0
			o := wellConnected(1, 1, bucket("tokens", rules.TokenBucket, 1000, burst, time.Minute))
			o.onApply = func(info aggregate.ApplyInfo) {
				for _, e := range info.Excess {
					excess, most = excess+e.Hits, max(most, e.Most)
				}
			}
			w := newWorld(t, o)
			for _, k := range w.workers {
				k.SetRules([]storage.Rule{{
					Name: "tokens", Shape: w.rules.Rules()[0].Window, Limit: 1000 / times, Burst: burst, Revision: 1,
				}})
			}
			c := w.checkers[0]
			l, _ := c.Limiter("tokens")
			passed := int64(0)
			for end := w.now + int64(2*time.Minute); w.now < end; w.advance(5 * time.Millisecond) {
				for l.Check("k", 1).Allowed {
					passed++
				}
				w.wake(c)
			}
			w.require(passed >= 1950/times, "burst %d: %d pass in two minutes", burst, passed)
			if found := excess > 0; found != (times == 2) {
				w.fail("burst %d, %d times the limit: %.0f of %d hits are called excess, at most %+.0f %%",
					burst, times, excess, passed, 100*most)
			}
		}
	}
}
