package counter

import (
	"math"
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/fleetclock"
	"github.com/offpath-io/offpath/pkg/check/internal/fleetstate"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/window"
)

// A key of a token or leaky bucket has a *level*, which drains at a constant rate. It is reckoned
// from what windows have too, a total per bucket, and from a settled level: what had not drained at
// the end of a bucket. Answers and alarms tell of one that is final, since no report can add to the
// buckets before it any more. A counter keeps the newest that it was told, and brings it forward
// itself, by what it knows, when buckets leave it.

// drain is the arithmetic of these limits for this counter's counts, with what is known of when own
// hits came.
func (c Locked) drain(t *Limits) window.Drain {
	by := t.Drain
	if d := c.levelState(); by.Shape.Kind == window.Token {
		d.dates.Taken = c.refunded()
		by.Dates = &d.dates
	}
	return by
}

// datable is until when an allowance may last from a time on: to the end of the bucket at most, and
// under a token bucket, whose hits are dated when it ends, not longer than a tenth of what one
// takes to drain, or a tick of the clock.
func (c Locked) datable(t *Limits, at int64) int64 {
	if c.Group.Shape.Kind != window.Token {
		return c.End()
	}
	takes := int64(c.Group.Shape.Length) / max(t.Limit, 1)
	return min(c.End(), at+max(takes/10, int64(fleetclock.TickEvery)))
}

// date notes own hits that came at a time. The counter's newest bucket that of the hits.
func (c Locked) date(t *Limits, at, hits int64) {
	if d := c.levelState(); d != nil && c.Group.Shape.Kind == window.Token {
		d.dates.Add(t.Drain, c.Newest, at, hits)
	}
}

// undate takes in that own hits of a bucket of some age, which came after so many others of it, are
// none any more.
func (c Locked) undate(t *Limits, age, hits, after int64) {
	if d := c.levelState(); d != nil && c.Group.Shape.Kind == window.Token {
		d.dates.Remove(t.Drain, age, hits, after)
	}
}

// remaining is how many hits fit by what is known: of a leaky bucket, without a wait. The counter
// is current.
func (c Locked) remaining(t *Limits, at int64) int64 {
	d := c.levelState()
	switch {
	case d == nil:
		return c.Group.Shape.Remaining(c.net(), t.Limit, at)
	case t.Drain.Shape.Kind == window.Token:
		return c.drain(t).Remaining(d.level, c.net(), at)
	case c.turn(t, at) > 0:
		return 0
	}
	return t.Capacity
}

// turn is how long until a hit that joins the queue of a leaky bucket has its turn. The counter is
// current.
func (c Locked) turn(t *Limits, at int64) time.Duration {
	d := c.levelState()
	wait := time.Duration(d.turn - at)
	if c.freshness(t) != fleetstate.LocalShare { // where turns are far enough apart for all
		wait = max(wait, t.Drain.Turn(d.level, c.net(), at))
	}
	return max(wait, 0)
}

// retryIn is how long until a hit fits by what is known, if nothing else comes. The counter is
// current.
func (c Locked) retryIn(t *Limits, cost, at int64) (time.Duration, bool) {
	d := c.levelState()
	switch {
	case d == nil:
		return c.Group.Shape.RetryAfter(c.net(), t.Limit, cost, at)
	case t.Drain.Shape.Kind == window.Token:
		return c.drain(t).RetryAfter(d.level, c.net(), cost, at)
	}
	return c.turn(t, at), cost <= t.Capacity
}

// Count is how much is in use by what is known. The counter is current.
func (c Locked) Count(t *Limits, at int64) float64 {
	if d := c.levelState(); d != nil {
		return c.drain(t).Count(d.level, c.net(), at)
	}
	return c.Group.Shape.Count(c.net(), at)
}

// freed is how many hits leave per ns at present. The counter is current.
func (c Locked) freed(t *Limits, at int64) float64 {
	shape, totals := c.Group.Shape, c.net()
	switch d := c.levelState(); {
	case d != nil && c.drain(t).Level(d.level, totals, at) == 0:
	case d != nil:
		return float64(t.Limit) / float64(shape.Length)
	case shape.Kind == window.Sliding && !shape.Fixed && len(totals) > shape.Buckets:
		return float64(totals[shape.Buckets]) / float64(shape.BucketSize())
	}
	return 0
}

