package check

import (
	"math"
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/fleetclock"
	"github.com/offpath-io/offpath/pkg/check/internal/forecast"
	"github.com/offpath-io/offpath/pkg/window"
)

// A key of a token or leaky bucket has a *level*, which drains at a constant rate. It is reckoned
// from what windows have too, a total per bucket, and from a settled level: what had not drained at
// the end of a bucket. Answers and alarms tell of one that is final, since no report can add to the
// buckets before it any more. A counter keeps the newest that it was told, and brings it forward
// itself, by what it knows, when buckets leave it.

// levelState is what the counter of such a key has beside its counts.
type levelState struct {
	level window.Level // of a bucket before the newest
	// dates are when own hits of a token bucket came, for which level is lower, by so many parts,
	// than by counts alone.
	dates window.Dates
	slack int64
	// own is that of pending hits alone, each counted as often as there are checkers, so that they
	// drain at this checker's share of the rate. It is of use while this checker keeps to its
	// share.
	own window.Level
	// turn is when the last own hit in the queue of a leaky bucket has drained; fleet time. Others'
	// hits are known by bucket, own ones to the nanosecond.
	turn   int64
	others forecast.Outflow
}

// copy makes d, whose memory it keeps, a copy of another.
func (d *levelState) copy(of *levelState) {
	dates := d.dates
	dates.Copy(&of.dates)
	*d = *of
	d.dates = dates
}

// spareTime is for how long beyond its live buckets a counter keeps counts, so that what it was
// told of as final is newer than what it has reckoned itself.
const spareTime = 100 * time.Millisecond

// bucketsOf is how many buckets' counts a counter keeps.
func bucketsOf(s window.Shape) int {
	live := s.Live()
	if !s.Drains() {
		return live
	}
	size := s.BucketSize()
	return live + min(int((spareTime+size-1)/size), live)
}

// levelState returns what the counter has for its level, nil if it has none. The lock is held.
func (c *counter) levelState() *levelState {
	if c.more == nil {
		return nil
	}
	return c.more.drained
}

// drain is the arithmetic of these limits for this counter's counts, with what is known of when own
// hits came. The lock is held.
func (c *counter) drain(t *limits) window.Drain {
	by := t.drain
	if d := c.levelState(); by.Shape.Kind == window.Token {
		d.dates.Taken = c.refunded()
		by.Dates = &d.dates
	}
	return by
}

// datable is until when an allowance may last from a time on: to the end of the bucket at most, and
// under a token bucket, whose hits are dated when it ends, not longer than a tenth of what one
// takes to drain, or a tick of the clock. The lock is held.
func (c *counter) datable(t *limits, at int64) int64 {
	if c.limiter.shape.Kind != window.Token {
		return c.end()
	}
	takes := int64(c.limiter.shape.Length) / max(t.limit, 1)
	return min(c.end(), at+max(takes/10, int64(fleetclock.TickEvery)))
}

// date notes own hits that came at a time. The lock is held, and the counter's newest bucket that
// of the hits.
func (c *counter) date(t *limits, at, hits int64) {
	if d := c.levelState(); d != nil && c.limiter.shape.Kind == window.Token {
		d.dates.Add(t.drain, c.newest, at, hits)
	}
}

// undate takes in that own hits of a bucket of some age, which came after so many others of it, are
// none any more. The lock is held.
func (c *counter) undate(t *limits, age, hits, after int64) {
	if d := c.levelState(); d != nil && c.limiter.shape.Kind == window.Token {
		d.dates.Remove(t.drain, age, hits, after)
	}
}

// remaining is how many hits fit by what is known: of a leaky bucket, without a wait. The lock is
// held, the counter current.
func (c *counter) remaining(t *limits, at int64) int64 {
	d := c.levelState()
	switch {
	case d == nil:
		return c.limiter.shape.Remaining(c.net(), t.limit, at)
	case t.drain.Shape.Kind == window.Token:
		return c.drain(t).Remaining(d.level, c.net(), at)
	case c.turn(t, at) > 0:
		return 0
	}
	return t.capacity
}

