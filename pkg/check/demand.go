package check

import (
	"math"
	"time"
)

// demand is how many permits one key is likely to need until a renewal could be there. What was asked for
// within the last such while is expected of the next one; if less is asked for then, the expectation fades.
type demand struct {
	asked    int64   // hits charged or refused since the last measurement
	refused  int64   // the greatest cost refused since the last request was made
	sent     int64   // the same, which that request speaks of
	expected float64 // hits within a horizon
	measured int64   // fleet time of the last measurement
	low      int64   // with no more permits left than this, it is time to ask for more
}

// hot is the expectation from which on permits are asked for before they are needed: a single hit does not
// foretell another.
const hot = 2

// fading is how fast an expectation fades without demand: to 37 % within this time.
const fading = 100 * time.Millisecond

// lead is how much longer than a round trip permits should last: an aggregator gathers requests for about
// 1 ms, and a checker sends them at least so far apart.
const lead = 5 * time.Millisecond

// measure brings the expectation up to date. unseen are hits refused that asked does not hold, trip is what
// a round trip takes.
func (d *demand) measure(now, unseen int64, trip time.Duration) {
	horizon := float64(trip + lead)
	passed := float64(max(now-d.measured, 1))
	asked := float64(d.asked+unseen) * min(1, horizon/passed)
	d.expected = max(asked, d.expected*math.Exp(-passed/float64(fading)))
	d.asked, d.measured = 0, now
	d.low = 0
	if d.expected >= hot {
		d.low = int64(math.Ceil(d.expected * float64(trip+lead/5) / horizon))
	}
}

// wanted is how many permits it would be good to hold; waiting are those that waiters need.
func (d *demand) wanted(waiting int64) int64 {
	want := max(d.refused, d.sent, waiting)
	if d.expected >= hot {
		want = max(want, int64(math.Ceil(min(d.expected, 1e15))))
	}
	return want
}
