package counter

import (
	"math"
	"math/bits"

	"github.com/offpath-io/offpath/pkg/check/internal/queue"
)

// Counters that have nothing on its way wait here until they may leave. While there is room, a
// counter stays until its last hit has left the window: what it knows is worth more than the
// memory, which is bounded anyway. When the table gets crowded, those that have waited longest
// make room; the idle cache remembers them as well as it can.

// age lets a counter wait to leave, and its forecast.
func (c Locked) age(fleet int64) {
	c.ageForecast(fleet)
	if !c.Is(ageing | Dead) {
		c.State |= ageing
		c.Group.Host.Ageing.Fresh.Push(aged{c.Counter, fleet + int64(firstLook)})
	}
}

// ageForecast lets the forecast of a counter, if it has one, wait to leave.
func (c Locked) ageForecast(fleet int64) {
	if a := c.Forecast(); a != nil && !a.ageing && !c.Is(Dead) {
		a.ageing = true
		c.Group.Host.Ageing.forecasts.Push(agedForecast{aged{c.Counter, fleet + int64(laterLook)}, a})
	}
}

// evictForecasts takes forecasts from counters that have been silent.
func (h *Host) evictForecasts(fleet int64) {
	q := &h.Ageing.forecasts
	for range min(q.Len(), looksAtOnce) {
		if fleet < q.Peek().Due {
			return
		}
		f := q.Pop()
		c := f.counter.Lock()
		switch {
		case c.Forecast() != f.forecast: // it has gone
		case c.Is(queued|InFlight) || c.silent(fleet) < ticks(silentForecast):
			f.forecast.ageing = false
			c.ageForecast(fleet)
		default:
			c.roomBehindBlock(fleet) // which puts down what the forecast is to know
			c.setForecast(nil)
		}
		c.Unlock()
	}
}

// Evict lets counters leave whose time has come; when the table is crowded, those that have
// waited longest leave before it has.
func (h *Host) Evict(fleet int64) {
	h.evictForecasts(fleet)
	known := 0
	for i := range h.Ageing.Known {
		known += h.Ageing.Known[i].Len()
	}
	for range min(known, looksAtOnce) {
		crowded := h.Crowded()
		q := h.Ageing.next(fleet, crowded)
		if q == nil {
			break
		}
		h.consider(q.Pop().counter, fleet, crowded)
	}
	for range min(h.Ageing.Fresh.Len(), looksAtOnce) {
		crowded := h.Crowded()
		if !crowded && fleet < h.Ageing.Fresh.Peek().Due {
			return
		}
		h.consider(h.Ageing.Fresh.Pop().counter, fleet, crowded)
	}
}

// next returns the later queue whose first counter is to be looked at, nil if none is: one that is
// due or, when it is crowded, the one that has waited longest.
func (a *evictionQueues) next(fleet int64, crowded bool) (next *queue.FIFO[aged]) {
	longest := int64(math.MaxInt64)
	for i := range a.Known {
		q := &a.Known[i]
		if q.Len() == 0 {
			continue
		}
		due := q.Peek().Due
		switch since := due - int64(laterLook)<<i; {
		case !crowded && due <= fleet:
			return q
		case crowded && since < longest:
			longest, next = since, q
		}
	}
	return next
}

// LookSoon has all counters looked at within laterLook, since limiters have retired, whose counters
// need not wait until they are empty.
func (h *Host) LookSoon(fleet int64) {
	for i := range h.Ageing.Known[1:] {
		for q := &h.Ageing.Known[1+i]; q.Len() > 0; {
			h.Ageing.Known[0].Push(aged{q.Pop().counter, fleet + int64(laterLook)})
		}
	}
}

// Spare lets a queued counter age that has nothing to report.
func (counter *Counter) Spare(fleet int64) bool {
	c := counter.Lock()
	defer c.Unlock()
	c.CatchUp(fleet)
	if c.hasPending() {
		return false
	}
	c.State &^= queued
	c.age(fleet)
	return true
}

// consider lets one counter leave, or lets it wait on. One that has hits on their way is left to
// their answer.
func (h *Host) consider(counter *Counter, fleet int64, crowded bool) {
	c := counter.Lock()
	defer c.Unlock()
	c.State &^= ageing
	if c.Is(queued | InFlight) {
		return
	}
	room := c.roomBehindBlock(fleet)
	if c.mayLeave(room, fleet, crowded) {
		c.Group.drop(c)
		return
	}
	if c.silent(fleet) >= ticks(firstLook) {
		c.setForecast(nil) // it takes more memory than the counter; a key that comes again gets another
	}
	c.State |= ageing
	later := c.laterLook(room, fleet)
	h.Ageing.Known[later].Push(aged{c.Counter, fleet + int64(laterLook)<<later})
}

// roomBehindBlock is room, which withdraws an allowance, but for a block: that still holds.
func (c Locked) roomBehindBlock(fleet int64) int64 {
	word, until := c.Allowance.Load(), c.Until.Load()
	room, _ := c.Room(c.Group.Limits.Load(), fleet)
	if word&^StampMask == Blocked {
		c.Until.Store(until)
		c.Allowance.Store(word)
	}
	return room
}

// laterLook is in which of the later queues a counter is to wait, which has this much room. The
// counter is current.
func (c Locked) laterLook(room, fleet int64) int {
	if c.Forecast() != nil || c.Permits() != nil || c.Group.Retired.Load() || c.mayIdle(room) {
		return 0 // it may leave, or need less memory, before it is empty
	}
	shape, totals := c.Group.Shape, c.Totals()
	last := c.Newest - int64(len(totals)) // when this has left, the counter is empty
	for i, n := range totals {
		if n != 0 {
			last = c.Newest - int64(i)
			break
		}
	}
	if l := c.level(); l != nil {
		last = max(last, l.LastBucket(c.situation(c.Group.Limits.Load()), fleet))
	}
	left := max(shape.End(last+int64(len(totals))-1)-fleet, 0)
	return min(max(bits.Len64(uint64(left)/uint64(laterLook))-1, 0), LaterLooks-1)
}

// mayLeave decides whether a counter with nothing on its way may leave.
func (c Locked) mayLeave(room, fleet int64, crowded bool) bool {
	over := c.Group.Retired.Load() && c.silent(fleet) >= ticks(firstLook)
	if p := c.Permits(); p != nil { // the store counts: what this counter counts decides nothing
		return p.IsIdle(c.Moment(fleet)) && (crowded || c.isEmpty() || over)
	}
	switch {
	case c.isEmpty() || over:
		return true
	case c.Group.Host.Config.Local: // nobody else knows this count
		return false
	case room < 1:
		return crowded && c.silent(fleet) >= ticks(silentBlock)
	}
	return crowded || c.mayIdle(room) && c.silent(fleet) >= ticks(silentKey)
}

// mayIdle says whether the idle cache may have the counter once its key has been silent. A blocked
// key stays in the table, since the cache may forget it.
func (c Locked) mayIdle(room int64) bool {
	return room > 0 && !c.Group.Host.Config.Local && c.Group.Host.Idle.isOpen()
}
