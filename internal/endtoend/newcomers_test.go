package endtoend

import (
	"context"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/rules"
)

// TestKeysWithoutRoomAreDecidedByOnOutage: a caller whose key is new, when the store takes no new
// keys of its rule, is decided by the rule's on_outage from the first answer on, until the slice of
// time ends in which new keys are counted: at each checker by its share, or not at all, or as often
// as he comes. Then there is room again. Known keys are counted all the while.
func TestKeysWithoutRoomAreDecidedByOnOutage(t *testing.T) {
	const limit, checkers, minute = 60, 3, int64(time.Minute)
	for _, tt := range []struct {
		onOutage    rules.OnOutage
		least, most int64 // of 100 hits at each checker
	}{{rules.Share, limit, limit}, {rules.Closed, 0, 0}, {rules.Open, 100 * checkers, 100 * checkers}} {
		for _, r := range []rules.Rule{
			{Name: "one", Window: testRules[3].Window, Limit: limit},
			{Name: "token", Window: testRules[3].Window, Limit: limit, Burst: limit, Algorithm: rules.TokenBucket},
		} {
			r.Key, r.OnOutage, r.Window.Buckets = []string{"user"}, tt.onOutage, 0
			w := newWorld(t, wellConnected(1, checkers, r))
			w.advance(time.Duration(minute - w.now%minute)) // to the beginning of a window
			w.advance(time.Second)
			full := true
			w.store.full = func(key string) bool { return full && key == "new" }
			pass := func(key string, n int) (passed int64) {
				for range n {
					for _, c := range w.checkers {
						l, _ := c.Limiter(r.Name)
						d := l.Check(key, 1)
						if d.Allowed {
							passed++
						}
						end := time.Duration(minute - (w.now+int64(c.Stats().ClockOffset))%minute)
						expect(t, !full || key != "new" || d.Allowed || tt.onOutage != rules.Closed || d.RetryAfter == end,
							"%s: turned away for %v, with %v to the end of the slice", r.Name, d.RetryAfter, end)
						w.wake(c)
					}
					w.advance(10 * time.Millisecond)
				}
				return passed
			}
			before := pass("new", 1)
			w.advance(time.Second)
			passed := pass("new", 100)
			w.require(before == checkers, "%v: of the first hits %d pass", tt.onOutage, before)
			if tt.onOutage == rules.Share {
				passed += before
			}
			w.require(passed >= tt.least && passed <= tt.most, "%s, %v: %d pass", r.Name, tt.onOutage, passed)
			if known := pass("known", 30); known != limit {
				w.fail("%s, %v: %d of a known key pass, want %d", r.Name, tt.onOutage, known, limit)
			}
			full = false
			w.advance(2 * time.Minute)
			if passed := pass("new", 30); passed < limit-2 || passed > limit+2 {
				w.fail("%s, %v: when there is room again %d pass, want about %d", r.Name, tt.onOutage, passed, limit)
			}
		}
	}
}

// withoutNew is a fold without what it adds to keys that the store has no room for.
func withoutNew(f *storage.Batch, full func(key string) bool) *storage.Batch {
	r := *f
	r.Keys = nil
	for _, key := range f.Keys {
		if full(key.Text) {
			key.Cells = nil
		}
		r.Keys = append(r.Keys, key)
	}
	return &r
}

// applyFull applies a fold to a store that may have no room for new keys.
func (s *flakyStore) applyFull(ctx context.Context, f *storage.Batch) (storage.Applied, error) {
	if s.full != nil {
		f = withoutNew(f, s.full)
	}
	return s.Store.Apply(ctx, f)
}
