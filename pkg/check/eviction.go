package check

import (
	"math"
	"math/bits"
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/queue"
)

// Counters that have nothing on its way wait here until they may leave. While there is room, a
// counter stays until its last hit has left the window: what it knows is worth more than the
// memory, which is bounded anyway. When the live map gets crowded, those that have waited longest
// make room; the idle cache remembers them as well as it can.

// aged is a counter that may leave, and when to look at it.
type aged struct {
	cell *counter
	due  int64 // fleet time
}

// evictionQueues are queues, each in the order of due: counters that were never looked at, and
// counters that were not empty when they were, by how long after that they are looked at again.
// That is as long as can be before they are empty, if nothing else comes, of laterLook, twice, four
// times that and so on: so an idle counter of a long window is looked at a few times, not every so
// often. Forecasts, which take more memory than their counters, have a queue of their own: a
// counter that waits for a day can come near its limit meanwhile, and be idle again.
type evictionQueues struct {
	fresh     queue.FIFO[aged]
	known     [laterLooks]queue.FIFO[aged]
	forecasts queue.FIFO[agedForecast]
}

// agedForecast is the forecast of an ageing counter, as long as it has this one.
type agedForecast struct {
	aged
	ahead *keyForecast
}

const (
	// firstLook is how long after its last report was answered a counter is looked at, and
	// laterLook how long after that at the least.
	firstLook = 5 * time.Second
	laterLook = 30 * time.Second
	// laterLooks is enough for the longest window.
	laterLooks = 21
	// silentBlock is how long a blocked key must have been silent before it may make room for
	// others: a blocked key that still sends stays blocked.
	silentBlock = 10 * time.Second
	// silentForecast is how long a counter has been silent when it goes without its forecast,
	// whenever it is looked at. Where it is looked at every laterLook, that does so before.
	silentForecast = firstLook + laterLook
	// looksAtOnce bounds the counters looked at in one step, and so how long the lock is held.
	looksAtOnce = 4096
	// sweptAtOnce bounds those that nobody takes reports of.
	sweptAtOnce = 512
)

// addAgeing lets a counter wait to leave, and its forecast. Its lock is held.
func (b *reporter) addAgeing(c *counter, fleet int64) {
	b.ageForecast(c, fleet)
	if !c.is(ageing | dead) {
		c.state |= ageing
		b.ageing.fresh.Push(aged{c, fleet + int64(firstLook)})
	}
}

// ageForecast lets the forecast of a counter, if it has one, wait to leave. The counter's lock is
// held.
func (b *reporter) ageForecast(c *counter, fleet int64) {
	if a := c.keyForecast(); a != nil && !a.ageing && !c.is(dead) {
		a.ageing = true
		b.ageing.forecasts.Push(agedForecast{aged{c, fleet + int64(laterLook)}, a})
	}
}

// evictForecasts takes forecasts from counters that have been silent.
func (b *reporter) evictForecasts(fleet int64) {
	q := &b.ageing.forecasts
	for range min(q.Len(), looksAtOnce) {
		if fleet < q.Peek().due {
			return
		}
		f := q.Pop()
		f.cell.mu.Lock()
		switch {
		case f.cell.keyForecast() != f.ahead: // it has gone
		case f.cell.is(queued|inFlight) || f.cell.silent(fleet) < ticks(silentForecast):
			f.ahead.ageing = false
			b.ageForecast(f.cell, fleet)
		default:
			f.cell.roomBehindBlock(fleet) // which puts down what the forecast is to know
			f.cell.setForecast(nil)
		}
		f.cell.mu.Unlock()
	}
}

// evict lets counters leave whose time has come; when the live map is crowded, those that have
// waited longest leave before it has.
func (b *reporter) evict(fleet int64) {
	b.evictForecasts(fleet)
	known := 0
	for i := range b.ageing.known {
		known += b.ageing.known[i].Len()
	}
	for range min(known, looksAtOnce) {
		crowded := b.crowded()
		q := b.ageing.next(fleet, crowded)
		if q == nil {
			break
		}
		b.consider(q.Pop().cell, fleet, crowded)
	}
	for range min(b.ageing.fresh.Len(), looksAtOnce) {
		crowded := b.crowded()
		if !crowded && fleet < b.ageing.fresh.Peek().due {
			return
		}
		b.consider(b.ageing.fresh.Pop().cell, fleet, crowded)
	}
}

// next returns the later queue whose first counter is to be looked at, nil if none is: one that is
// due or, when it is crowded, the one that has waited longest.
func (a *evictionQueues) next(fleet int64, crowded bool) (next *queue.FIFO[aged]) {
	longest := int64(math.MaxInt64)
	for i := range a.known {
		q := &a.known[i]
		if q.Len() == 0 {
			continue
		}
		due := q.Peek().due
		switch since := due - int64(laterLook)<<i; {
		case !crowded && due <= fleet:
			return q
		case crowded && since < longest:
			longest, next = since, q
		}
	}
	return next
}