// turn is how long until a hit that joins the queue of a leaky bucket has its turn. The lock is
// held, the counter current.
func (c *counter) turn(t *limits, at int64) time.Duration {
	d := c.levelState()
	wait := time.Duration(d.turn - at)
	if c.freshness(t) != LocalShare { // where turns are far enough apart for all
		wait = max(wait, t.drain.Turn(d.level, c.net(), at))
	}
	return max(wait, 0)
}

// retryIn is how long until a hit fits by what is known, if nothing else comes. The lock is held,
// the counter current.
func (c *counter) retryIn(t *limits, cost, at int64) (time.Duration, bool) {
	d := c.levelState()
	switch {
	case d == nil:
		return c.limiter.shape.RetryAfter(c.net(), t.limit, cost, at)
	case t.drain.Shape.Kind == window.Token:
		return c.drain(t).RetryAfter(d.level, c.net(), cost, at)
	}
	return c.turn(t, at), cost <= t.capacity
}

// count is how much is in use by what is known. The lock is held, the counter current
// .
func (c *counter) count(t *limits, at int64) float64 {
	if d := c.levelState(); d != nil {
		return c.drain(t).Count(d.level, c.net(), at)
	}
	return c.limiter.shape.Count(c.net(), at)
}

// freed is how many hits leave per ns at present. The lock is held, the counter current
// .
func (c *counter) freed(t *limits, at int64) float64 {
	shape, totals := c.limiter.shape, c.net()
	switch d := c.levelState(); {
	case d != nil && c.drain(t).Level(d.level, totals, at) == 0:
	case d != nil:
		return float64(t.limit) / float64(shape.Length)
	case shape.Kind == window.Sliding && !shape.Fixed && len(totals) > shape.Buckets:
		return float64(totals[shape.Buckets]) / float64(shape.BucketSize())
	}
	return 0
}

// ownHits are, per bucket, newest first, own hits that nobody else counts: pending ones, and in the
// store's overflow all. The lock is held.
func (c *counter) ownHits() []int64 {
	if c.overflow {
		return c.totals()
	}
	return c.pending()
}

// ownCount is how much is in use by such hits, if each of so many checkers keeps to its share of
// the rate. The lock is held, the counter current.
func (c *counter) ownCount(t *limits, checkers, at int64) float64 {
	d := c.levelState()
	if d == nil {
		return c.limiter.shape.Count(c.ownHits(), at)
	}
	return t.drain.Count(d.own, times(c.ownHits(), checkers), at) / float64(checkers)
}

