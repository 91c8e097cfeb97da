package reporter

import (
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/fleetstate"
	"github.com/offpath-io/offpath/pkg/check/internal/forecast"
)

// hurry brings the next flush forward to the next fast round, and wakes Run.
func (r *Reporter) hurry() {
	if !r.host.OnTimerOnly() {
		r.flushBy(r.now, r.host.UpdateFastInterval())
		r.host.WakeUp()
	}
}

// early brings the next flush forward to the earliest round that checks want.
func (r *Reporter) early(now int64) {
	switch wanted := r.host.Rounds.Wanted.Load(); {
	case wanted == 0 || r.host.OnTimerOnly():
	case wanted&fleetstate.AtOnce != 0:
		r.flushBy(now, 1)
	case wanted&fleetstate.NextFast != 0:
		r.flushBy(now, r.host.UpdateFastInterval())
	case wanted&fleetstate.NextNormal != 0:
		r.flushBy(now, r.host.UpdateNormalInterval())
	default:
		r.flushBy(now, forecast.FullInterval)
	}
}

// flushBy brings the next flush forward to the next multiple of round, in the fleet's time, that
// the floor allows.
func (r *Reporter) flushBy(now, round int64) {
	// Steps come a little after they are due: half of the floor is far enough from the last flush.
	at := max(now, r.lastFlush+int64(r.o.Tuning.FlushFloor)/2)
	clock := &r.host.Clock
	r.nextFlush = min(r.nextFlush, clock.Own(roundUp(clock.Fleet(at), round)))
}

func roundUp(n, multiple int64) int64 { return (n + multiple - 1) / multiple * multiple }

// patience returns the first time-out of a report: the time of several answers, so that others soon
// learn of the hits of a lost report. When a report was repeated, it is not known which sending was
// answered. If two repeated reports in a row have taken about as long in all, answers have probably
// become slower, and the time-out becomes so long that they can be measured again; lost reports
// take a different time each time.
func (r *Reporter) patience() time.Duration {
	timeout, trip := r.o.Tuning.ReportTimeout, time.Duration(r.host.Rounds.Trip.Load())
	if trip == 0 {
		return timeout
	}
	// In an outage, answers take any time: this bounds the time-out.
	longest := min(r.trips.longest+r.trips.longest/4, mostWaits*timeout)
	return max(longest, 2*trip, min(timeout, max(manyTrips*trip, leastPatience)))
}

const (
	// mostWaits bounds the back-off of repeats, in multiples of Tuning.ReportTimeout.
	mostWaits     = 8
	manyTrips     = 3
	leastPatience = 25 * time.Millisecond
)
