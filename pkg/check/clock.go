package check

import "time"

var started = time.Now()

// systemTime is the wall clock at the start plus what has monotonically passed since, so that a
// step of the system's clock moves nothing.
func systemTime() int64 {
	return started.UnixNano() + int64(time.Since(started))
}

// ownTime returns this checker's own time: by Options.Now, or else the system's.
func (c *Checker) ownTime() int64 {
	if c.o.Now != nil {
		return c.o.Now().UnixNano()
	}
	return systemTime()
}

// now returns the fleet's time for a check by all rules of a ruleset.
func (c *Checker) now(p *ruleset) int64 { return c.timeFor(p.strict) }

// now returns the fleet's time for a check by this limiter's rule.
func (l *Limiter) now() int64 { return l.checker.timeFor(l.strict != nil) }

// timeFor returns the fleet's time for a check. While Run is at work that is the time of the last
// tick, but not under strict enforcement: the ticks stop while the goroutine behind them is not
// scheduled, and permits would be spent after their bucket.
func (c *Checker) timeFor(strict bool) int64 {
	if t := c.clock.Coarse(); t != 0 && !strict {
		return t
	}
	return c.exactTime()
}

// exactTime returns the fleet's time by the checker's own.
func (c *Checker) exactTime() int64 { return c.clock.Fleet(c.ownTime()) }
