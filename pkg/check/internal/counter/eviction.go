package counter

import (
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/idle"
	"github.com/offpath-io/offpath/pkg/check/internal/level"
)

// Counters without pending hits and hits in flight wait in a queue until they may leave the table.
// While there is room, a counter stays until its last hit has left the window: its counts are worth
// more than the memory, which is bounded anyway. When the table gets crowded, the counters that
// have waited longest leave first, for the idle cache.

// age puts a counter into the queue of counters that may leave, and its forecast into that of
// forecasts.
func (c Locked) age(fleet int64) {
	c.ageForecast(fleet)
	if !c.Is(ageing | Dead) {
		c.State |= ageing
		c.Group.Host.Ageing.Add(c.Counter, fleet)
	}
}

// ageForecast puts the counter's forecast, if it has one, into the queue of forecasts that may be
// dropped.
func (c Locked) ageForecast(fleet int64) {
	if a := c.Forecast(); a != nil && !a.ageing && !c.Is(Dead) {
		a.ageing = true
		c.Group.Host.forecasts.Push(agedForecast{aged{c.Counter, fleet + int64(idle.LaterLook)}, a})
	}
}

// evictForecasts drops the forecasts of counters that have been silent.
func (h *Host) evictForecasts(fleet int64) {
	q := &h.forecasts
	for range min(q.Len(), looksAtOnce) {
		if due := q.Peek().Due; fleet < due && due <= fleet+int64(idle.LaterLook) { // later: the clock was set back
			return
		}
		f := q.Pop()
		c := f.counter.Lock()
		switch {
		case c.Forecast() != f.forecast: // it was dropped before
			h.forecastCount.Add(-1)
		case c.Is(queued|InFlight) || c.silent(fleet) < activityUnits(silentForecast):
			f.forecast.ageing = false
			c.ageForecast(fleet)
		default:
			f.forecast.ageing = false
			c.roomBehindBlock(fleet) // reports the taken hits to the forecast
			c.forgetTraffic()
		}
		c.Unlock()
	}
}

// Evict removes the counters that are due; when the table is crowded, also those that have waited
// longest, before they are due.
func (h *Host) Evict(fleet int64) {
	h.evictForecasts(fleet)
	fresh, known := h.Ageing.Len()
	for range min(known, looksAtOnce) {
		crowded := h.Crowded()
		c, ok := h.Ageing.PopKnown(fleet, crowded)
		if !ok {
			break
		}
		h.consider(c, fleet, crowded)
	}
	for range min(fresh, looksAtOnce) {
		crowded := h.Crowded()
		c, ok := h.Ageing.PopFresh(fleet, crowded)
		if !ok {
			return
		}
		h.consider(c, fleet, crowded)
	}
}

// Spare makes a queued counter that has no pending hits age, as if it had been reported. It returns
// false, and leaves it queued, if it has some.
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

// consider removes one counter from the table, or keeps it in the queue. A counter that is queued
// or has hits in flight comes back after its flush or answer.
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
	if c.silent(fleet) >= activityUnits(idle.FirstLook) {
		c.forgetTraffic() // a forecast takes more memory than the counter
	}
	c.State |= ageing
	h.Ageing.Keep(c.Counter, fleet, c.emptyIn(room, fleet))
}

// roomBehindBlock is Room, which withdraws the allowance, but restores a block.
func (c Locked) roomBehindBlock(fleet int64) int64 {
	word, until := c.Allowance.Load(), c.Until.Load()
	room, _ := c.Room(c.Group.Limits.Load(), fleet)
	if word&^StampMask == Blocked {
		c.Until.Store(until)
		c.Allowance.Store(word)
	}
	return room
}

// emptyIn returns how long the counter, which has this much room, certainly stays: until it is
// empty, if it gets no more hits; 0 if it may leave before. The counter is current.
func (c Locked) emptyIn(room, fleet int64) time.Duration {
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
		last = max(last, l.LastBucket(c.situation(c.Group.Limits.Load(), new(level.Situation)), fleet))
	}
	return time.Duration(shape.End(last+int64(len(totals))-1) - fleet)
}

// mayLeave decides whether a counter without pending hits and hits in flight may leave.
func (c Locked) mayLeave(room, fleet int64, crowded bool) bool {
	over := c.Group.Retired.Load() && c.silent(fleet) >= activityUnits(idle.FirstLook)
	if p := c.Permits(); p != nil { // permits decide, not the counts
		return p.IsIdle(c.Moment(fleet)) && (crowded || c.isEmpty() || over)
	}
	switch {
	case c.Forecast() != nil && !crowded && c.silent(fleet) < activityUnits(idle.FirstLook):
		return false // what it has learnt is of use again soon, though the window is empty now
	case c.isEmpty() || over:
		return true
	case c.Group.Host.Config.Local: // no other checker or store has this count
		return false
	case room < 1:
		return crowded && c.silent(fleet) >= activityUnits(silentBlock)
	}
	return crowded || c.mayIdle(room) && c.silent(fleet) >= activityUnits(silentKey)
}

// mayIdle returns whether the counter may move to the idle cache once its key has been silent. A
// blocked key stays in the table, since the cache may forget it.
func (c Locked) mayIdle(room int64) bool {
	return room > 0 && !c.Group.Host.Config.Local && c.Group.Host.Idle.IsOpen()
}
