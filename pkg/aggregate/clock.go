package aggregate

import "sync"

// fleetClock holds the worker's own clock against the store's. Each look at the store's clock is off
// by at most half its round trip, so of the last few the one with the shortest counts.
//
// The first look sets the fleet's time. When the store's clock is set later, or another node with
// another clock takes over, the fleet's time slews there: checkers follow it at twice that pace at
// the most, so whoever counts and whoever judges stay together. If it stepped, hits would be late or
// refused until every checker had come after.
type fleetClock struct {
	mu    sync.Mutex
	looks [8]look // a ring
	next  int
	n     int
	best  look

	known  bool
	first  int64 // how far the first look, which set the offset, may have been off
	offset int64 // the fleet's time less our own
	slewed int64 // own time at which offset was right
}

// slewShare is the part of the time that passes by which the fleet's time slews at the most.
const slewShare = 40

// look is one comparison: the store's time less our own, right to ± half the round trip.
type look struct {
	offset, half int64
}

// slack is how far two clocks may drift apart over the looks in the ring, in ns.
const slack = 5_000_000

// observe adds a look: the store said theirs at some instant between own times sent and got.
func (c *fleetClock) observe(sent, got, theirs int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	half := max(got-sent, 0) / 2
	l := look{offset: theirs - (sent + half), half: half}
	if c.n > 0 && abs(l.offset-c.best.offset) > l.half+c.best.half+slack {
		c.n = 0 // both cannot be right: one of the clocks was set
	}
	c.looks[c.next] = l
	c.next = (c.next + 1) % len(c.looks)
	c.n = min(c.n+1, len(c.looks))
	c.best = l
	for i := 1; i <= c.n; i++ {
		// Newest first, so that of equals the newest wins.
		if o := c.looks[(c.next-i+len(c.looks))%len(c.looks)]; o.half < c.best.half {
			c.best = o
		}
	}
	if !c.known {
		c.known, c.first, c.offset, c.slewed = true, c.best.half, c.best.offset, got
	}
}

// fleet converts own time to the fleet's.
func (c *fleetClock) fleet(now int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if most := (now - c.slewed) / slewShare; most > 0 {
		c.offset += min(max(c.best.offset-c.offset, -most), most)
		c.slewed = now
	}
	return now + c.offset
}

// error is how far the fleet's time may be off by what this worker knows of it: half of the best
// look's round trip, and what it has not made good yet of the first one's. That the store's clock
// was set is no error: all workers slew there alike.
func (c *fleetClock) error() int64 {
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
