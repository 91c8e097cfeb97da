package check

import "time"

// A key far below its limit is *quiet*: even if all checkers hold as many of its hits as this one
// it would not be near. Its hits may wait for their report longer than others', so that more of
// them share one. They still count here at once, and are reported exactly once; that they are not
// known elsewhere does no harm until the key comes near its limit, and then an alarm, or the first
// check that finds it so, ends the wait. No key is quiet before an answer or an alarm has told what
// others have admitted: a checker that has just started knows nothing of what is used up.

const (
	// quietPart is which part of its window a quiet key's hits may wait at the most.
	quietPart = 10
	// quietFor is how long they may wait by default.
	quietFor = time.Second
)

// patience is how long hits of a quiet key may wait from the first flush that meets them; negative
// if that makes no difference. That flush came up to FlushEvery after them, and so does the one
// that ends the wait.
func (l *Limiter) patience() int64 {
	o := &l.checker.o
	return int64(min(l.shape.Length/quietPart, o.QuietFor) - 2*o.FlushEvery)
}

// mayDefer lets a counter's hits wait if its key is quiet. The counter's lock is held, it is
// withdrawn, rotated, and just off its queue.
func (b *reporter) mayDefer(c *counter, fleet int64) bool {
	l := c.limiter
	patience, t := l.patience(), l.limits.Load()
	if c.is(notDeferred) || !c.is(informed) || c.keyForecast() != nil || patience < 0 ||
		b.draining || b.crowded() || !l.foresees(t) || !c.hasPending() {
		c.state &^= notDeferred
		return false
	}
	if room, _ := c.room(t, fleet); c.unforeseen(t, room) <= 0 {
		return false
	}
	c.state |= queued | deferred
	l.owed.waiting.Push(aged{c, fleet + patience})
	if l.owed.waiting.Len() == 1 {
		b.waits.Push(fleet+patience, l)
	}
	return true
}

// endDeferrals queues the counters whose hits have waited long enough; all of them if there is no time
// or no room to wait.
func (b *reporter) endDeferrals(fleet int64) {
	all := b.draining || b.crowded()
	for due := b.waits.Due(); due != never && (all || due <= fleet); due = b.waits.Due() {
		q := &b.waits.Peek().owed.waiting
		c := q.Pop().cell
		c.mu.Lock()
		if c.is(deferred) { // or else something has ended its wait
			c.state = c.state&^deferred | notDeferred
			b.enqueue(c)
		}
		c.mu.Unlock()
		if q.Len() > 0 {
			b.waits.Defer(q.Peek().due)
		} else {
			b.waits.Pop()
		}
	}
}

// endDeferral ends the wait of a counter whose hits should be reported soon, or spares it one. The lock
// is held.
func (c *counter) endDeferral() {
	c.state |= notDeferred
	if c.is(deferred) {
		c.state &^= deferred | queued
		c.queue()
	}
}