// lookSoon has all counters looked at within laterLook, since limiters have retired, whose counters
// need not wait until they are empty.
func (b *reporter) lookSoon(fleet int64) {
	for i := range b.ageing.known[1:] {
		for q := &b.ageing.known[1+i]; q.Len() > 0; {
			b.ageing.known[0].Push(aged{q.Pop().cell, fleet + int64(laterLook)})
		}
	}
}

// sweep lets counters leave that wait for their report when the live map is crowded, if all their
// hits have become late meanwhile: the limiter tells of these. Nobody may take reports for days,
// and keys that find no room have no limit.
func (b *reporter) sweep(fleet int64) {
	if !b.crowded() || b.draining {
		return
	}
	left := sweptAtOnce
	for range b.shards {
		b.sweeps++
		s := &b.shards[b.sweeps%uint(len(b.shards))]
		if s.gaveUp <= b.lastContact && (s.flight == nil || s.flight.tries <= soonTries) {
			continue
		}
		for range min(left, s.queue.Len()) {
			left--
			if c := s.queue.Pop(); !b.spare(c, fleet) {
				s.queue.Push(c)
			}
		}
	}
	for range min(left, len(b.unsharded)) {
		b.sweeps++
		last := len(b.unsharded) - 1
		if i := b.sweeps % uint(last+1); b.spare(b.unsharded[i], fleet) {
			b.unsharded[i], b.unsharded[last] = b.unsharded[last], nil
			b.unsharded = b.unsharded[:last]
		}
	}
}

// spare lets a queued counter age that has nothing to report.
func (b *reporter) spare(c *counter, fleet int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.withdraw(fleet)
	c.rotate(fleet)
	if c.hasPending() {
		return false
	}
	c.state &^= queued
	b.addAgeing(c, fleet)
	return true
}

// crowded says whether idle counters should make room.
func (b *reporter) crowded() bool {
	return b.checker.liveKeys.Load() > int64(b.checker.o.MaxLiveKeys)*3/4
}

// consider lets one counter leave, or lets it wait on. One that has hits on their way is left to
// their answer.
func (b *reporter) consider(c *counter, fleet int64, crowded bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state &^= ageing
	if c.is(queued | inFlight) {
		return
	}
	if c.mayLeave(c.roomBehindBlock(fleet), fleet, crowded) {
		c.limiter.drop(c)
		return
	}
	if c.silent(fleet) >= ticks(firstLook) {
		c.setForecast(nil) // it takes more memory than the counter; a key that comes again gets another
	}
	c.state |= ageing
	later := c.laterLook(fleet)
	b.ageing.known[later].Push(aged{c, fleet + int64(laterLook)<<later})
}

// roomBehindBlock is room, which withdraws an allowance, but for a block: that still holds. The
// lock is held.
func (c *counter) roomBehindBlock(fleet int64) int64 {
	word, until := c.allowance.Load(), c.until.Load()
	room, _ := c.room(c.limiter.limits.Load(), fleet)
	if word&^stampMask == blocked {
		c.until.Store(until)
		c.allowance.Store(word)
	}
	return room
}

// laterLook is in which of the later queues a counter is to wait. The lock is held, the counter
// current.
func (c *counter) laterLook(fleet int64) int {
	if c.keyForecast() != nil || c.permits() != nil || c.limiter.retired.Load() {
		return 0 // it may leave, or need less memory, before it is empty
	}
	shape, totals := c.limiter.shape, c.totals()
	last := c.newest - int64(len(totals)) // when this has left, the counter is empty
	for i, n := range totals {
		if n != 0 {
			last = c.newest - int64(i)
			break
		}
	}
	// A counter with a level is not empty before that is: the level of the bucket that left last.
	if d := c.levelState(); d != nil {
		if d.level.Parts > 0 {
			last = max(last, c.newest-int64(len(totals))+1)
		}
		if reset := c.limiter.limits.Load().drain.Reset(d.level, c.net(), fleet); reset > 0 {
			last = max(last, shape.Bucket(fleet+int64(reset)))
		}
	}
	left := max(shape.End(last+int64(len(totals))-1)-fleet, 0)
	return min(max(bits.Len64(uint64(left)/uint64(laterLook))-1, 0), laterLooks-1)
}

// mayLeave decides whether a counter with nothing on its way may leave. The lock is held.
func (c *counter) mayLeave(room, fleet int64, crowded bool) bool {
	over := c.limiter.retired.Load() && c.silent(fleet) >= ticks(firstLook)
	if p := c.permits(); p != nil { // the store counts: what this counter counts decides nothing
		return p.IsIdle(c.moment(fleet)) && (crowded || c.isEmpty() || over)
	}
	switch {
	case c.isEmpty() || over:
		return true
	case c.limiter.checker.o.Link == nil: // nobody else knows this count
		return false
	case room < 1:
		return crowded && c.silent(fleet) >= ticks(silentBlock)
	}
	return crowded
}
