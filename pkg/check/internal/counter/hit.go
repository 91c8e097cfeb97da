package counter

import (
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/fleetstate"
	"github.com/offpath-io/offpath/pkg/check/internal/level"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// Hit is one hit against one counter. Consider finds out whether there is room for it; Charge or
// Deny then changes the counts. For all methods the counter is locked, or a view.
type Hit struct {
	Counter Locked  // empty before it is locked, if the rule bars the request, and if the table is full
	By      *Limits // the limits that decide
	Plain   *Limits // the limit itself, if By allows more than that, or less; else nil
	Full    *Limits // the limit that By is a share of; nil if it is all of it
	Cost    int64
	// Blocks means that a denial may leave a block for the next hits, and CountsDenied that the hit
	// is charged even if it is denied.
	Blocks, CountsDenied bool

	// Set by Consider.

	room, At int64                // known room in hits, and the time at which the buckets were read
	Left     int64                // hits that may still pass
	Fresh    fleetstate.Freshness // of the shard, as the limits see it
	Passes   bool
	shared   bool // see isShared
	foreseen bool // the forecast has decided, see foresee
	thinned  bool // it fits by the known counts, and near a small limit only some such hits pass
	Exceeds  bool // it is beyond the limit, if it passes
	Short    bool // under strict enforcement: it does not fit by counts, whatever permits there are

	// The hits that were charged, and the bucket; 0 if none were.
	Charged, Bucket int64
	level           level.Noted
}

// burstHits is how many hits of the same cost others have to be expected to have admitted beyond
// the room before a hit that is thinned does not pass for it: as many come in a burst.
const burstHits = 2

// HasCounter returns whether the hit's key has a counter.
func (h *Hit) HasCounter() bool { return h.Counter.Counter != nil }

// whole returns the limits of a class that has all of the limit.
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
	h.shared, h.Fresh = c.Group.isShared(), c.Group.Freshness(h.By, c.Key())
	h.thinned = false
	var wholeRoom int64
	if h.Plain != nil {
		wholeRoom = h.measure()
	}
	if c.Group.Strict == nil {
		f := h.Fresh
		if c.overflow {
			f = c.freshness(h.By)
		}
		switch f {
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
	h.foreseen = false
	forecasts := h.shared && c.ensureForecast(h.whole(), h.At, wholeRoom, cost) != nil &&
		cost <= h.room
	switch {
	case forecasts && h.Full != nil:
		h.Passes, h.Left = c.foreseeShare(h.By, h.Full, h.At, h.room, cost)
	case forecasts && !c.Group.mayThin(h.By, cost):
		h.foreseen = true
		h.Passes, h.Left = c.foresee(h.By, h.At, h.room, cost)
	default:
		h.Passes, h.Left = cost <= h.room, h.room
		if forecasts { // what it expects of others, near the limit, is less than one such hit
			o, _ := c.Look(h.By, h.At)
			h.Passes = o.Free > -burstHits*float64(cost)
		}
		switch {
		case h.Passes && c.Group.Shape.Kind == window.Leaky: // one at a time
			h.Left = 0
		case h.Passes:
			if h.shared && h.Fresh != fleetstate.LocalShare {
				h.thinned, h.Passes = c.applyThinning(h.whole(), h.At, cost)
			}
			if h.Passes {
				h.Left -= cost
			}
		}
	}
	return h.Passes
}

// measure sets Exceeds, Short and room by the other limits of the hit, beside By. It returns the
// room within Full, if there is one.
func (h *Hit) measure() (wholeRoom int64) {
	c, t := h.Counter, h.By
	h.Exceeds = h.Cost > c.remaining(h.Plain, h.At)
	if h.Full != nil {
		wholeRoom = c.remaining(h.Full, h.At)
	}
	if c.Group.Strict != nil && t.Limit < t.Wire { // permits are granted within Wire, which is more
		fits := c.remaining(t, h.At)
		h.Short = h.Cost > fits
		h.room = min(h.room, fits)
	}
	return wholeRoom
}

// considerOutage decides in an outage, by rules with rules.Open or rules.Closed.
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

// MeasureRoom sets room and At.
func (h *Hit) MeasureRoom(now int64) int64 {
	h.room, h.At = h.Counter.Room(h.By, now)
	return h.room
}

// retryIn returns how long until a hit that has been denied fits, by the known counts; never if its
// cost is above the limit. It asks for permits if they are lacking.
func (h *Hit) retryIn(now int64) time.Duration {
	c := h.Counter
	if c.Group.Strict != nil && !h.Short { // if Short, more permits would not help
		if h.Cost > h.By.Limit {
			return never
		}
		return c.refusePermits(now, h.At, h.Cost)
	}
	return h.FitsIn(now)
}

// FitsIn is retryIn by counts alone, without permits.
func (h *Hit) FitsIn(now int64) time.Duration {
	if after, ok := h.Counter.retryIn(h.By, h.Cost, h.At); ok {
		return after + time.Duration(h.At-now)
	}
	return never
}

// RetryAfter returns how long the caller of a denied hit should wait before it tries again.
func (h *Hit) RetryAfter(now int64) time.Duration {
	c, wait := h.Counter, h.retryIn(now)
	if wait == 0 { // it would fit, by the known counts
		wait = c.retryAfter(h.whole(), h.At, h.Cost)
	}
	if c.overflow && h.By.OnOutage == rules.Closed && wait != never {
		wait = max(wait, time.Duration(c.Group.Shape.PeriodEnd(c.Newest)-now))
	}
	return wait
}

// Turn returns how long until the turn of a hit that a token or leaky bucket has denied; ok is
// false if it may not wait. fits is how long until the hit fits, and most how long callers may
// wait; 0 means without a bound.
func (h *Hit) Turn(fits, most time.Duration, now int64) (wait time.Duration, ok bool) {
	l, s := h.Counter.level(), h.Counter.situation(h.By, new(level.Situation))
	if h.thinned { // a turn spaces hits already, so thinning need not delay it
		fits = 0
	}
	wait, ok = l.ShareIn(s, h.Cost, h.At)
	wait = max(fits, wait+time.Duration(h.At-now))
	ok = ok && wait != never && (most <= 0 || wait <= most) && h.Counter.freshness(h.By) != fleetstate.Outage
	return wait, ok && l.MayQueue(s, h.Cost, h.At)
}

// Charge charges a hit that passes, and leaves an allowance for the next ones.
func (h *Hit) Charge() {
	h.chargeAt(0)
	h.admit()
}

// chargeAt charges the hit; wait is how long until its turn.
func (h *Hit) chargeAt(wait time.Duration) {
	c := h.Counter
	c.charge(h.Cost)
	h.Charged, h.Bucket = h.Cost, c.Newest
	c.noteOwn(h.whole(), h.At, h.Cost, h.thinned)
	if l := c.level(); l != nil {
		h.level = l.Took(c.situation(h.By, new(level.Situation)), h.At, h.Cost, wait)
	}
}

// ChargeTurn charges a hit whose turn comes later.
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

// admit leaves an allowance for the next hits, after this one was charged.
func (h *Hit) admit() {
	c := h.Counter
	switch a := c.Forecast(); {
	case a != nil:
		a.note(h.At, h.Cost, 0)
		if h.Full == nil && !h.foreseen {
			c.Group.Host.Want(fleetstate.AtOnce)
		}
		h.leaveForecastAllowance()
	case h.Left > h.room: // admitted in an outage beyond the limit
	case !h.shared:
		h.leaveAllowance(h.Left, h.Left)
	default:
		more, mayThin := c.unforeseen(h.By, h.Left), c.Group.mayThin(h.whole(), h.Cost)
		if more <= 0 {
			if n := c.withoutForecast(h.By, h.Left); n > 0 {
				more = n
			}
		}
		// Half is the alarm threshold: from here on other checkers must hear of each hit.
		switch beyondHalf := h.Left <= h.By.Capacity/2; {
		case beyondHalf && mayThin:
			c.Group.Host.Want(fleetstate.AtOnce)
		case beyondHalf, mayThin && more <= 0 && c.recent() > 1:
			c.Group.Host.Want(fleetstate.NextFast)
		}
		h.leaveAllowance(min(h.Left, more), h.Left)
	}
}

// Deny counts the denial of a hit that was not charged, and leaves an allowance or a block for the
// next ones. If the caller waits, the hit is not denied yet.
func (h *Hit) Deny(waits bool, now int64) {
	c, g := h.Counter, h.Counter.Group
	if !h.Passes && !waits {
		g.Tallies[c.Stripe].Denied.Add(1)
		g.NoteDenied(c.Key(), 1)
		c.Touch(now)
		if th := c.thinning(); th != nil && !h.thinned {
			th.denied = h.At
		}
		if h.CountsDenied {
			h.chargeAnyway()
			return
		}
	}
	switch a := c.Forecast(); {
	case a != nil && h.Full != nil:
		// foreseeShare calls no forecast.Key.Pass, so there is no credit to return. Denials of a
		// class with a share are not demand for the whole limit.
	case a != nil && h.Passes: // denied by another rule
		if h.foreseen {
			a.Return(a.Part, h.Cost)
		}
		h.leaveForecastAllowance()
	case a != nil:
		// A large hit that does not fit by the known counts passes nowhere: as demand, it would
		// make the forecast expect hits of others.
		if h.Cost <= h.room || !g.mayThin(h.By, h.Cost) {
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

// leaveAllowance leaves an allowance for the next hits that fit the limit itself, if the class has
// all of the limit.
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

// within returns how many of these hits fit the limit itself.
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

// chargeAnyway charges the hit even if there is no room, up to the largest count.
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