// ownHits are, per bucket, newest first, own hits that nobody else counts: pending ones, and in the
// store's overflow all.
func (c Locked) ownHits() []int64 {
	if c.overflow {
		return c.Totals()
	}
	return c.Pending()
}

// ownCount is how much is in use by such hits, if each of so many checkers keeps to its share of
// the rate. The counter is current.
func (c Locked) ownCount(t *Limits, checkers, at int64) float64 {
	d := c.levelState()
	if d == nil {
		return c.Group.Shape.Count(c.ownHits(), at)
	}
	return t.Drain.Count(d.own, times(c.ownHits(), checkers), at) / float64(checkers)
}

// times multiplies counts, up to what can be counted.
func times(counts []int64, factor int64) []int64 {
	scaled := make([]int64, len(counts))
	for i, n := range counts {
		scaled[i] = min(n, window.MaxCount/factor) * factor
	}
	return scaled
}

// took notes when an own hit came, and when it has drained in the queue of a leaky bucket. The
// counter has been charged for it; its turn is after so long.
func (c Locked) took(t *Limits, at, cost int64, wait time.Duration) {
	c.date(t, at, cost)
	d := c.levelState()
	if d == nil || t.Drain.Shape.Kind != window.Leaky {
		return
	}
	gap := c.gap(t, cost)
	late := (gap - c.spacing(t, cost)) / madeUp // hits do not come just when their turn does
	d.turn = max(d.turn, at+int64(wait)-late) + gap
	d.others.Took(cost)
}

// madeUp is which part of a gap, one in so many, is made up for if a hit comes late for its turn.
const madeUp = 4

// observeOthers takes in hits of others.
func (c Locked) observeOthers(at, news int64) {
	if d := c.levelState(); d != nil && c.Group.Shape.Kind == window.Leaky {
		d.others.Observe(at, news)
	}
}

// gap is how long after a hit the next one of this checker has its turn, in ns: the time that it
// takes to drain, and that of the hits that others probably let pass meanwhile.
func (c Locked) gap(t *Limits, cost int64) int64 {
	spacing := c.spacing(t, cost)
	if c.freshness(t) == fleetstate.LocalShare || !c.Group.isShared() {
		return spacing
	}
	return c.levelState().others.Gap(spacing, c.spacing(t, 1), c.Group.Host.Checkers())
}

// spacing is how long a hit takes to drain, in ns; on its own, a checker spares time for others.
func (c Locked) spacing(t *Limits, cost int64) int64 {
	g := c.Group
	spacing := float64(cost) / float64(t.Limit) * float64(g.Shape.Length)
	if c.freshness(t) == fleetstate.LocalShare {
		spacing *= float64(g.Host.Checkers())
	}
	return int64(math.Ceil(min(spacing, float64(window.MaxLength))))
}

// advance brings the level forward when so many new buckets come: the counts of those that leave go
// into it.
func (c Locked) advance(by int64) {
	d := c.levelState()
	if d == nil {
		return
	}
	g, totals := c.Group, c.net()
	t, to := g.Limits.Load(), c.Newest+by-int64(len(totals))
	drain := t.Drain
	c.advanceLevel(t, to)
	d.dates.Advance(drain, c.Newest, by, g.Live)
	if c.overflow || g.Host.Freshness() >= fleetstate.LocalShare {
		d.own = drain.Settle(d.own, times(c.ownHits(), g.Host.Checkers()), c.Newest, to)
	} else {
		d.own = window.Level{Bucket: to}
	}
}

// advanceLevel brings the level forward to the end of a bucket.
func (c Locked) advanceLevel(t *Limits, bucket int64) {
	d, totals := c.levelState(), c.net()
	late := d.level
	late.Parts += d.slack
	d.level = c.drain(t).Settle(d.level, totals, c.Newest, bucket)
	d.slack = t.Drain.Settle(late, totals, c.Newest, bucket).Parts - d.level.Parts
}

// bringTurnForward lets the next hit in the queue of a leaky bucket have its turn by when
// everything has drained: own hits may have been settled at less than they were charged. The
// counter is current.
func (c Locked) bringTurnForward(t *Limits, at int64) {
	d := c.levelState()
	if d == nil || c.freshness(t) == fleetstate.LocalShare { // where turns are farther apart than that
		return
	}
	d.turn = min(d.turn, at+int64(t.Drain.Reset(d.level, c.net(), at)))
}

