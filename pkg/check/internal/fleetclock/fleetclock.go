// Package fleetclock estimates the fleet's time.
//
// All checkers and aggregators count hits in buckets of one clock, the fleet's. A checker has its
// own clock, and compares it with the fleet's at every heartbeat: the aggregator's answer says what
// time it was there. From the last few answers a [Clock] keeps an offset, which it adds to the
// checker's own time, and a bound for how far the result may be off.
//
// Times are Unix nanoseconds. *Own time* is the checker's own, the *fleet's time* is the estimate.
package fleetclock

import (
	"math"
	"sync/atomic"
	"time"
)

// Clock turns own time into the fleet's. The zero value has an offset of 0 and an unknown error.
//
// Coarse, Fleet, Own, Offset and Error may be called at any time. One goroutine may call Tick and
// Stop. Observe, Slew, Known and Refuted need the caller's lock.
type Clock struct {
	coarse atomic.Int64 // the fleet's time at the last tick; 0 if there are no ticks
	offset atomic.Int64 // the fleet's time minus own time
	err    atomic.Int64 // how far that may be off, either way; 0 if that is unknown

	samples [8]sample
	best    sample
	next    int
	known   bool  // there has been an observation
	guess   int64 // the smallest error of an observation that the offset is based on, or that agrees
	target  int64 // where offset is going
	slewed  int64 // own time at the last slew
	doubted bool  // a newer sample contradicts the best one
	refuted bool  // the last sample contradicts the best one of before
}

// sample is one comparison of the clocks, made at own time at. Its error is half of the round trip
// plus the error that the aggregator states for its own clock.
type sample struct{ err, offset, at int64 }

// errAt is the error at own time now: the clocks may have drifted apart since.
func (s sample) errAt(now int64) int64 { return s.err + max(now-s.at, 0)/driftShare }

// contradicts says whether a newer sample, at own time now or before, shows that a clock was set.
func (s sample) contradicts(o sample, now int64) bool {
	return distance(s.offset, o.offset) > s.errAt(now)+o.err+int64(margin)
}

const (
	// TickEvery is how often Tick is to be called, and so how coarse Coarse is.
	TickEvery = time.Millisecond
	// LongestRoundTrip is the longest time from a hello to its welcome that makes an observation.
	LongestRoundTrip = 5 * time.Second
	// SlewShare is how fast the offset follows its target: by 1/20 of the time that passes. No
	// window is more than that much too short or too long.
	SlewShare = 20
	// farOff is how far the clock must be behind or ahead, by all of the last samples, to step
	// again: the machine was asleep, or a clock was set, and slewing would count hits at the wrong
	// time for minutes or hours.
	farOff = 5 * time.Second
	// slewable is what is always left to slewing, which takes 20 times as long.
	slewable = 50 * time.Millisecond
)

// Coarse returns the fleet's time at the last tick, or 0 if there are no ticks. It is much cheaper
// than reading the system's clock, which would cost more than the rest of a check.
func (c *Clock) Coarse() int64 { return c.coarse.Load() }

// Tick lets Coarse return the fleet's time at an own time, which is now.
func (c *Clock) Tick(own int64) { c.coarse.Store(c.Fleet(own)) }

// Stop ends the ticks.
func (c *Clock) Stop() { c.coarse.Store(0) }

// Refuted says whether the last observation contradicts the best one of before. Then what was
// reckoned by an earlier Error is wrong.
func (c *Clock) Refuted() bool { return c.refuted }

// Fleet returns the fleet's time at an own time.
func (c *Clock) Fleet(own int64) int64 { return own + c.offset.Load() }

// Own returns the own time at a time of the fleet's.
func (c *Clock) Own(fleet int64) int64 { return fleet - c.offset.Load() }

// Offset is the fleet's time minus own time.
func (c *Clock) Offset() time.Duration { return time.Duration(c.offset.Load()) }

// Known says whether there has been an observation.
func (c *Clock) Known() bool { return c.known }

// IsGuess says whether better observations are worth asking for soon: there were few so far, and
// none that was any good.
func (c *Clock) IsGuess() bool { return c.next < len(c.samples) && c.guess > int64(slewable) }

// Observe takes in a welcome that came at own time now and answers a hello sent at own time sent.
// The aggregator read the fleet's time about half a round trip ago, and its own error was err. Of
// the last observations the one with the smallest error counts, unless two newer ones agree that
// the time has moved since; if all are bad, an older one, as long as none of them contradicts it
// and it is still better, for all that the clocks may have drifted since. Later ones than the first
// let the clock slew, unless they prove the first one wrong, or all of the last ones say that it is
// far off.
//
// Observe returns by how much the clock has stepped, if hits that are not reported yet were dated
// too late, or by a first guess. When a clock that is far behind steps forward, they were not: it
// stood still for a while.
func (c *Clock) Observe(sent, fleet, now, err int64) (step int64) {
	c.refuted = false
	trip := now - sent
	if trip < 0 || trip > int64(LongestRoundTrip) {
		return 0
	}
	last := sample{trip/2 + err, fleet + trip/2 - now, now}
	c.refuted = c.known && c.best.contradicts(last, now)
	c.samples[c.next%len(c.samples)] = last
	c.next++
	c.forgetRefuted(last)
	best := c.samples[0]
	for _, s := range c.samples[1:min(c.next, len(c.samples))] {
		if s.err < best.err {
			best = s
		}
	}
	if best.err > int64(slewable) && !c.doubted && c.known && c.best.errAt(now) < best.err {
		best = c.best // or eight bad ones would pull the clock away
	}
	c.best, c.target = best, best.offset
	defer c.judge(now)
	switch {
	case !c.known:
		c.known, c.slewed = true, now
		return c.step()
	case c.isWrong():
		return c.step()
	case c.isFarOff():
		return min(c.step(), 0)
	}
	return 0
}

