package check

import "time"

// aged is a cell that may leave the live map, and since when it has been in the queue.
type aged struct {
	cell  *cell
	since int64
}

const (
	// idleAfter is how long a key stays live after its last report or denial.
	idleAfter = 5 * time.Second
	// silentBlock is how long a blocked key must have been silent before it may make room for
	// others: a blocked key that still sends stays blocked.
	silentBlock = 10 * time.Second
	// letGoAtOnce bounds the cells looked at in one step, and so how long the lock is held.
	letGoAtOnce = 20_000
)

// addAgeing puts a cell into the queue of cells that may leave. Its lock is held.
func (b *behind) addAgeing(c *cell, fleet int64) {
	if !c.is(ageing | dead) {
		c.state |= ageing
		b.ageing.push(aged{c, fleet})
	}
}

// letGo lets cells leave that have been idle long enough; when the live map is nearly full, those
// that have waited longest leave early.
func (b *behind) letGo(fleet int64) {
	for range min(b.ageing.len(), letGoAtOnce) {
		crowded := b.checker.liveKeys.Load() > int64(b.checker.o.MaxLiveKeys)*3/4
		if !crowded && fleet-b.ageing.first().since < int64(idleAfter) {
			return
		}
		b.consider(b.ageing.pop().cell, fleet, crowded)
	}
}

// consider lets one cell leave, or puts it back into the queue, or, if it has hits on their way,
// leaves that to the answer.
func (b *behind) consider(c *cell, fleet int64, crowded bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state &^= ageing
	if c.is(queued | inFlight) {
		return
	}
	// A block may be the only thing that is left here; put it back if it still holds.
	word, until := c.allowance.Load(), c.until.Load()
	room, _ := c.room(fleet)
	if c.mayLeave(room, fleet, crowded) {
		c.limiter.drop(c)
		return
	}
	if word == blocked {
		c.until.Store(until)
		c.allowance.Store(blocked)
	}
	b.addAgeing(c, fleet)
}

// mayLeave decides whether a cell without own hits on their way may leave. The lock is held.
func (c *cell) mayLeave(room, fleet int64, crowded bool) bool {
	silent := c.silent(fleet)
	switch {
	case c.isEmpty():
		return true
	case c.limiter.checker.o.Link == nil: // nobody else knows this count
		return false
	case room < 1:
		return crowded && silent >= ticks(silentBlock)
	case crowded:
		return true
	}
	return silent >= ticks(idleAfter)
}
