package counter

import (
	"math"
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/fleetstate"
	"github.com/offpath-io/offpath/pkg/check/internal/level"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/window"
)

// Room and use of a counter: under a token or leaky bucket they are computed from the level, by
// package level; in a window, from the counts alone.

// situation fills in s with the state of the counter that its level needs, under these limits, and
// returns s. It is valid until the counter changes.
func (c Locked) situation(t *Limits, s *level.Situation) *level.Situation {
	g, fresh := c.Group, c.freshness(t)
	*s = level.Situation{
		Drain: &t.Drain, Newest: c.Newest, Net: c.net(), Refunded: c.refunded(), Own: c.ownHits(),
		Checkers: g.Host.Checkers(), Shared: g.isShared(),
		Apart: fresh >= fleetstate.LocalShare, Share: fresh == fleetstate.LocalShare,
	}
	return s
}

// ownHits returns, per bucket, newest first, the own hits that only this checker counts: the
// pending ones; in the store's overflow all.
func (c Locked) ownHits() []int64 {
	if c.overflow {
		return c.Totals()
	}
	return c.Pending()
}

// remaining returns how many hits fit by the known counts; under a leaky bucket, how many fit
// without a wait. The counter is current.
func (c Locked) remaining(t *Limits, at int64) int64 {
	if l := c.level(); l != nil {
		return l.Remaining(c.situation(t, new(level.Situation)), at)
	}
	return c.Group.Shape.Remaining(c.net(), t.Limit, at)
}

// retryIn returns how long until a hit fits by the known counts, if there are no more hits. The
// counter is current.
func (c Locked) retryIn(t *Limits, cost, at int64) (time.Duration, bool) {
	if l := c.level(); l != nil {
		return l.RetryIn(c.situation(t, new(level.Situation)), cost, at)
	}
	return c.Group.Shape.RetryAfter(c.net(), t.Limit, cost, at)
}

// Count returns how much of the limit is in use, by the known counts. The counter is current.
func (c Locked) Count(t *Limits, at int64) float64 {
	if l := c.level(); l != nil {
		return l.Count(c.situation(t, new(level.Situation)), at)
	}
	return c.Group.Shape.Count(c.net(), at)
}

// freed returns how many hits leave per ns at present. The counter is current.
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

// ownCount returns how much of the limit the hits of ownHits use. The counter is current.
func (c Locked) ownCount(t *Limits, at int64) float64 {
	if l := c.level(); l != nil {
		return l.OwnCount(c.situation(t, new(level.Situation)), at)
	}
	return c.Group.Shape.Count(c.ownHits(), at)
}

// localRoom returns how many more hits this checker may admit when each checker keeps to its share
// of the limit. room is how many it could admit otherwise. The counter is current.
func (c Locked) localRoom(t *Limits, at, room int64) int64 {
	g := c.Group
	if g.Shape.Kind == window.Leaky { // its turns are spaced by the share already
		return room
	}
	own := int64(math.Ceil(c.ownCount(t, at)))
	free := min(room+own, t.Capacity) // at the share's rate, own hits drain more slowly than the room of a token bucket assumes
	return min(room, max(g.localShare(c.Key(), free)-own, 0))
}

// hidesRefunds returns whether a message has admitted hits only, although hits of the rule have
// been refunded. Then its totals are only upper bounds.
func (c Locked) hidesRefunds(w Update) bool {
	return w.Refunded.Newest == 0 && c.Group.Refunds.Load()
}

// correct changes the total of a bucket of a checker without a link. The counter is current.
func (c Locked) correct(t *Limits, bucket, hits int64) {
	totals := c.Totals()
	if age := c.Newest - bucket; age >= 0 && age < int64(len(totals)) {
		totals[age] = min(max(totals[age]+hits, 0), events.MaxCount)
		c.level().Undate(&t.Drain, age, -hits, 0)
	}
}