// forgetRefuted lets no sample count that the last one contradicts, and one between the two in the
// same direction: the fleet's time has moved since. A single sample may be wrong itself. Samples
// by which the clock is far off refute none, and are left to isFarOff: slewing to them would not
// get there.
func (c *Clock) forgetRefuted(last sample) {
	if c.isFar(last) {
		return
	}
	samples := c.samples[:min(c.next, len(c.samples))]
	for i, s := range samples {
		if !s.contradicts(last, last.at) {
			continue
		}
		for _, o := range samples {
			if s.at < o.at && o.at < last.at && !c.isFar(o) && s.contradicts(o, last.at) &&
				(o.offset > s.offset) == (last.offset > s.offset) {
				samples[i].err = unknownError
			}
		}
	}
}

func (c *Clock) isFar(s sample) bool { return distance(s.offset, c.offset.Load()) >= int64(farOff) }

// step moves the offset to its target at once, and the time of the last tick with it.
func (c *Clock) step() (by int64) {
	by, c.guess = c.target-c.offset.Load(), c.best.err
	t := c.coarse.Load()
	c.offset.Add(by)
	if t != 0 {
		c.coarse.CompareAndSwap(t, t+by) // a tick in between is right, or the next one is
	}
	return by
}

// isFarOff returns whether all of the last samples say that the clock is far off, in one direction.
func (c *Clock) isFarOff() bool {
	if c.next < len(c.samples) {
		return false
	}
	least, most := int64(math.MaxInt64), int64(math.MinInt64)
	for _, s := range c.samples {
		by := s.offset - c.offset.Load()
		least, most = min(least, by), max(most, by)
	}
	return least >= int64(farOff) || most <= -int64(farOff)
}

// isWrong returns whether the offset is a guess, and the best sample is better than what it is
// based on and proves it wrong. Of a clock that is no guess, one sample proves nothing: that one
// may be wrong itself, or a clock was set since.
func (c *Clock) isWrong() bool {
	if c.guess <= int64(slewable) || c.best.err >= c.guess {
		return false
	}
	off := distance(c.best.offset, c.offset.Load())
	if off > max(c.best.err, int64(slewable)) {
		return true
	}
	c.guess = max(c.best.err, min(off, c.guess))
	return false
}

// Slew moves the offset towards its target, at own time now.
func (c *Clock) Slew(now int64) {
	defer c.judge(now)
	most := (now - c.slewed) / SlewShare
	c.slewed = now
	if most <= 0 {
		return
	}
	by := min(max(c.target-c.offset.Load(), -most), most)
	c.offset.Add(by)
}

const (
	// driftShare bounds how fast two clocks drift apart: by 220 ppm, as crystals are good to 100
	// ppm, and aggregators let the fleet's time return to the store's by 20.
	driftShare = 4545
	// margin is for what the aggregator's clock and the store's may have drifted apart.
	margin = time.Millisecond
	// unknownError is the error of a clock that has never been compared with another.
	unknownError = int64(math.MaxInt64 / 4)
)

// Error returns how far the fleet's time, as Fleet has it, may be from the store's, in ns. It is
// the sum of
//
//   - half of the round trip of the best observation, within which the aggregator may have read its
//     clock at any time;
//   - the error that the aggregator stated for its own clock, since it may just have started;
//   - what is left to slew;
//   - what the two clocks may have drifted apart since that observation;
//   - a margin for what the aggregator's clock and the store's may have drifted apart.
//
// If a newer observation contradicts the best one, a clock was set in between, and the newer one
// counts. The tick of the coarse clock is not included. The error cannot account for a clock that
// was set since the last hello, or for a machine that was asleep until a moment ago.
func (c *Clock) Error() int64 {
	if err := c.err.Load(); err != 0 {
		return err
	}
	return unknownError
}

// judge reckons the error at own time now.
func (c *Clock) judge(now int64) {
	if !c.known {
		return
	}
	offset := c.offset.Load()
	drift := max(now-c.best.at, 0)/driftShare + int64(margin)
	err := c.best.err + distance(c.best.offset, offset) + drift
	c.doubted = false
	for _, s := range c.samples[:min(c.next, len(c.samples))] {
		if s.at > c.best.at && c.best.contradicts(s, now) {
			c.doubted = true
			err = max(err, distance(s.offset, offset)+s.err+drift)
		}
	}
	c.err.Store(err)
}

func distance(a, b int64) int64 { return max(a-b, b-a) }
