package fleetstate

import "time"

var started = time.Now()

// SystemTime is the wall clock at the start plus what has monotonically passed since, so that a
// step of the system's clock moves nothing.
func SystemTime() int64 {
	return started.UnixNano() + int64(time.Since(started))
}

// OwnTime returns this checker's own time: by Config.Now, or else the system's.
func (s *State) OwnTime() int64 {
	if s.Config.Now != nil {
		return s.Config.Now().UnixNano()
	}
	return SystemTime()
}

// ExactTime returns the fleet's time by the checker's own.
func (s *State) ExactTime() int64 { return s.Clock.Fleet(s.OwnTime()) }

// Time returns the fleet's time for a check. While Run is at work that is the time of the last
// tick, but not under strict enforcement: the ticks stop while the goroutine behind them is not
// scheduled, and permits would be spent after their bucket.
func (s *State) Time(strict bool) int64 {
	if t := s.Clock.Coarse(); t != 0 && !strict {
		return t
	}
	return s.ExactTime()
}
