// Package fleet is an aggregator's knowledge of the fleet: its time, and its live checkers.
package fleet

import (
	"slices"
	"sync"
)

// Clock compares the aggregator's own clock with the store's. Each reading of the store's clock is
// off by at most half its round trip, so of the last few the one with the shortest counts.
//
// The first reading sets the fleet's time. When the store's clock is set later, or another node
// with another clock takes over, the fleet's time slews there: checkers follow it at twice that
// pace at most, so that aggregators and checkers stay together. If it stepped, hits would be late
// or refused until every checker had followed.
//
// The zero value is a clock without readings. Its methods are safe for concurrent use.
type Clock struct {
	mu       sync.Mutex
	readings []reading // the last few, the newest last
	best     reading

	known  bool
	first  int64 // how far off the first reading, which set the offset, may have been
	offset int64 // the fleet's time less our own
	slewed int64 // own time at which offset was right
}

// slewShare is the part of the elapsed time by which the fleet's time slews at most.
const slewShare = 40

// reading is one comparison: the store's time less our own, right to ± half the round trip.
type reading struct {
	offset, half int64
}

const (
	// maxReadings is how many readings are compared.
	maxReadings = 8
	// slack is how far two clocks may drift apart over these readings, in ns.
	slack = 5_000_000
)

// Observe adds a reading: the store's clock showed theirs at some moment between own times sent and
// got.
func (c *Clock) Observe(sent, got, theirs int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	half := max(got-sent, 0) / 2
	r := reading{offset: theirs - (sent + half), half: half}
	if len(c.readings) > 0 && abs(r.offset-c.best.offset) > r.half+c.best.half+slack {
		c.readings = nil // both cannot be right: one of the clocks was set
	}
	c.readings = append(c.readings, r)
	c.readings = c.readings[max(len(c.readings)-maxReadings, 0):]
	c.best = r
	for _, o := range slices.Backward(c.readings) { // of equals the newest wins
		if o.half < c.best.half {
			c.best = o
		}
	}
	if !c.known {
		c.known, c.first, c.offset, c.slewed = true, c.best.half, c.best.offset, got
	}
}

// Time converts own time to the fleet's.
func (c *Clock) Time(now int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if most := (now - c.slewed) / slewShare; most > 0 {
		c.offset += min(max(c.best.offset-c.offset, -most), most)
		c.slewed = now
	}
	return now + c.offset
}

// Error is how far off the fleet's time may be: half of the best reading's round trip, and the part
// of the first one's error that is not corrected yet. That the store's clock was set is no error:
// all aggregators slew there alike.
func (c *Clock) Error() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.best.half + min(abs(c.best.offset-c.offset), c.first)
}

func abs(n int64) int64 {
	if n < 0 {
		return -n
	}
	return n
}
