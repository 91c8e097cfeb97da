package counter

import (
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/permit"
)

// Moment returns the time in the form that the counter's permits use. The counter is current.
func (c Locked) Moment(at int64) permit.Moment {
	g := c.Group
	return permit.Moment{Shape: &g.Shape, Now: at, Bucket: c.Newest, Error: g.Host.Clock.Error()}
}

// Checks of counters of strict rules, which use permits in place of counts.

// permitted returns how many hits the permits allow. The counter is current. It is not inlined into
// Room, which the checks of all counters call.
//
//go:noinline
func (c Locked) permitted(p *permit.Account, at int64) int64 { return p.Room(c.Moment(at)) }

// permitsEnd returns until when permits of the newest bucket may be spent.
func (c Locked) permitsEnd() int64 { return c.End() - c.Group.Host.Clock.Error() }

// leavePermits stores an allowance of permits.
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

// blockPermits makes further checks deny without the lock, while asking for permits is in vain.
func (c Locked) blockPermits(t *Limits, p *permit.Account, at int64) {
	if until := min(p.InVainUntil(), c.End()); until > at && !p.IsAwaited() {
		c.endAt(until)
		c.Allowance.Store(Blocked | t.Stamp)
	}
}

// refusePermits records a hit for which there are not enough permits, asks for more unless that is
// in vain, and returns how long until there may be one. The counter is current.
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

// retryPermits returns how long until there may be a permit. The lock is not needed.
func (counter *Counter) retryPermits(p *permit.Account, now int64) time.Duration {
	return max(time.Duration(p.FreeAt()-now), counter.Group.Host.Soon())
}

// DenyUnlocked records a denial by a block, without the lock, and returns how long until there may
// be a permit.
func (counter *Counter) DenyUnlocked(now int64) time.Duration {
	p := counter.Permits()
	p.RefusedUnlocked()
	return counter.retryPermits(p, now)
}

// Ask puts the counter into one of the next lease requests.
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

// HoldsPermits returns whether there are, or may be, permits that have not been returned to the
// store.
func (counter *Counter) HoldsPermits() bool {
	p := counter.Permits()
	if p == nil {
		return false
	}
	c := counter.Lock()
	defer c.Unlock()
	return p.IsOpen()
}
