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
	// forgotten is the newest bucket of which a cell that has left the live map had been granted
	// permits. How many it had spent is unknown, and all are taken to be.
	forgotten atomic.Int64

	// By behind's lock: the request that index belongs to, and the rule's index in it.
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

// leave notes that a cell leaves the live map.
func (s *strict) leave(p *permit.Account) {
	newest := p.Newest()
	for {
		old := s.forgotten.Load()
		if newest <= old || s.forgotten.CompareAndSwap(old, newest) {
			return
		}
	}
}

// strictCell is the memory of a strict limiter's cell. It keeps the permits out of all other cells,
// which fill two cache lines exactly.
type strictCell struct {
	cell
	permits permit.Account
	next    *cell // in the stack of cells that ask
}

// blankCell returns the memory for a limiter's cell.
func (l *Limiter) blankCell() *cell {
	if l.strict == nil {
		return new(cell)
	}
	s := new(strictCell)
	s.permits.Forget(l.strict.forgotten.Load())
	return &s.cell
}

// ofStrict returns the memory of a strict limiter's cell.
func (c *cell) ofStrict() *strictCell { return (*strictCell)(unsafe.Pointer(c)) } // see blankCell

// permits returns the cell's permits; nil if its limiter is not strict.
func (c *cell) permits() *permit.Account {
	if c.limiter.strict == nil {
		return nil
	}
	return &c.ofStrict().permits
}

// moment is a time of the cell's for its permits. The lock is held, the cell settled and rotated.
func (c *cell) moment(at int64) permit.Moment {
	l := c.limiter
	return permit.Moment{Shape: &l.shape, Now: at, Bucket: c.newest, Error: l.checker.clock.Error()}
}

// What a check does in a cell of a strict limiter, in place of what cell.go and limiter.go do. The
// cell's lock is held in all of it, unless it says otherwise.

// permitted is how many hits the permits allow at time at. The cell is settled and rotated. It
// stays out of room, which other cells' checks go through.
//
//go:noinline
func (c *cell) permitted(p *permit.Account, at int64) int64 { return p.Room(c.moment(at)) }

// permitsEnd is until when permits of the newest bucket may be spent.
func (c *cell) permitsEnd() int64 { return c.end() - c.limiter.checker.clock.Error() }

// armPermits leaves an allowance behind.
func (c *cell) armPermits(t *terms, p *permit.Account, room int64) {
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
func (c *cell) blockPermits(t *terms, p *permit.Account, at int64) {
	if until := min(p.InVainUntil(), c.end()); until > at && !p.IsAwaited() {
		c.endAt(until)
		c.allowance.Store(blocked | t.stamp)
	}
}

// refusePermits makes the decision for a hit for which there are not enough permits, and asks for
// more.
func (c *cell) refusePermits(d *Decision, t *terms, p *permit.Account, now, at, cost, room int64) {
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
func (c *cell) retryPermits(p *permit.Account, now int64) time.Duration {
	return max(time.Duration(p.FreeAt()-now), c.limiter.checker.behind.leases.soon())
}

// denyUnlocked completes a denial by a block, without the lock.
func (c *cell) denyUnlocked(d *Decision, p *permit.Account, now int64) {
	p.RefusedUnlocked()
	d.RetryAfter = max(d.RetryAfter, c.retryPermits(p, now))
}

// ask lets the cell be in one of the next requests.
func (c *cell) ask(p *permit.Account) {
	if p.Ask() {
		k := c.limiter.checker
		k.behind.leases.asks.push(c)
		k.wakeUp()
	}
}

// askIfNeeded asks if there is anything to ask for, or to return. The cell is settled and rotated.
func (c *cell) askIfNeeded(p *permit.Account, fleet int64) {
	if p.ShouldAsk(c.moment(fleet)) {
		c.ask(p)
	}
}
