package permit

import (
	"math"
	"time"

	"github.com/offpath-io/offpath/pkg/window"
)

// demand is an estimate of how many permits one key will need until a renewal could be there, which
// is a *horizon* away. What was asked for within the last horizon is expected of the next one. If
// less is asked for then, the expectation fades, slowly enough to outlast a lull between two hits.
type demand struct {
	asked    int64   // hits charged or refused since the last measurement
	refused  int64   // the greatest cost refused since the last request, unless that is long ago
	refusal  int64   // fleet time of the last refusal
	sent     int64   // refused, as the last request named it
	near     float64 // hits within about the last horizon
	expected float64 // hits within the next one
	recent   float64 // hits within about the time for which permits may lie idle
	measured int64   // fleet time of the last measurement
	low      int64   // with no more permits left than this, it is time to ask for more
	level    int64   // how many it would be good to hold then
}

// hotFrom is how many hits there must be in the time for which permits may lie idle, so that more
// are asked for before they are needed. A single hit foretells no other: permits would be returned.
const hotFrom = 2

// fading is how fast an expectation fades without demand: to 37 % within this time.
const fading = 100 * time.Millisecond

// lead is how much longer than a round trip permits should last: requests leave at least 1 ms
// apart, and the step that sends one may be as late.
const lead = 3 * time.Millisecond

// measure brings the expectation up to date. unseen are refused hits that asked does not hold, idle
// is for how long permits may lie idle.
func (d *demand) measure(now, unseen int64, trip, idle time.Duration, share int64) {
	horizon := float64(trip + lead)
	passed := float64(max(now-d.measured, 1))
	asked := float64(d.asked + unseen)
	d.near = d.near*math.Exp(-passed/horizon) + asked*min(1, horizon/passed)
	d.expected = max(d.near, d.expected*math.Exp(-passed/float64(fading)))
	d.recent = d.recent*math.Exp(-passed/float64(idle)) + asked
	d.asked, d.measured = 0, now
	d.low, d.level = 0, 0
	if d.hot() {
		// Those that come must last for a horizon, and a round trip passes until then.
		d.level = min(whole(d.expected*(1+float64(trip)/horizon)), share)
		d.low = min(whole(d.expected*float64(trip+lead/3)/horizon), d.level-1)
	}
	if now-d.refusal > int64(idle) { // a permit would not be waited for any more
		d.refused = 0
	}
}

// hot says whether permits are asked for before they are needed.
func (d *demand) hot() bool { return d.recent >= hotFrom }

// wanted is how many permits it would be good to hold: for those who wait, for what was refused,
// and for what is expected.
func (d *demand) wanted(waiting int64) int64 { return max(d.refused, d.sent, waiting, d.level) }

// whole rounds up, to at most what can be counted.
func whole(hits float64) int64 { return int64(math.Ceil(min(hits, float64(window.MaxCount)))) }
