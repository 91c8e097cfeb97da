package counter

import (
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/permit"
)

// Moment is a time of the counter's for its permits. The counter is current.
func (c Locked) Moment(at int64) permit.Moment {
	g := c.Group
	return permit.Moment{Shape: &g.Shape, Now: at, Bucket: c.Newest, Error: g.Host.Clock.Error()}
}

// What a check does in the counter of a strict rule, in place of counting.

// permitted is how many hits the permits allow at time at. The counter is current. It
// stays out of room, which other counters' checks go through.
//
//go:noinline
func (c Locked) permitted(p *permit.Account, at int64) int64 { return p.Room(c.Moment(at)) }

// permitsEnd is until when permits of the newest bucket may be spent.
func (c Locked) permitsEnd() int64 { return c.End() - c.Group.Host.Clock.Error() }

// leavePermits leaves an allowance behind.
func (c Locked) leavePermits(t *Limits, p *permit.Account, room int64) {
	give, ask := p.Allowance(room)
	if ask {
		c.Ask(p)
	}
	if give <= 0 || !c.Is(queued) {
		return
	}
	give = min(give, mostLeft)
	p.Spend(c.Newest, give)
	c.leaveAllowanceUntil(t, give, room, c.permitsEnd())
}

// blockPermits lets further checks be denied without the lock, while asking for permits is in vain.
func (c Locked) blockPermits(t *Limits, p *permit.Account, at int64) {
	if until := min(p.InVainUntil(), c.End()); until > at && !p.IsAwaited() {
		c.endAt(until)
		c.Allowance.Store(Blocked | t.Stamp)
	}
}

// refusePermits takes in a hit for which there are not enough permits, asks for more unless that is
// in vain, and returns how long until one can be there. The counter is current.
func (c Locked) refusePermits(now, at, cost int64) time.Duration {
	p := c.Permits()
	wait := c.retryPermits(p, now)
	p.Refused(now, cost)
	switch {
	case at >= c.permitsEnd(): // in vain until the next bucket
		wait = max(wait, time.Duration(c.End()-now))
	case at >= p.InVainUntil():
		c.Ask(p)
	}
	return wait
}

// retryPermits is how long until a permit can be there. The lock is not needed.
func (counter *Counter) retryPermits(p *permit.Account, now int64) time.Duration {
	return max(time.Duration(p.FreeAt()-now), counter.Group.Host.Soon())
}

// DenyUnlocked notes a denial by a block, without the lock, and returns how long until a permit can
// be there.
func (counter *Counter) DenyUnlocked(now int64) time.Duration {
	p := counter.Permits()
	p.RefusedUnlocked()
	return counter.retryPermits(p, now)
}

// Ask lets the counter be in one of the next requests.
func (c Locked) Ask(p *permit.Account) {
	if p.Ask() {
		c.Group.Host.Asks.push(c.Counter)
		c.Group.Host.WakeUp()
	}
}

// AskIfNeeded asks if there is anything to ask for, or to return. The counter is current.
func (c Locked) AskIfNeeded(p *permit.Account, fleet int64) {
	if p.ShouldAsk(c.Moment(fleet)) {
		c.Ask(p)
	}
}

// HoldsPermits says whether there are, or may be, permits that the store has not got back.
func (counter *Counter) HoldsPermits() bool {
	p := counter.Permits()
	if p == nil {
		return false
	}
	c := counter.Lock()
	defer c.Unlock()
	return p.IsOpen()
}
