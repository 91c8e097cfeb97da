package reporter

import (
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/fleetstate"
	"github.com/offpath-io/offpath/pkg/check/internal/forecast"
)

// hurry brings the next flush forward to the next fast round, and says so to Run.
func (r *Reporter) hurry() {
	if !r.host.OnTimerOnly() {
		r.flushBy(r.now, r.host.FastInterval())
		r.host.WakeUp()
	}
}

// early brings the next flush forward to the round that is wanted first.
func (r *Reporter) early(now int64) {
	switch wanted := r.host.Rounds.Wanted.Load(); {
	case wanted == 0 || r.host.OnTimerOnly():
	case wanted&fleetstate.NextFast != 0:
		r.flushBy(now, r.host.FastInterval())
	case wanted&fleetstate.NextNormal != 0:
		r.flushBy(now, r.host.NormalInterval())
	default:
		r.flushBy(now, forecast.FullInterval)
	}
}

// flushBy brings the next flush forward to the next multiple of round, in the fleet's time, that
// the floor allows.
func (r *Reporter) flushBy(now, round int64) {
	// Steps come a little after the moment that they are for: half of a floor is far enough from
	// the last.
	at := max(now, r.lastFlush+int64(r.o.Tuning.FlushFloor)/2)
	clock := &r.host.Clock
	r.nextFlush = min(r.nextFlush, clock.Own(roundUp(clock.Fleet(at), round)))
}

func roundUp(n, multiple int64) int64 { return (n + multiple - 1) / multiple * multiple }

// patience is how long a report waits for its answer before it is sent again for the first time: as
// long as several answers take, so that others do not miss a lost report's hits for longer than
// they must. When a report was repeated it is not known which sending was answered. If that has
// taken as long in all twice in a row, answers have probably become slower, and are waited for so
// long that they can be measured again; what is lost takes a different time each time.
func (r *Reporter) patience() time.Duration {
	timeout, trip := r.o.Tuning.ReportTimeout, time.Duration(r.host.Rounds.Trip.Load())
	if trip == 0 {
		return timeout
	}
	// In an outage all answers take as long as the bound.
	longest := min(r.trips.longest+r.trips.longest/4, mostWaits*timeout)
	return max(longest, 2*trip, min(timeout, max(manyTrips*trip, leastPatience)))
}

// judgeFreshness steps the checker down the degradation levels as aggregators stay silent. *Fresh*
// decides by what aggregators say and by a forecast of what others admit. *Stale* does the same,
// but the forecast fades. *Local share* keeps own hits within the limit divided by the checkers
// that were last heard of. *Outage* follows the rules that say rules.Open or rules.Closed on
// outage; others keep to the local share. The first message from an aggregator ends all of it at
// once.
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

// noteContact notes that an aggregator is there.
func (r *Reporter) noteContact(now int64) {
	r.lastContact = now
	r.judgeFreshness(now)
}

const (
	// mostWaits bounds the back-off of repeats, in report timeouts.
	mostWaits     = 8
	manyTrips     = 8
	leastPatience = 25 * time.Millisecond
)