// shareIn is how long until a hit fits this checker's share of a token bucket, while it keeps to
// that; false if that is never, or if as much is owed already as the share can hold. A leaky
// bucket's turns are far enough apart for all. The lock is held, the counter current.
func (c *counter) shareIn(t *limits, cost, at int64) (time.Duration, bool) {
	l, d := c.limiter, c.levelState()
	if l.shape.Kind != window.Token || c.freshness(t) != LocalShare {
		return 0, true
	}
	n := l.others()
	own := times(c.ownHits(), n)
	if cost > t.capacity/n || t.drain.Count(d.own, own, at)+float64(cost*n) > 2*float64(t.capacity) {
		return 0, false
	}
	return t.drain.RetryAfter(d.own, own, cost*n, at)
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
// counter has been charged for it, and its lock is held; its turn is after so long.
func (c *counter) took(t *limits, at, cost int64, wait time.Duration) {
	c.date(t, at, cost)
	d := c.levelState()
	if d == nil || t.drain.Shape.Kind != window.Leaky {
		return
	}
	gap := c.gap(t, cost)
	late := (gap - c.spacing(t, cost)) / madeUp // hits do not come just when their turn does
	d.turn = max(d.turn, at+int64(wait)-late) + gap
	d.others.Took(cost)
}

// madeUp is which part of a gap, one in so many, is made up for if a hit comes late for its turn.
const madeUp = 4

// observeOthers takes in hits of others. The lock is held.
func (c *counter) observeOthers(at, news int64) {
	if d := c.levelState(); d != nil && c.limiter.shape.Kind == window.Leaky {
		d.others.Observe(at, news)
	}
}

// gap is how long after a hit the next one of this checker has its turn, in ns: the time that it
// takes to drain, and that of the hits that others probably let pass meanwhile. The lock is held.
func (c *counter) gap(t *limits, cost int64) int64 {
	spacing := c.spacing(t, cost)
	if c.freshness(t) == LocalShare || !c.limiter.isShared() {
		return spacing
	}
	return c.levelState().others.Gap(spacing, c.spacing(t, 1), c.limiter.others())
}

// spacing is how long a hit takes to drain, in ns; on its own, a checker spares time for others.
// The lock is held.
func (c *counter) spacing(t *limits, cost int64) int64 {
	l := c.limiter
	spacing := float64(cost) / float64(t.limit) * float64(l.shape.Length)
	if c.freshness(t) == LocalShare {
		spacing *= float64(l.others())
	}
	return int64(math.Ceil(min(spacing, float64(window.MaxLength))))
}

// advance brings the level forward when so many new buckets come: the counts of those that leave go
// into it. The lock is held.
func (c *counter) advance(by int64) {
	d := c.levelState()
	if d == nil {
		return
	}
	l, totals := c.limiter, c.net()
	t, to := l.limits.Load(), c.newest+by-int64(len(totals))
	drain := t.drain
	c.advanceLevel(t, to)
	d.dates.Advance(drain, c.newest, by, l.live)
	if c.overflow || Freshness(l.checker.freshness.Load()) >= LocalShare {
		d.own = drain.Settle(d.own, times(c.ownHits(), l.others()), c.newest, to)
	} else {
		d.own = window.Level{Bucket: to}
	}
}

// advanceLevel brings the level forward to the end of a bucket. The lock is held.
func (c *counter) advanceLevel(t *limits, bucket int64) {
	d, totals := c.levelState(), c.net()
	late := d.level
	late.Parts += d.slack
	d.level = c.drain(t).Settle(d.level, totals, c.newest, bucket)
	d.slack = t.drain.Settle(late, totals, c.newest, bucket).Parts - d.level.Parts
}

// bringTurnForward lets the next hit in the queue of a leaky bucket have its turn by when
// everything has drained: own hits may have been settled at less than they were charged. The lock
// is held, the counter current.
func (c *counter) bringTurnForward(t *limits, at int64) {
	d := c.levelState()
	if d == nil || c.freshness(t) == LocalShare { // where turns are farther apart than that
		return
	}
	d.turn = min(d.turn, at+int64(t.drain.Reset(d.level, c.net(), at)))
}

// observeLevel takes in a settled level and the totals after it. The lock is held and the counter
// current.
func (c *counter) observeLevel(w update) {
	d, l := c.levelState(), w.admitted.level
	if d == nil || l.Parts < 0 {
		return
	}
	t := c.limiter.limits.Load()
	drain := t.drain
	if l.Bucket < c.newest {
		c.advanceLevel(t, l.Bucket)
	} else {
		d.slack = 0
	}
	if l.Bucket < d.level.Bucket {
		// Bring it forward by what the message says. That may not be all, or it may be too much:
		// what the counter has may be net of refunds.
		if c.is(informed) && c.hidesRefunds(w) {
			return
		}
		// The message says nothing about buckets of long ago.
		if far := d.level.Bucket - 2*int64(c.limiter.live); l.Bucket < far {
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
// ahead, has not drained yet. The lock is held.
func (c *counter) holdLevel() {
	if d := c.levelState(); d != nil {
		d.level.Bucket = min(d.level.Bucket, c.newest-1)
		d.own.Bucket = min(d.own.Bucket, c.newest-1)
	}
}

// advance brings a level forward by a message's totals, less its refunds.
func (w update) advance(d window.Drain, l window.Level, bucket int64) window.Level {
	for next := l.Bucket + 1; next <= bucket; next++ {
		l = d.Settle(l, []int64{max(w.admitted.at(next)-w.refunded.at(next), 0)}, next, next)
	}
	return l
}

// at is the total of a bucket.
func (t totals) at(bucket int64) (total int64) {
	for i, age := range t.age {
		if t.newest-age == bucket {
			total = int64(t.value[i])
		}
	}
	return total
}
