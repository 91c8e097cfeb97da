package check

import (
	"time"

	"github.com/offpath-io/offpath/pkg/window"
)

// A cell that holds permits is looked at when their time is over, and before that now and then: permits
// that nobody has spent since the last look are given back, so that others can have them.

const (
	// Permits are given back that have been idle for a tenth of their bucket, within these bounds.
	leastIdle = 20 * time.Millisecond
	mostIdle  = time.Second
)

// idleAfter is how long permits may lie idle.
func idleAfter(s window.Shape) time.Duration {
	return min(max(s.BucketSize()/10, leastIdle), mostIdle)
}

// watch lets a cell be looked at, if there is a reason. Its lock is held, it is settled and rotated.
func (b *behind) watch(c *cell, p *permits, fleet int64) {
	if p.watched {
		return
	}
	if due := c.nextLook(p, fleet); due != never {
		p.watched = true
		b.leases.looks.Push(due, c)
	}
}

// nextLook is when to look at a cell again.
func (c *cell) nextLook(p *permits, fleet int64) int64 {
	next, shape := never, c.limiter.shape
	for i := range p.lots {
		if t := &p.lots[i]; !t.closed {
			over := shape.End(t.bucket) - c.limiter.checker.clock.Error()
			next = min(next, over, fleet+int64(idleAfter(shape)))
		}
	}
	if fleet >= c.permitsEnd() && (p.demand.hot() || p.waiting > 0) {
		next = min(next, c.end()) // to ask as soon as the next bucket begins
	}
	if next != never { // not again in the same step, whatever the clock's error has become
		next = max(next, fleet+1)
	}
	return next
}

// look looks at the cells whose time has come.
func (b *behind) look(fleet int64) {
	for range looksAtOnce {
		if b.leases.looks.Due() > fleet {
			return
		}
		b.lookAt(b.leases.looks.Pop(), fleet)
	}
}

func (b *behind) lookAt(c *cell, fleet int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, shape := c.permits(), c.limiter.shape
	p.watched = false
	if c.is(dead) {
		return
	}
	c.settle(fleet)
	c.rotate(fleet)
	p.close(shape, fleet, b.checker.clock.Error())
	if p.spent == p.lastSpent && p.reserved == 0 {
		for i := range p.lots {
			p.lots[i].giveBack()
		}
	}
	p.lastSpent = p.spent
	p.forget(shape, fleet)
	p.demand.measure(fleet, p.unseen.Swap(0), b.leases.roundTrip(), idleAfter(shape), b.share(c.limiter))
	if c.wishes(p, fleet) {
		c.ask(p)
	}
	b.watch(c, p, fleet)
}
