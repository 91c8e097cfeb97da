package endtoend

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/offpath-io/offpath/internal/testing/membus"
	"github.com/offpath-io/offpath/pkg/identity"
)

// TestAcquireToken: a hit that has waited for its permits gives them back like any other, also through another checker
// than the one that let it pass.
func TestAcquireToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		checkers, stop := runAcquireFleet(t, 1, membus.Faults{Delay: time.Millisecond})
		defer stop()
		time.Sleep(3 * time.Second) // until clocks are right
		attrs := identity.Attributes{{Name: "user", Value: "a"}, {Name: "ip", Value: "b"}, {Name: "api", Value: "c"}}
		acquire := func(i int, cost int64) (token string) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			d, token, _ := checkers[i].AcquireToken(ctx, attrs, cost)
			if d.Allowed != (token != "") {
				t.Errorf("%+v, token %q", d, token)
			}
			return token
		}
		time.Sleep(time.Until(time.Now().Truncate(6 * time.Second).Add(6*time.Second + 10*time.Millisecond))) // buckets begin
		token := acquire(0, 14)
		if token == "" || acquire(1, 1) != "" {
			t.Fatal("14 of 14 should pass, and not one more")
		}
		if err := checkers[2].Settle(token, 4); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
		if acquire(1, 11) != "" || acquire(1, 5) == "" { // checkers that had to deny have asked at once, and share
			t.Error("5 of the 10 that were given back should pass, and 11 not")
		}
		l, _ := checkers[0].Limiter("user")
		if d, token, err := l.AcquireToken(t.Context(), "somebody", 3); !d.Allowed || token == "" || err != nil {
			t.Errorf("by one rule: %+v, %q, %v", d, token, err)
		}
	})
}
