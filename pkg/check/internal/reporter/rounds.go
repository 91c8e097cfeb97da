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

// judgeFreshness sets the degradation level by the time without messages from aggregators. *Fresh*
// decides by totals from aggregators, and by a forecast of the hits that others admit. *Stale* does
// the same, but the forecast fades. *Local share* keeps own hits within the limit divided by the
// last known number of checkers. *Outage* follows rules with rules.Open or rules.Closed on outage;
// other rules keep to the local share. The first message from an aggregator makes the checker fresh
// at once.
func (r *Reporter) judgeFreshness(now int64) {
	o := &r.o
	f := fleetstate.Fresh
	switch silence := now - r.lastContact; {
	case r.lastContact == 0 && o.ExpectCheckers > 1:
		f = fleetstate.LocalShare
	case r.lastContact == 0:
		f = fleetstate.Local
	case silence > int64(o.OutageAfter):
		f = fleetstate.Outage
	case silence > int64(o.ShareAfter):
		f = fleetstate.LocalShare
	case silence > int64(o.StaleAfter):
		f = fleetstate.Stale
	}
	r.host.Fresh.Store(uint32(f))
}

// noteContact records that an aggregator has sent a message.
func (r *Reporter) noteContact(now int64) {
	r.lastContact = now
	r.judgeFreshness(now)
}

const (
	// mostWaits bounds the back-off of repeats, in multiples of Tuning.ReportTimeout.
	mostWaits     = 8
	manyTrips     = 8
	leastPatience = 25 * time.Millisecond
)
