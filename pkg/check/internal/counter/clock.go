package counter

import "time"

var started = time.Now()

// SystemTime is the wall clock at the start plus what has monotonically passed since, so that a
// step of the system's clock moves nothing.
func SystemTime() int64 {
	return started.UnixNano() + int64(time.Since(started))
}

// OwnTime returns this checker's own time: by Config.Now, or else the system's.
func (h *Host) OwnTime() int64 {
	if h.Config.Now != nil {
		return h.Config.Now().UnixNano()
	}
	return SystemTime()
}

// ExactTime returns the fleet's time by the checker's own.
func (h *Host) ExactTime() int64 { return h.Clock.Fleet(h.OwnTime()) }

// Time returns the fleet's time for a check. While Run is at work that is the time of the last
// tick, but not under strict enforcement: the ticks stop while the goroutine behind them is not
// scheduled, and permits would be spent after their bucket.
func (h *Host) Time(strict bool) int64 {
	if t := h.Clock.Coarse(); t != 0 && !strict {
		return t
	}
	return h.ExactTime()
}

// Now returns the fleet's time for a check of the group's counters.
func (g *Group) Now() int64 { return g.Host.Time(g.Strict != nil) }
