package counter

import (
	"math"
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/fleetstate"
	"github.com/offpath-io/offpath/pkg/check/internal/level"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/window"
)

// What a counter's hits come to: under a token or leaky bucket by a level, which package level
// keeps, and in a window by the counts alone.

// situation is what the counter's level has to know of it under these limits. It is good until the
// counter changes, and written to s, so that it needs no memory of its own.
func (c Locked) situation(t *Limits, s *level.Situation) *level.Situation {
	g, fresh := c.Group, c.freshness(t)
	*s = level.Situation{
		Drain: &t.Drain, Newest: c.Newest, Net: c.net(), Refunded: c.refunded(), Own: c.ownHits(),
		Checkers: g.Host.Checkers(), Shared: g.isShared(),
		Apart: fresh >= fleetstate.LocalShare, Share: fresh == fleetstate.LocalShare,
	}
	return s
}

// ownHits are, per bucket, newest first, own hits that nobody else counts: pending ones, and in the
// store's overflow all.
func (c Locked) ownHits() []int64 {
	if c.overflow {
		return c.Totals()
	}
	return c.Pending()
}

// remaining is how many hits fit by what is known: of a leaky bucket, without a wait. The counter
// is current.
func (c Locked) remaining(t *Limits, at int64) int64 {
	if l := c.level(); l != nil {
		return l.Remaining(c.situation(t, new(level.Situation)), at)
	}
	return c.Group.Shape.Remaining(c.net(), t.Limit, at)
}

// retryIn is how long until a hit fits by what is known, if nothing else comes. The counter is
// current.
func (c Locked) retryIn(t *Limits, cost, at int64) (time.Duration, bool) {
	if l := c.level(); l != nil {
		return l.RetryIn(c.situation(t, new(level.Situation)), cost, at)
	}
	return c.Group.Shape.RetryAfter(c.net(), t.Limit, cost, at)
}

// Count is how much is in use by what is known. The counter is current.
func (c Locked) Count(t *Limits, at int64) float64 {
	if l := c.level(); l != nil {
		return l.Count(c.situation(t, new(level.Situation)), at)
	}
	return c.Group.Shape.Count(c.net(), at)
}

// freed is how many hits leave per ns at present. The counter is current.
func (c Locked) freed(t *Limits, at int64) float64 {
	if l := c.level(); l != nil {
		return l.Freed(c.situation(t, new(level.Situation)), at)
	}
	shape, totals := c.Group.Shape, c.net()
	if shape.Kind == window.Sliding && !shape.Fixed && len(totals) > shape.Buckets {
		return float64(totals[shape.Buckets]) / float64(shape.BucketSize())
	}
	return 0
}

// ownCount is how much is in use by own hits that nobody else counts. The counter is current.
func (c Locked) ownCount(t *Limits, at int64) float64 {
	if l := c.level(); l != nil {
		return l.OwnCount(c.situation(t, new(level.Situation)), at)
	}
	return c.Group.Shape.Count(c.ownHits(), at)
}

// localRoom is how many more hits the counter's key may have here when each checker keeps to its
// share of the limit, if there is otherwise room for so many. The counter is current.
func (c Locked) localRoom(t *Limits, at, room int64) int64 {
	g := c.Group
	if g.Shape.Kind == window.Leaky { // turns come as seldom as they may
		return room
	}
	own := int64(math.Ceil(c.ownCount(t, at)))
	free := min(room+own, t.Capacity) // a bucket's room counts as drained what own hits at the share's rate do not
	return min(room, max(g.localShare(c.Key(), free)-own, 0))
}

// hidesRefunds says whether a message tells of admitted hits only, and some of the rule's have been
// given back: how many hits there are is then at most what it says.
func (c Locked) hidesRefunds(w Update) bool {
	return w.Refunded.Newest == 0 && c.Group.Refunds.Load()
}

// correct changes what a local limiter knows of a bucket. The counter is current.
func (c Locked) correct(t *Limits, bucket, hits int64) {
	totals := c.Totals()
	if age := c.Newest - bucket; age >= 0 && age < int64(len(totals)) {
		totals[age] = min(max(totals[age]+hits, 0), events.MaxCount)
		c.level().Undate(&t.Drain, age, -hits, 0)
	}
}
