package counter

import (
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/forecast"
	"github.com/offpath-io/offpath/pkg/check/internal/level"
)

// Withdraw withdraws the allowance or block: what was left of it is not charged.
func (c Locked) Withdraw(now int64) {
	if c.Allowance.Load() == 0 { // which only a holder of the lock changes, and a swap takes as long as a lock
		return
	}
	word := c.Allowance.Swap(0)
	left, taken := int64(word&LeftMask), int64(word/oneTaken&LeftMask)
	if left|taken == 0 { // nothing, or a block
		return
	}
	a, at := c.Forecast(), c.within(now)
	if word&Blocked != 0 { // only counters with a forecast turn hits away so, and each is counted when it is
		c.Group.NoteDenied(c.Key(), taken)
		a.Denied(a.Part, taken)
		a.note(at, 0, taken)
		c.recordDenials(c.Group.Limits.Load(), at, 1, taken)
		return
	}
	c.record(taken)
	c.add(-left)
	c.level().Date(&c.Group.Limits.Load().Drain, c.Newest, min(now, c.Until.Load()), taken)
	if a != nil {
		a.counted = 0
		a.note(at, taken, 0)
	}
	if p := c.Permits(); p != nil {
		p.Spend(c.Newest, -left)
	}
}

// PutDown counts how many hits have been taken off the allowance, which stays where it is.
func (counter *Counter) PutDown() {
	c := counter.Lock()
	defer c.Unlock()
	for {
		word := c.Allowance.Load()
		taken := int64(word / oneTaken & LeftMask)
		if word&Blocked != 0 { // they have been counted
			return
		}
		// A forecast is to hear of all of them when the allowance ends, so it remembers how many
		// have been counted.
		if taken == 0 || c.Forecast() != nil || c.Allowance.CompareAndSwap(word, word&^(LeftMask*oneTaken)) {
			c.record(taken)
			return
		}
	}
}

// record counts hits that were taken off an allowance, but for those that have been.
func (c Locked) record(taken int64) {
	if a := c.Forecast(); a != nil {
		taken, a.counted = taken-int64(a.counted), uint32(taken)
	}
	c.Group.Tallies[c.Stripe].Admit(taken, taken)
}

// CatchUp withdraws the allowance and rotates, and returns the time that the counter's buckets are
// to be read at. A counter is *current* then.
func (c Locked) CatchUp(now int64) int64 {
	c.Withdraw(now)
	return c.rotate(now)
}

// rotate makes newest the bucket of now, and returns the time that the counter's buckets are to be
// read at. That is now, or, if another goroutine has read the clock a moment later, in the next
// bucket, the beginning of that. Pending hits that leave every window become late. The allowance is
// withdrawn.
func (c Locked) rotate(now int64) int64 {
	shape := c.Group.Shape
	by := shape.Bucket(now) - c.Newest
	switch {
	case by < -1: // somebody had the time from before the clock was corrected
		c.pullBack(-by)
		return now
	case by <= 0:
		return max(now, shape.End(c.Newest-1))
	}
	if l := c.level(); l != nil {
		l.Advance(c.situation(c.Group.Limits.Load(), new(level.Situation)), by)
	}
	c.foreseeLeaving(by)
	totals, pending := c.Totals(), c.Pending()
	keep := max(int64(len(totals))-by, 0)
	var late int64
	for _, n := range pending[keep:] {
		late += n
	}
	if late > 0 && !c.Is(Viewed) {
		c.Group.addLate(late)
	}
	shift(totals, keep)
	shift(pending, keep)
	if c.Forecast() != nil {
		shift(c.Forecast().inFlight, keep)
	}
	if r := c.refunded(); r != nil {
		shift(r, keep)
	}
	if c.Newest += by; c.overflow {
		c.overflow = shape.Period(c.Newest) == shape.Period(c.Newest-by)
	}
	return now
}

// pullBack makes newest an earlier bucket, which takes the hits of those after it. The allowance is
// withdrawn.
func (c Locked) pullBack(by int64) {
	c.Newest -= by
	all := [...][]int64{c.Totals(), c.Pending(), c.refunded(), nil}
	if a := c.Forecast(); a != nil {
		all[3] = a.inFlight
	}
	for _, counts := range all {
		later := counts[:min(by, int64(len(counts)))]
		var sum int64
		for _, n := range later {
			sum += n
		}
		clear(later)
		if int64(len(counts)) > by {
			copy(counts, counts[by:])
			clear(counts[int64(len(counts))-by:])
		}
		if sum != 0 {
			counts[0] += sum
		}
	}
	if l := c.level(); l != nil {
		l.PullBack(c.Newest)
	}
}

// shift moves the first keep counts to the end and clears those before them.
func shift(counts []int64, keep int64) {
	copy(counts[int64(len(counts))-keep:], counts[:keep])
	clear(counts[:int64(len(counts))-keep])
}

// Room withdraws the allowance and rotates, and returns how many hits still fit under these limits.
func (c Locked) Room(t *Limits, now int64) (room, at int64) {
	c.Withdraw(now) // CatchUp, without another call on the way of every check that takes the lock
	at = c.rotate(now)
	if p := c.Permits(); p != nil {
		return c.permitted(p, at), at
	}
	return c.remaining(t, at), at
}

// charge admits a hit. The counter is current.
func (c Locked) charge(cost int64) {
	c.add(cost)
	if p := c.Permits(); p != nil {
		p.Spend(c.Newest, cost)
	}
	c.Group.Tallies[c.Stripe].Admit(1, cost)
	c.queue()
}

// leaveAllowance leaves an allowance of hits behind, of the so many more that may pass. Only a queued counter
// may have one: the flush that takes the counter off its queue withdraws it, so no hit can be taken
// that no flush will see.
func (c Locked) leaveAllowance(t *Limits, at, hits, room int64) {
	if p := c.Permits(); p != nil {
		c.leavePermits(t, p, hits)
		return
	}
	c.leaveAllowanceUntil(t, hits, room, level.Datable(&t.Drain, at, c.End()))
}

// block lets further checks be denied without the lock, until a hit of cost 1 fits again.
func (c Locked) block(t *Limits, at int64) {
	if t.Restless || c.overflow {
		return
	}
	if p := c.Permits(); p != nil {
		c.blockPermits(t, p, at)
		return
	}
	after, ok := c.retryIn(t, 1, at)
	if !ok {
		after = time.Hour // a limit below 1: look again some time
	}
	c.endAt(at + int64(after))
	c.Allowance.Store(Blocked | t.Stamp)
}

// within is now or, if that is later, the last moment before hits leave at once: what was taken off
// an allowance was taken before. The counter is not rotated yet.
func (c Locked) within(now int64) int64 {
	if forecast.LeavesAtOnce(c.Group.Shape) {
		return min(now, c.End()-1)
	}
	return now
}
