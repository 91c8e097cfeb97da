package endtoend

import (
	"context"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/testing/servers"
	"github.com/offpath-io/offpath/pkg/check"
)

// TestLadderWithoutRedis: while Redis is dead aggregators are there but cannot count. Checkers must not take what they know for
// fresh: they go down the ladder, to their share of the limits, and up again when Redis is back.
func TestLadderWithoutRedis(t *testing.T) {
	redis := singleRedis(t)
	f := newLive(t, redis, 0, 2, liveRules...)
	for _, name := range []string{"c0", "c1"} {
		f.checkers = append(f.checkers, f.newChecker(name, func(o *check.Options) {
			o.HelloEvery, o.ShareAfter = 200*time.Millisecond, 5
		}))
	}
	f.welcomed()
	stop := f.load(2)
	redis.each(t, (*servers.Redis).Kill)
	f.until("both keep to their share", func() bool {
		return f.checkers[0].Stats().Freshness == check.LocalShare && f.checkers[1].Stats().Freshness == check.LocalShare
	})
	stop()
	redis.each(t, func(n *servers.Redis) error { return n.Restart(context.Background()) })
	f.welcomed()
	if ledger, charged := f.stopCheckers(); ledger.Counted+ledger.Late != charged {
		t.Errorf("%d charged, in the ledger %+v", charged, ledger)
	}
}
