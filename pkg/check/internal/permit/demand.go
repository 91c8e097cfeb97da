package permit

import (
	"math"
	"time"

	"github.com/offpath-io/offpath/pkg/window"
)

// demand estimates how many permits one key will need within a *horizon*: the time until more
// permits could arrive. It expects as many hits within the next horizon as within the last one. If
// there are fewer, the expectation fades, slowly enough to outlast a pause between two hits.
type demand struct {
	asked    int64   // hits charged or refused since the last measurement
	refused  int64   // the greatest cost refused since the last request, unless that is long ago
	refusal  int64   // fleet time of the last refusal
	sent     int64   // refused, as in the last request
	near     float64 // hits within about the last horizon
	expected float64 // hits within the next one
	recent   float64 // hits within about the time for which permits may lie idle
	measured int64   // fleet time of the last measurement
	low      int64   // with no more permits left than this, it is time to ask for more
	level    int64   // how many permits to hold then
}

// hotFrom is how many hits there must be in the time for which permits may be idle, so that permits
// are asked for before they are needed. After a single hit, such permits would often be returned
// unused.
const hotFrom = 2

// fading is how fast an expectation fades without demand: to 37 % within this time.
const fading = 100 * time.Millisecond

// lead is how much longer than a round trip permits should last: requests leave at least 1 ms
// apart, and the step that sends one may be as late.
const lead = 3 * time.Millisecond

// measure updates the estimate. unseen are refused hits that are not in asked; idle is for how long
// permits may be idle.
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
		// New permits must last for a horizon, and arrive only after a round trip.
		d.level = min(whole(d.expected*(1+float64(trip)/horizon)), share)
		d.low = min(whole(d.expected*float64(trip+lead/3)/horizon), d.level-1)
	}
	if now-d.refusal > int64(idle) { // too long ago to ask for a permit for it
		d.refused = 0
	}
}

// hot returns whether permits are asked for before they are needed.
func (d *demand) hot() bool { return d.recent >= hotFrom }

// wanted returns how many permits to hold: for callers that wait, for refused hits, and for
// expected ones.
func (d *demand) wanted(waiting int64) int64 { return max(d.refused, d.sent, waiting, d.level) }

// whole rounds up, to at most the largest count.
func whole(hits float64) int64 { return int64(math.Ceil(min(hits, float64(window.MaxCount)))) }
