package counter

import "github.com/offpath-io/offpath/pkg/window"

// TakeOne is the common check, of a hit of cost 1: it takes one hit off the allowance, if a check
// under limits with this stamp has left it, without the lock. left is how many more hits may pass;
// negative if it has taken none. until is the end of the allowance. It is small enough to be
// inlined.
func (counter *Counter) TakeOne(stamp uint64, now int64) (left, until int64) {
	until = counter.Until.Load()
	beyond := int64(counter.Beyond.Load() &^ Raised) // before the swap: a load after it would have to wait for it
	word := counter.Allowance.Load()
	if now < until && word&LeftMask != 0 && word&^(OneStamp-1) == stamp && counter.Allowance.CompareAndSwap(word, word+oneAllowed) {
		return int64(word&LeftMask) - 1 + beyond, until
	}
	return -1, 0
}

// GiveBack undoes a TakeOne that was made under the lock, which has been held since.
func (c Locked) GiveBack() { c.Allowance.Add(^oneAllowed + 1) }

// Take is TakeOne that also denies by a block, and tries again while others take hits.
func (counter *Counter) Take(stamp uint64, now int64) (v verdict, left, until int64) {
	until = counter.Until.Load()
	if now >= until {
		return unknown, 0, 0
	}
	beyond := int64(counter.Beyond.Load() &^ Raised) // before the swap: a load after it would have to wait for it
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
				return DeniedCounted, 0, until
			}
			return Allowed, int64(word&LeftMask) - 1 + beyond, until
		}
	}
}

// leaveAllowanceUntil is leaveAllowance with an explicit end.
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

// endAt sets the end of the next allowance or block. Usually it has not changed, and an atomic
// store takes as long as a lock.
func (c Locked) endAt(until int64) {
	if c.Until.Load() != until {
		c.Until.Store(until)
	}
}
