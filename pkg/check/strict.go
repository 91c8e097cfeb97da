package check

import "time"

// What a check does in a cell of a strict limiter, in place of what cell.go and limiter.go do. The cell's
// lock is held in all of it, unless it says otherwise.

// permitted is how many hits the permits allow at time at: none while somebody waits for them whose turn comes
// first. The cell is settled and rotated. It stays out of room, which other cells' checks go through.
//
//go:noinline
func (c *cell) permitted(p *permits, at int64) int64 {
	p.looked = at
	if len(p.waiters) > 0 && !p.turn {
		return 0
	}
	return c.unspent(p, at)
}

// unspent is how many permits may be spent at time at, beside those that are kept for somebody.
func (c *cell) unspent(p *permits, at int64) int64 {
	if at >= c.permitsEnd() {
		return 0
	}
	return p.left(c.newest)
}

// permitsEnd is until when permits of the newest bucket may be spent.
func (c *cell) permitsEnd() int64 { return c.end() - c.limiter.checker.clock.Error() }

// armPermits leaves an allowance behind. So many are kept back that there is a check with the lock, which
// asks for more, before the last is gone.
func (c *cell) armPermits(t *terms, p *permits, room int64) {
	if len(p.waiters) > 0 {
		return
	}
	give := room - p.demand.low
	if give <= 0 {
		give = room
		if p.demand.hot() && p.looked >= p.askAt {
			c.ask(p)
		}
	}
	if give <= 0 || !c.is(queued) {
		return
	}
	give = min(give, mostLeft)
	p.spend(c.newest, give)
	c.armUntil(t, give, room, c.permitsEnd())
}

// blockPermits lets further checks be denied without the lock, while asking for permits is in vain.
func (c *cell) blockPermits(t *terms, p *permits, at int64) {
	if until := min(p.askAt, c.end()); until > at && len(p.waiters) == 0 {
		c.endAt(until)
		c.allowance.Store(blocked | t.stamp)
	}
}

// refusePermits makes the decision for a hit for which there are not enough permits, and asks for more.
func (c *cell) refusePermits(d *Decision, t *terms, p *permits, now, at, cost, room int64) {
	l := c.limiter
	l.fill(d, t, room)
	d.Reset = l.reset(t, now)
	d.deny(t.rule)
	if cost > t.limit {
		d.RetryAfter = Never
		return
	}
	d.RetryAfter = c.retryPermits(p, now)
	p.demand.asked += cost
	p.demand.refused, p.demand.refusal = max(p.demand.refused, cost), now
	switch {
	case at >= c.permitsEnd(): // in vain until the next bucket
		d.RetryAfter = max(d.RetryAfter, time.Duration(c.end()-now))
	case at >= p.askAt:
		c.ask(p)
	}
}

// retryPermits is how long until a permit can be there. The lock is not needed.
func (c *cell) retryPermits(p *permits, now int64) time.Duration {
	return max(time.Duration(p.freeAt.Load()-now), c.limiter.checker.behind.leases.soon())
}

// denyUnlocked completes a denial by a block, without the lock.
func (c *cell) denyUnlocked(d *Decision, p *permits, now int64) {
	p.unseen.Add(1)
	d.RetryAfter = max(d.RetryAfter, c.retryPermits(p, now))
}

// ask lets the cell be in one of the next requests.
func (c *cell) ask(p *permits) {
	if p.asking {
		return
	}
	p.asking = true
	k := c.limiter.checker
	k.behind.leases.asks.push(c, p)
	k.wakeUp()
}

// wishes says whether there is anything to ask for, or to say. The cell is settled and rotated.
func (c *cell) wishes(p *permits, fleet int64) bool {
	switch {
	case p.owes():
		return true
	case fleet < p.askAt || fleet >= c.permitsEnd():
		return false
	}
	return p.demand.refused > 0 || p.waiting > 0 || p.demand.level > 0 && p.left(c.newest) <= p.demand.low
}
