package counter

import "github.com/offpath-io/offpath/pkg/window"

// Take is the common check, of a hit of cost 1: one hit off the allowance that limits of this stamp
// have left behind, without the lock. left is how many more may pass, until when the allowance or
// the block ends.
func (counter *Counter) Take(stamp uint64, now int64) (v verdict, left, until int64) {
	until = counter.Until.Load()
	if now >= until {
		return unknown, 0, 0
	}
	beyond := int64(counter.Beyond.Load() &^ Raised) // before the swap, which waits for nothing then
	for {
		word := counter.Allowance.Load()
		if word&LeftMask == 0 || word&StampMask != stamp {
			if word == Blocked|stamp {
				return Denied, 0, until
			}
			return unknown, 0, 0
		}
		if counter.Allowance.CompareAndSwap(word, word+oneAllowed) {
			if word&Blocked != 0 {
				return Refused, 0, until
			}
			return Allowed, int64(word&LeftMask) - 1 + beyond, until
		}
	}
}

// leaveAllowanceUntil is leaveAllowance with an end of the allowance's own.
func (c Locked) leaveAllowanceUntil(t *Limits, hits, room, until int64) {
	if hits <= 0 || t.Restless || c.overflow || !c.Is(queued) || c.Group.Shape.Kind == window.Leaky {
		return
	}
	hits = min(hits, mostLeft)
	c.add(hits)
	c.endAt(until)
	beyond := uint32(min(room-hits, int64(Raised-1)))
	if t.Raised {
		beyond |= Raised
	}
	if c.Beyond.Load() != beyond {
		c.Beyond.Store(beyond)
	}
	c.Allowance.Store(t.Stamp | uint64(hits))
}

// endAt notes when the next allowance or block ends. Usually it is when the last one did, and an
// atomic store takes as long as a lock.
func (c Locked) endAt(until int64) {
	if c.Until.Load() != until {
		c.Until.Store(until)
	}
}
