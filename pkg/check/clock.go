package check

import (
	"sync/atomic"
	"time"
)

// clock gives the fleet's time: this process' own, corrected by what welcomes said of the fleet's.
//
// While Run is at work it is coarse: reading the system's clock costs more than the rest of a check,
// so Run writes the time down every tick, and checks read that. Own time is the wall clock at the
// start plus what has monotonically passed since, so a step of the system's clock moves nothing.
type clock struct {
	coarse atomic.Int64 // the fleet's time at the last tick; 0 while nobody ticks
	offset atomic.Int64 // the fleet's time minus own time
	err    atomic.Int64 // how far that may be wrong, either way; see clockerror.go

	source func() time.Time // Options.Now; nil for the system's clock

	// Kept by whoever calls behind's functions, under its lock.
	samples [8]clockSample
	best    clockSample
	next    int
	known   bool  // the first welcome has come
	target  int64 // where offset is going
	slewed  int64 // own time at the last slew
}

// clockSample is one comparison of the clocks at own time at: right to half of the round trip and
// what the aggregator says that its own clock is off by.
type clockSample struct{ err, offset, at int64 }

const (
	// clockTick is how coarse the coarse clock is.
	clockTick = time.Millisecond
	// slewShare is how fast the offset follows its target: by 1/20 of the time that passes. A
	// window is never more than that much too short or too long.
	slewShare = 20
	// longestRoundTrip bounds what a look at the fleet's clock may take and still count.
	longestRoundTrip = 5 * time.Second
)

var started = time.Now()

// ownTime returns the system's time.
func ownTime() int64 {
	return started.UnixNano() + int64(time.Since(started))
}

// own returns own time: Options.Now, or the system's.
func (c *clock) own() int64 {
	if c.source != nil {
		return c.source().UnixNano()
	}
	return ownTime()
}

// now returns the fleet's time, coarsely while Run is at work.
func (c *clock) now() int64 {
	if t := c.coarse.Load(); t != 0 {
		return t
	}
	return c.read()
}

// read returns the fleet's time, not coarsely.
//
//go:noinline
func (c *clock) read() int64 { return c.fleet(c.own()) }

// fleet returns the fleet's time at a given own time.
func (c *clock) fleet(own int64) int64 { return own + c.offset.Load() }

// tick writes the time down for checks to read.
func (c *clock) tick() { c.coarse.Store(c.read()) }

// stop makes checks read the system's clock again.
func (c *clock) stop() { c.coarse.Store(0) }

// observe takes in a welcome that came at own time now and answers a hello sent at own time sent:
// the fleet's time was fleet, or off by err, about half a round trip ago. Of the last samples the
// one with the smallest error wins. The first observation steps the clock, and returns by how much;
// later ones let it slew, unless it is far behind.
func (c *clock) observe(sent, fleet, now, err int64) (step int64) {
	trip := now - sent
	if trip < 0 || trip > int64(longestRoundTrip) {
		return 0
	}
	c.samples[c.next%len(c.samples)] = clockSample{trip/2 + err, fleet + trip/2 - now, now}
	c.next++
	best := c.samples[0]
	for _, s := range c.samples[1:min(c.next, len(c.samples))] {
		if s.err < best.err {
			best = s
		}
	}
	c.best, c.target = best, best.offset
	defer c.judge(now)
	if c.known {
		if c.isFarBehind() { // cells only move forward, as after a long silence
			c.step(c.target - c.offset.Load())
		}
		return 0
	}
	c.known, c.slewed = true, now
	c.step(c.target)
	return c.target
}

// step moves the offset at once, and the time written down with it.
func (c *clock) step(by int64) {
	c.offset.Add(by)
	if t := c.coarse.Load(); t != 0 {
		c.coarse.Store(t + by)
	}
}

// stepForward is how far the clock must be behind, by all of the last samples, to step again: this
// machine was asleep, and at the pace of slewing nothing would be counted in time for hours.
const stepForward = 5 * time.Second

func (c *clock) isFarBehind() bool {
	if c.next < len(c.samples) {
		return false
	}
	for _, s := range c.samples {
		if s.offset-c.offset.Load() < int64(stepForward) {
			return false
		}
	}
	return true
}

// slew moves the offset towards its target.
func (c *clock) slew(now int64) {
	defer c.judge(now)
	most := (now - c.slewed) / slewShare
	c.slewed = now
	if most <= 0 {
		return
	}
	by := min(max(c.target-c.offset.Load(), -most), most)
	c.offset.Add(by)
}