// observeLevel takes in a settled level and the totals after it. The counter is current.
func (c Locked) observeLevel(w Update) {
	d, l := c.levelState(), w.Admitted.Level
	if d == nil || l.Parts < 0 {
		return
	}
	t := c.Group.Limits.Load()
	drain := t.Drain
	if l.Bucket < c.Newest {
		c.advanceLevel(t, l.Bucket)
	} else {
		d.slack = 0
	}
	if l.Bucket < d.level.Bucket {
		// Bring it forward by what the message says. That may not be all, or it may be too much:
		// what the counter has may be net of refunds.
		if c.Is(Informed) && c.hidesRefunds(w) {
			return
		}
		// The message says nothing about buckets of long ago.
		if far := d.level.Bucket - 2*int64(c.Group.Live); l.Bucket < far {
			l = drain.Settle(l, nil, far, far)
		}
		l = w.advance(drain, l, d.level.Bucket)
		l.Parts = max(l.Parts, d.level.Parts+d.slack)
	}
	// As many parts as by counts alone are of hits that are known, some of which have drained
	// sooner.
	early := l
	if d.slack > 0 && l.Parts <= d.level.Parts+d.slack {
		early.Parts = min(l.Parts, d.level.Parts)
	}
	d.level, d.slack = early, l.Parts-early.Parts
	c.holdLevel()
}

// holdLevel keeps the level before the newest bucket: what is of later ones, by a clock that was
// ahead, has not drained yet.
func (c Locked) holdLevel() {
	if d := c.levelState(); d != nil {
		d.level.Bucket = min(d.level.Bucket, c.Newest-1)
		d.own.Bucket = min(d.own.Bucket, c.Newest-1)
	}
}

// correct changes what a local limiter knows of a bucket. The counter is current.
func (c Locked) correct(t *Limits, bucket, hits int64) {
	totals := c.Totals()
	if age := c.Newest - bucket; age >= 0 && age < int64(len(totals)) {
		totals[age] = min(max(totals[age]+hits, 0), events.MaxCount)
		c.undate(t, age, -hits, 0)
	}
}

// localRoom is how many more hits the counter's key may have here when each checker keeps to its
// share of the limit, if there is otherwise room for so many. The counter is current.
func (c Locked) localRoom(t *Limits, at, room int64) int64 {
	g := c.Group
	if g.Shape.Kind == window.Leaky { // turns come as seldom as they may
		return room
	}
	own := int64(math.Ceil(c.ownCount(t, g.Host.Checkers(), at)))
	free := min(room+own, t.Capacity) // a bucket's room counts as drained what own hits at the share's rate do not
	return min(room, max(g.localShare(c.Key(), free)-own, 0))
}

// hidesRefunds says whether a message tells of admitted hits only, and some of the rule's have been
// given back: how many hits there are is then at most what it says.
func (c Locked) hidesRefunds(w Update) bool {
	return w.Refunded.Newest == 0 && c.Group.Refunds.Load()
}

// mayQueue says whether a hit that does not fit now may wait for its turn, which is after so long.
// The counter is current.
func (c Locked) mayQueue(t *Limits, at, cost int64, wait, most time.Duration) bool {
	d := c.levelState()
	switch {
	case most > 0 && wait > most, c.freshness(t) == fleetstate.Outage:
		return false
	case t.Drain.Shape.Kind == window.Leaky:
		own := (d.turn - at) / max(c.gap(t, 1), 1) // hits of the queue that are known to the nanosecond
		return min(t.Drain.Remaining(d.level, c.net(), at), t.Capacity-max(own, 0)) >= cost
	}
	return c.Count(t, at)+float64(cost) <= 2*float64(t.Capacity)
}

// shareIn is how long until a hit fits this checker's share of a token bucket, while it keeps to
// that; false if that is never, or if as much is owed already as the share can hold. A leaky
// bucket's turns are far enough apart for all. The counter is current.
func (c Locked) shareIn(t *Limits, cost, at int64) (time.Duration, bool) {
	g, d := c.Group, c.levelState()
	if g.Shape.Kind != window.Token || c.freshness(t) != fleetstate.LocalShare {
		return 0, true
	}
	n := g.Host.Checkers()
	own := times(c.ownHits(), n)
	if cost > t.Capacity/n || t.Drain.Count(d.own, own, at)+float64(cost*n) > 2*float64(t.Capacity) {
		return 0, false
	}
	return t.Drain.RetryAfter(d.own, own, cost*n, at)
}
