package fleetstate

import "time"

var started = time.Now()

// SystemTime returns the wall clock at the start of the process plus the monotonic time since, so
// that steps of the system's clock do not change it.
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

// Time returns the fleet's time for a check. While Run runs, that is the time of the last tick,
// except under strict enforcement: if the goroutine that ticks were not scheduled for a while,
// permits would be spent after the end of their bucket.
func (s *State) Time(strict bool) int64 {
	if t := s.Clock.Coarse(); t != 0 && !strict {
		return t
	}
	return s.ExactTime()
}
