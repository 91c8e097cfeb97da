package check

import "time"

// Cells that have nothing on its way wait here until they may leave. While there is room, a cell
// stays until its last hit has left the window: what it knows is worth more than the memory, which
// is bounded anyway. When the live map gets crowded, those that have waited longest make room; the
// idle cache remembers them as well as it can.

// aged is a cell that may leave, and when to look at it.
type aged struct {
	cell *cell
	due  int64 // fleet time
}

// ageingCells are two queues, each in the order of due: cells that were never looked at, and cells
// that were not empty when they were.
type ageingCells struct{ fresh, known queue[aged] }

const (
	// firstLook is how long after its last report was answered a cell is looked at, and laterLook
	// how long after that, over and over.
	firstLook = 5 * time.Second
	laterLook = 30 * time.Second
	// silentBlock is how long a blocked key must have been silent before it may make room for
	// others: a blocked key that still sends stays blocked.
	silentBlock = 10 * time.Second
	// looksAtOnce bounds the cells looked at in one step, and so how long the lock is held.
	looksAtOnce = 4096
	// sweptAtOnce bounds those that nobody takes reports of.
	sweptAtOnce = 512
)

// addAgeing lets a cell wait to leave. Its lock is held.
func (b *behind) addAgeing(c *cell, fleet int64) {
	if !c.is(ageing | dead) {
		c.state |= ageing
		b.ageing.fresh.push(aged{c, fleet + int64(firstLook)})
	}
}

// letGo lets cells leave whose time has come; when the live map is crowded, those that have waited
// longest leave before it has.
func (b *behind) letGo(fleet int64) {
	b.letGoFrom(&b.ageing.known, fleet)
	b.letGoFrom(&b.ageing.fresh, fleet)
}

func (b *behind) letGoFrom(q *queue[aged], fleet int64) {
	for range min(q.len(), looksAtOnce) {
		crowded := b.crowded()
		if !crowded && fleet < q.peek().due {
			return
		}
		b.consider(q.pop().cell, fleet, crowded)
	}
}

// sweep lets cells leave that wait for their report when the live map is crowded, if all their hits
// have become late meanwhile: the limiter tells of these. Nobody may take reports for days, and
// keys that find no room have no limit.
func (b *behind) sweep(fleet int64) {
	if !b.crowded() || b.draining {
		return
	}
	left := sweptAtOnce
	for range b.shards {
		b.sweeps++
		s := &b.shards[b.sweeps%uint(len(b.shards))]
		if s.gaveUp <= b.heard && (s.flight == nil || s.flight.tries <= soonTries) {
			continue
		}
		for range min(left, s.queue.len()) {
			left--
			if c := s.queue.pop(); !b.spare(c, fleet) {
				s.queue.push(c)
			}
		}
	}
	for range min(left, len(b.homeless)) {
		b.sweeps++
		last := len(b.homeless) - 1
		if i := b.sweeps % uint(last+1); b.spare(b.homeless[i], fleet) {
			b.homeless[i], b.homeless[last] = b.homeless[last], nil
			b.homeless = b.homeless[:last]
		}
	}
}

// spare lets a queued cell age that has nothing to report.
func (b *behind) spare(c *cell, fleet int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settle(fleet)
	c.rotate(fleet)
	if c.hasPending() {
		return false
	}
	c.state &^= queued
	b.addAgeing(c, fleet)
	return true
}

// crowded says whether idle cells should make room.
func (b *behind) crowded() bool {
	return b.checker.liveKeys.Load() > int64(b.checker.o.MaxLiveKeys)*3/4
}

// consider lets one cell leave, or lets it wait on. One that has hits on their way is left to their
// answer.
func (b *behind) consider(c *cell, fleet int64, crowded bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state &^= ageing
	if c.is(queued | inFlight) {
		return
	}
	word, until := c.allowance.Load(), c.until.Load()
	room, _ := c.room(c.limiter.terms.Load(), fleet)
	if c.mayLeave(room, fleet, crowded) {
		c.limiter.drop(c)
		return
	}
	if word&^stampMask == blocked { // room has withdrawn the block; it still holds
		c.until.Store(until)
		c.allowance.Store(word)
	}
	if c.silent(fleet) >= ticks(firstLook) {
		c.setAhead(nil) // it takes more memory than the cell; if the key comes again it gets another
	}
	c.state |= ageing
	b.ageing.known.push(aged{c, fleet + int64(laterLook)})
}

// mayLeave decides whether a cell with nothing on its way may leave. The lock is held.
func (c *cell) mayLeave(room, fleet int64, crowded bool) bool {
	over := c.limiter.retired.Load() && c.silent(fleet) >= ticks(firstLook)
	if p := c.permits(); p != nil { // who counts is the store: what this cell counts decides nothing
		p.forget(c.limiter.shape, fleet)
		return p.idle() && (crowded || c.isEmpty() || over)
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
