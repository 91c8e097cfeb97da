package check

import (
	"math"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/offpath-io/offpath/pkg/check/internal/permit"
	"github.com/offpath-io/offpath/pkg/rules"
)

// strict is what a limiter under strict enforcement has beside the rest.
type strict struct {
	// forgotten is the newest bucket of which a counter that has left the live map had been granted
	// permits. How many it had spent is unknown, and all are taken to be.
	forgotten atomic.Int64

	// By the reporter's lock: the request that index belongs to, and the rule's index in it.
	build uint64
	index int
}

// isStrict says whether a rule's limiter is to spend permits. A local limiter knows everything
// anyway.
func isStrict(r *rules.Rule, l Link) bool { return r.Enforcement == rules.Strict && l != nil }

func newStrict(r *rules.Rule, l Link) *strict {
	if !isStrict(r, l) {
		return nil
	}
	s := new(strict)
	s.forgotten.Store(math.MinInt64)
	return s
}

// leave notes that a counter leaves the live map.
func (s *strict) leave(p *permit.Account) {
	newest := p.Newest()
	for {
		old := s.forgotten.Load()
		if newest <= old || s.forgotten.CompareAndSwap(old, newest) {
			return
		}
	}
}

// strictCounter is the memory of a strict limiter's counter. It keeps the permits out of all other
// counters, which fill two cache lines exactly.
type strictCounter struct {
	counter
	permits permit.Account
	next    *counter // in the stack of counters that ask
}

// blankCell returns the memory for a limiter's counter.
func (l *Limiter) blankCell() *counter {
	if l.strict == nil {
		return new(counter)
	}
	s := new(strictCounter)
	s.permits.Forget(l.strict.forgotten.Load())
	return &s.counter
}

// ofStrict returns the memory of a strict limiter's counter.
func (c *counter) ofStrict() *strictCounter { return (*strictCounter)(unsafe.Pointer(c)) } // see blankCell

// permits returns the counter's permits; nil if its limiter is not strict.
func (c *counter) permits() *permit.Account {
	if c.limiter.strict == nil {
		return nil
	}
	return &c.ofStrict().permits
}

// moment is a time of the counter's for its permits. The lock is held, the counter current
// .
func (c *counter) moment(at int64) permit.Moment {
	l := c.limiter
	return permit.Moment{Shape: &l.shape, Now: at, Bucket: c.newest, Error: l.checker.clock.Error()}
}

// What a check does in a counter of a strict limiter, in place of what counter.go and limiter.go
// do. The counter's lock is held in all of it, unless it says otherwise.

// permitted is how many hits the permits allow at time at. The counter is current. It
// stays out of room, which other counters' checks go through.
//
//go:noinline
func (c *counter) permitted(p *permit.Account, at int64) int64 { return p.Room(c.moment(at)) }

// permitsEnd is until when permits of the newest bucket may be spent.
func (c *counter) permitsEnd() int64 { return c.end() - c.limiter.checker.clock.Error() }

// armPermits leaves an allowance behind.
func (c *counter) armPermits(t *limits, p *permit.Account, room int64) {
	give, ask := p.Allowance(room)
	if ask {
		c.ask(p)
	}
	if give <= 0 || !c.is(queued) {
		return
	}
	give = min(give, mostLeft)
	p.Spend(c.newest, give)
	c.armUntil(t, give, room, c.permitsEnd())
}

// blockPermits lets further checks be denied without the lock, while asking for permits is in vain.
func (c *counter) blockPermits(t *limits, p *permit.Account, at int64) {
	if until := min(p.InVainUntil(), c.end()); until > at && !p.IsAwaited() {
		c.endAt(until)
		c.allowance.Store(blocked | t.stamp)
	}
}

// refusePermits makes the decision for a hit for which there are not enough permits, and asks for
// more.
func (c *counter) refusePermits(d *Decision, t *limits, p *permit.Account, now, at, cost, room int64) {
	l := c.limiter
	l.fill(d, t, room)
	d.Reset = l.reset(t, now)
	d.deny(t.rule)
	if cost > t.limit {
		d.RetryAfter = Never
		return
	}
	d.RetryAfter = c.retryPermits(p, now)
	p.Refused(now, cost)
	switch {
	case at >= c.permitsEnd(): // in vain until the next bucket
		d.RetryAfter = max(d.RetryAfter, time.Duration(c.end()-now))
	case at >= p.InVainUntil():
		c.ask(p)
	}
}

// retryPermits is how long until a permit can be there. The lock is not needed.
func (c *counter) retryPermits(p *permit.Account, now int64) time.Duration {
	return max(time.Duration(p.FreeAt()-now), c.limiter.checker.reporter.leases.soon())
}

// denyUnlocked completes a denial by a block, without the lock.
func (c *counter) denyUnlocked(d *Decision, p *permit.Account, now int64) {
	p.RefusedUnlocked()
	d.RetryAfter = max(d.RetryAfter, c.retryPermits(p, now))
}

// ask lets the counter be in one of the next requests.
func (c *counter) ask(p *permit.Account) {
	if p.Ask() {
		k := c.limiter.checker
		k.reporter.leases.asks.push(c)
		k.wakeUp()
	}
}

// askIfNeeded asks if there is anything to ask for, or to return. The counter is current
// .
func (c *counter) askIfNeeded(p *permit.Account, fleet int64) {
	if p.ShouldAsk(c.moment(fleet)) {
		c.ask(p)
	}
}
