package counter

import (
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/forecast"
	"github.com/offpath-io/offpath/pkg/check/internal/level"
)

// Withdraw withdraws the allowance or block: the hits left of an allowance are not charged.
func (c Locked) Withdraw(now int64) {
	if c.Allowance.Load() == 0 { // only a holder of the lock changes it from 0, and a swap takes as long as a lock
		return
	}
	word := c.Allowance.Swap(0)
	left, taken := int64(word&LeftMask), int64(word/oneTaken&LeftMask)
	if left|taken == 0 { // nothing, or a block
		return
	}
	a, at := c.Forecast(), c.within(now)
	if word&Blocked != 0 { // only counters with a forecast have such a word, and each of these denials has been counted
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

// PutDown counts the hits that have been taken off the allowance, without withdrawing it.
func (counter *Counter) PutDown() {
	c := counter.Lock()
	defer c.Unlock()
	for {
		word := c.Allowance.Load()
		taken := int64(word / oneTaken & LeftMask)
		if word&Blocked != 0 { // they have been counted
			return
		}
		// A forecast is told of all hits when the allowance ends, so it remembers how many of them
		// have been counted.
		if taken == 0 || c.Forecast() != nil || c.Allowance.CompareAndSwap(word, word&^(LeftMask*oneTaken)) {
			c.record(taken)
			return
		}
	}
}

// record counts hits that were taken off an allowance, except those that PutDown has counted.
func (c Locked) record(taken int64) {
	if a := c.Forecast(); a != nil {
		taken, a.counted = taken-int64(a.counted), uint32(taken)
	}
	c.Group.Tallies[c.Stripe].Admit(taken, taken)
}

// CatchUp withdraws the allowance and rotates. The counter is then *current*. It returns the time
// at which to read the counter's buckets.
func (c Locked) CatchUp(now int64) int64 {
	c.Withdraw(now)
	return c.rotate(now)
}

// rotate makes the bucket of now the newest one, and returns the time at which to read the
// counter's buckets. That is now; or, if another goroutine has read a later clock and has rotated
// to the next bucket, the beginning of that bucket; or the present, if the caller was held up since
// it read now. Pending hits that leave every window become late. The allowance is withdrawn.
func (c Locked) rotate(now int64) int64 {
	shape := c.Group.Shape
	by := shape.Bucket(now) - c.Newest
	if by < -1 { // now is old, or another goroutine used a time from before a correction
		now = max(now, c.Group.Host.ExactTime())
		by = shape.Bucket(now) - c.Newest
	}
	switch {
	case by < -1:
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

// pullBack makes an earlier bucket the newest one, and moves the hits of later buckets into it. The
// allowance is withdrawn.
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

// Room withdraws the allowance and rotates. It returns how many hits still fit under these limits,
// and the time of that.
func (c Locked) Room(t *Limits, now int64) (room, at int64) {
	c.Withdraw(now) // as CatchUp does, without another call in every check that takes the lock
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

// leaveAllowance stores an allowance of hits; room is how many more may pass. Only a queued counter
// may have an allowance: the flush that takes the counter off its queue withdraws it, so that a
// flush sees every hit that was taken.
func (c Locked) leaveAllowance(t *Limits, at, hits, room int64) {
	if p := c.Permits(); p != nil {
		c.leavePermits(t, p, hits)
		return
	}
	c.leaveAllowanceUntil(t, hits, room, level.Datable(&t.Drain, at, c.End()))
}

// block stores a block, by which further checks are denied without the lock until a hit of cost 1
// fits again.
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
		after = time.Hour // a limit below 1: look again later
	}
	c.endAt(at + int64(after))
	c.Allowance.Store(Blocked | t.Stamp)
}

// within is now, or the end of the newest bucket if that is earlier and the hits of a bucket leave
// at once: hits of an allowance were taken before that. The counter is not rotated yet.
func (c Locked) within(now int64) int64 {
	if forecast.LeavesAtOnce(c.Group.Shape) {
		return min(now, c.End()-1)
	}
	return now
}
