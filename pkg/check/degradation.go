package check

import (
	"math"

	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// When aggregators fall silent a checker goes down degradation levels, a step after so many hellos
// without an answer. Fresh: it decides by what it is told, and what it expects of others. Stale:
// the same, but nobody tells it anything; what it expects fades, and what its own share of the
// traffic says of the others stays. Local share: its own hits may take no more than the limit
// divided by the checkers that were last heard of. Outage: rules that say rules.Open or
// rules.Closed on outage do so; all others stay at the local share, for ever. The first word from
// any aggregator takes it up again, at once.

func (b *reporter) judgeFreshness(now int64) {
	o := &b.checker.o
	f := Fresh
	switch silence := now - b.lastContact; {
	case b.lastContact == 0 && o.ExpectCheckers > 1:
		f = LocalShare
	case b.lastContact == 0:
		f = Local
	case silence > int64(o.OutageAfter):
		f = Outage
	case silence > int64(o.ShareAfter):
		f = LocalShare
	case silence > int64(o.StaleAfter):
		f = Stale
	}
	b.checker.freshness.Store(uint32(f))
}

// freshness is what decisions by these limits are based on.
func (l *Limiter) freshness(t *limits) Freshness {
	return t.freshness(Freshness(l.checker.freshness.Load()))
}

func (t *limits) freshness(f Freshness) Freshness {
	if f == Outage && t.rule.OnOutage == rules.Share {
		return LocalShare
	}
	return f
}

// freshness is that of a counter: in the store's overflow a key is decided as all are in an outage.
// The lock is held.
func (c *counter) freshness(t *limits) Freshness {
	if c.overflow {
		return t.freshness(Outage)
	}
	return c.limiter.freshness(t)
}

// slice is the number of the slice of time, as long as a window, in which the store counts a rule's
// new keys; buckets are parts of one.
func (l *Limiter) slice(bucket int64) int64 {
	n := int64(l.shape.Buckets)
	return (bucket - (bucket%n+n)%n) / n
}

// sliceEnd is when the slice that a bucket is part of ends; fleet time.
func (l *Limiter) sliceEnd(bucket int64) int64 { return (l.slice(bucket) + 1) * int64(l.shape.Length) }

// localRoom is how many more hits the counter's key may have here when each checker keeps to its
// share of the limit, if there is otherwise room for so many. The lock is held, the counter
// current.
func (c *counter) localRoom(t *limits, at, room int64) int64 {
	l := c.limiter
	if l.shape.Kind == window.Leaky { // turns come as seldom as they may
		return room
	}
	own := int64(math.Ceil(c.ownCount(t, l.others(), at)))
	free := min(room+own, t.capacity) // a bucket's room counts as drained what own hits at the share's rate do not
	return min(room, max(l.localShare(c.key(), free)-own, 0))
}

// others is how many checkers there are, this one included, as far as is known.
func (l *Limiter) others() int64 {
	n := l.checker.fleet.Load()
	if n == 0 {
		n = int64(l.checker.o.ExpectCheckers)
	}
	return max(n, 1)
}

// localShare is this checker's share of the room that a key had when nothing was pending. What
// cannot be divided evenly is spread by a hash, so that with a limit of 3 a fleet of 8 lets 3 pass
// on average, and neither 0 nor 8.
func (l *Limiter) localShare(key string, room int64) int64 {
	k, n := l.checker, l.others()
	share, rest := room/n, room%n
	hash := (events.KeyHash(l.name, key) ^ k.o.Epoch*0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9
	if int64(hash>>32)*n>>32 < rest {
		share++
	}
	return share
}

// inOutage decides for a hit in an outage that opens or closes.
func (q *ruleDecision) inOutage(cost int64) bool {
	limit := q.limits.capacity
	q.passes = q.limits.rule.OnOutage == rules.Open && cost <= limit
	q.left = 0
	if q.passes {
		q.left = limit - cost
	} else {
		q.room = 0
	}
	return q.passes
}
