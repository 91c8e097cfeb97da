package counter

import (
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/fleetstate"
	"github.com/offpath-io/offpath/pkg/check/internal/level"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// Hit is one hit against one counter: first whether there is room for it, then what is charged. The
// counter is locked, or a view, for all methods.
type Hit struct {
	Counter Locked  // nil: there is no room for its key
	By      *Limits // what it is decided by
	Plain   *Limits // the limit itself, if By allows more than that, or less; else nil
	Full    *Limits // the limit that By is a share of; nil if it is all of it
	Cost    int64
	// Blocks says that its denial may hold for the next hits, and CountsDenied that it is charged
	// even if it is denied.
	Blocks, CountsDenied bool

	// Set by Consider.

	room, At int64 // hits that fit by what is known, and the time that this was read at
	Left     int64 // hits that may still pass
	Passes   bool
	shared   bool // others decide for its key too, by counts
	Exceeds  bool // if it passes, it is beyond the limit
	Short    bool // of strict ones: it does not fit by counts, whatever permits there are

	// What was charged, and to which bucket; 0 if it was not.
	Charged, Bucket int64
	level           level.Charge
}

// HasCounter says whether the hit's key has a counter.
func (h *Hit) HasCounter() bool { return h.Counter.Counter != nil }

// whole returns the limits of those who have all of the limit.
func (h *Hit) whole() *Limits {
	if h.Full != nil {
		return h.Full
	}
	return h.By
}

// Consider finds out whether the hit may pass.
func (h *Hit) Consider(now int64) bool {
	c, cost := h.Counter, h.Cost
	h.MeasureRoom(now)
	h.shared = c.Group.isShared()
	var wholeRoom int64
	if h.Plain != nil {
		wholeRoom = h.measure()
	}
	if c.Group.Strict == nil {
		switch c.freshness(h.By) {
		case fleetstate.LocalShare:
			h.room = c.localRoom(h.By, h.At, h.room)
		case fleetstate.Outage:
			h.Exceeds = false
			return h.considerOutage()
		}
	}
	if h.Full == nil {
		wholeRoom = h.room
	}
	switch {
	case !h.shared || c.ensureForecast(h.whole(), h.At, wholeRoom) == nil || cost > h.room:
		h.Passes, h.Left = cost <= h.room, h.room
		switch {
		case h.Passes && c.Group.Shape.Kind == window.Leaky: // one at a time
			h.Left = 0
		case h.Passes:
			h.Left -= cost
		}
	case h.Full != nil:
		h.Passes, h.Left = c.foreseeShare(h.By, h.Full, h.At, h.room, cost)
	default:
		h.Passes, h.Left = c.foresee(h.By, h.At, h.room, cost)
	}
	return h.Passes
}

// measure looks at the other limits that there are to a hit beside that which it is decided by. It
// returns the room within the full limit, if this is another one.
func (h *Hit) measure() (wholeRoom int64) {
	c, t := h.Counter, h.By
	h.Exceeds = h.Cost > c.remaining(h.Plain, h.At)
	if h.Full != nil {
		wholeRoom = c.remaining(h.Full, h.At)
	}
	if c.Group.Strict != nil && t.Limit < t.Wire { // permits are for more
		fits := c.remaining(t, h.At)
		h.Short = h.Cost > fits
		h.room = min(h.room, fits)
	}
	return wholeRoom
}

// considerOutage decides in an outage in which the rule opens or closes.
func (h *Hit) considerOutage() bool {
	limit := h.By.Capacity
	h.Passes = h.By.OnOutage == rules.Open && h.Cost <= limit
	h.Left = 0
	if h.Passes {
		h.Left = limit - h.Cost
	} else {
		h.room = 0
	}
	return h.Passes
}

// MeasureRoom sets room and at.
func (h *Hit) MeasureRoom(now int64) int64 {
	h.room, h.At = h.Counter.Room(h.By, now)
	return h.room
}

// retryIn returns how long until a hit that has been denied fits, by what is known; never if it
// never does. It asks for permits if these are lacking.
func (h *Hit) retryIn(now int64) time.Duration {
	c := h.Counter
	if c.Group.Strict != nil && !h.Short { // otherwise more permits would not help
		if h.Cost > h.By.Limit {
			return never
		}
		return c.refusePermits(now, h.At, h.Cost)
	}
	return h.FitsIn(now)
}

// FitsIn is retryIn, whatever permits there are.
func (h *Hit) FitsIn(now int64) time.Duration {
	if after, ok := h.Counter.retryIn(h.By, h.Cost, h.At); ok {
		return after + time.Duration(h.At-now)
	}
	return never
}

// RetryAfter is when a hit that has been denied should be tried again.
func (h *Hit) RetryAfter(now int64) time.Duration {
	c, wait := h.Counter, h.retryIn(now)
	if wait == 0 { // it would fit, by what is known
		wait = c.retryAfter(h.whole(), h.At, h.Cost)
	}
	if c.overflow && h.By.OnOutage == rules.Closed && wait != never {
		wait = max(wait, time.Duration(c.Group.Shape.PeriodEnd(c.Newest)-now))
	}
	return wait
}

// Turn returns how long until a hit that has been denied by a token or leaky bucket has its turn,
// if it may wait: that fits after so long, and callers may wait for most; 0: without a bound.
func (h *Hit) Turn(fits, most time.Duration, now int64) (wait time.Duration, ok bool) {
	l, s := h.Counter.level(), h.Counter.situation(h.By, new(level.Situation))
	wait, ok = l.ShareIn(s, h.Cost, h.At)
	wait = max(fits, wait+time.Duration(h.At-now))
	ok = ok && wait != never && (most <= 0 || wait <= most) && h.Counter.freshness(h.By) != fleetstate.Outage
	return wait, ok && l.MayQueue(s, h.Cost, h.At)
}

// Charge charges the hit, which passes, and leaves the counter ready for the next one.
func (h *Hit) Charge() {
	h.chargeAt(0)
	h.admit()
}

// chargeAt charges the hit, whose turn is after so long.
func (h *Hit) chargeAt(wait time.Duration) {
	c := h.Counter
	c.charge(h.Cost)
	h.Charged, h.Bucket = h.Cost, c.Newest
	if l := c.level(); l != nil {
		h.level = l.Took(c.situation(h.By, new(level.Situation)), h.At, h.Cost, wait)
	}
}

// ChargeTurn charges the hit, whose turn comes later.
func (h *Hit) ChargeTurn(wait time.Duration, now int64) {
	h.chargeAt(wait - time.Duration(h.At-now))
	c := h.Counter
	if a := c.Forecast(); a != nil {
		a.note(h.At, h.Cost, 0)
	}
	if h.shared {
		c.Group.Host.Want(fleetstate.NextFast)
	}
}

// admit leaves the counter of a hit that was charged ready for the next one.
func (h *Hit) admit() {
	c := h.Counter
	switch a := c.Forecast(); {
	case a != nil:
		a.note(h.At, h.Cost, 0)
		h.leaveForecastAllowance()
	case h.Left > h.room: // let pass in an outage, although it is too much
	case !h.shared:
		h.leaveAllowance(h.Left, h.Left)
	default:
		if h.Left <= h.By.Capacity/2 { // others should hear of it soon
			c.Group.Host.Want(fleetstate.NextFast)
		}
		h.leaveAllowance(min(h.Left, c.unforeseen(h.By, h.Left)), h.Left)
	}
}

// Deny leaves the counter of a hit that was not charged ready for the next one. If its caller
// waits, it is not denied yet.
func (h *Hit) Deny(waits bool, now int64) {
	c, g := h.Counter, h.Counter.Group
	if !h.Passes && !waits {
		g.Tallies[c.Stripe].Denied.Add(1)
		g.NoteDenied(c.Key(), 1)
		c.Touch(now)
		if h.CountsDenied {
			h.chargeAnyway()
			return
		}
	}
	switch a := c.Forecast(); {
	case a != nil && h.Full != nil:
		// Pass has not been asked; and who has only a share of the limit does not ask for what the
		// others divide.
	case a != nil && h.Passes: // denied by another rule
		a.Return(a.Part, h.Cost)
		h.leaveForecastAllowance()
	case a != nil:
		// Nobody lets pass what does not fit by what is known; it would look as if there were
		// others' hits to expect.
		if h.Cost <= max(h.room, 1) {
			a.note(h.At, 0, h.Cost)
			c.recordDenials(h.By, h.At, h.Cost, 1)
		}
		if h.Blocks {
			c.refuseMore(h.By, h.At)
		}
		c.awaitFullRound(h.At)
	case h.room > 0 && h.shared:
		h.leaveAllowance(min(h.room, c.unforeseen(h.By, h.room)), h.room)
	case h.room > 0:
		h.leaveAllowance(h.room, h.room)
	case h.Blocks:
		c.block(h.By, h.At)
	}
}

// leaveAllowance leaves an allowance for the next hits: for those within the limit itself, by callers entitled
// to all of it.
func (h *Hit) leaveAllowance(hits, room int64) {
	if h.Full == nil {
		h.Counter.leaveAllowance(h.By, h.At, h.within(hits), room)
	}
}

// leaveForecastAllowance is leaveAllowance for a counter with a forecast.
func (h *Hit) leaveForecastAllowance() {
	if h.Full == nil {
		h.Counter.leaveForecastAllowance(h.By, h.At, h.within(h.Left), h.Left)
	}
}

// within is how many of so many hits fit the limit itself.
func (h *Hit) within(hits int64) int64 {
	if h.Plain != nil {
		return min(hits, h.Counter.remaining(h.Plain, h.At))
	}
	return hits
}

// Record charges the hit without deciding.
func (h *Hit) Record(now int64) {
	h.MeasureRoom(now)
	h.shared = h.Counter.Group.isShared()
	h.chargeAnyway()
}

// chargeAnyway charges the hit whatever there is room for, as far as can be counted.
func (h *Hit) chargeAnyway() {
	c := h.Counter
	cost := min(h.Cost, window.MaxCount-c.Totals()[0])
	if cost <= 0 {
		return
	}
	c.add(cost)
	c.level().Date(&h.By.Drain, c.Newest, h.At, cost)
	if p := c.Permits(); p != nil {
		p.Spend(c.Newest, cost)
	}
	c.Group.Tallies[c.Stripe].Further.Add(cost)
	c.queue()
	if a := c.Forecast(); a != nil {
		a.note(h.At, cost, 0)
	}
	if h.shared && c.remaining(h.By, h.At) <= h.By.Capacity/2 {
		c.Group.Host.Want(fleetstate.NextFast)
	}
}

// never is the wait of a hit that costs more than the limit.
const never = time.Duration(1<<63 - 1)
