package check

import (
	"sync/atomic"
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/forecast"
)

// rounds are the moments of the fleet's time at which all checkers report the keys that are near
// their limit, each if it has hits of them. Then an answer's totals are complete up to that moment,
// and all other hits came since, here and elsewhere. *Fast* rounds are as close to each other as a
// report's round trip allows. A key that needs no haste is reported in *normal* rounds, every so
// many fast ones. Denied hits alone wait for a *full* round.
type rounds struct {
	wanted atomic.Uint32 // the round that some check waits for; bits
	fast   atomic.Int64  // ns between fast rounds
	normal atomic.Int64  // ns between normal ones

	// Kept under the reporter's lock.
	trip    int64         // how long an answer takes, lately
	took    int64         // from the first sending to the answer, of the last repeated report
	longest time.Duration // the same, if it was the case twice in a row
}

const (
	manyTrips     = 8
	leastPatience = 25 * time.Millisecond
)

// The rounds that a check can ask for.
const (
	nextFast uint32 = 1 << iota
	nextNormal
	nextFull
)

const (
	// updateTrail and trailPerChecker make up how long after a round's first update the last one
	// may come: aggregators wait for reports, and between alarms.
	updateTrail, soonestUpdate, trailPerChecker = int64(2e6), int64(4e6), int64(10e3)
)

// want asks for a flush in the next round of some kind. It does not wait.
func (c *Checker) want(round uint32) {
	if c.rounds.wanted.Load()&round == 0 && c.rounds.wanted.Or(round)&round == 0 {
		c.wakeUp()
	}
}

// fleet is what forecasts must know about the fleet.
func (r *rounds) fleet(c *Checker) forecast.Fleet {
	n := max(c.fleet.Load(), 1)
	return forecast.Fleet{
		Checkers: float64(n), FastInterval: max(r.fast.Load(), 1),
		Trail: updateTrail + max(soonestUpdate, n*trailPerChecker),
	}
}

// early brings the next flush forward to the round that is wanted first.
func (b *reporter) early(now int64) {
	switch wanted := b.checker.rounds.wanted.Load(); {
	case wanted == 0 || b.onTimerOnly():
	case wanted&nextFast != 0:
		b.flushBy(now, b.fastInterval())
	case wanted&nextNormal != 0:
		b.flushBy(now, b.normalInterval())
	default:
		b.flushBy(now, forecast.FullInterval)
	}
}

// flushBy brings the next flush forward to the next multiple of round, in the fleet's time, that
// the floor allows.
func (b *reporter) flushBy(now, round int64) {
	// Steps come a little after the moment that they are for: half of a floor is far enough from
	// the last.
	at := max(now, b.lastFlush+int64(b.checker.o.Tuning.FlushFloor)/2)
	clock := &b.checker.clock
	b.nextFlush = min(b.nextFlush, clock.Own(roundUp(clock.Fleet(at), round)))
}

func roundUp(n, multiple int64) int64 { return (n + multiple - 1) / multiple * multiple }

// fastInterval is the time between fast rounds: the smallest power of two of milliseconds in which
// a report can be answered. So a report is out of the way at the next round, and checkers of
// different round trips still meet.
func (b *reporter) fastInterval() int64 {
	if b.onTimerOnly() {
		return int64(b.checker.o.FlushEvery)
	}
	r := &b.checker.rounds
	t := int64(1e6)
	for t < max(int64(b.checker.o.Tuning.FlushFloor), r.trip) {
		t *= 2
	}
	r.fast.Store(t)
	return t
}

// normalInterval is the time between normal rounds.
func (b *reporter) normalInterval() int64 {
	t := b.fastInterval()
	for 2*t <= int64(b.checker.o.FlushEvery) {
		t *= 2
	}
	b.checker.rounds.normal.Store(t)
	return t
}

// onTimerOnly says whether early flushes are forbidden.
func (b *reporter) onTimerOnly() bool { return b.checker.o.Tuning.FlushFloor == b.checker.o.FlushEvery }

// patience is how long a report waits for its answer before it is sent again for the first time: as
// long as several answers take, so that others do not miss a lost report's hits for longer than
// they must. When a report was repeated it is not known which sending was answered. If that has
// taken as long in all twice in a row, answers have probably become slower, and are waited for so
// long that they can be measured again; what is lost takes a different time each time.
func (r *rounds) patience(timeout time.Duration) time.Duration {
	if r.trip == 0 {
		return timeout
	}
	trip := time.Duration(r.trip)
	// In an outage all answers take as long as the bound.
	longest := min(r.longest+r.longest/4, mostWaits*timeout)
	return max(longest, 2*trip, min(timeout, max(manyTrips*trip, leastPatience)))
}

// answered notes how long the answer to a report that was sent once took.
func (r *rounds) answered(trip int64) {
	r.longest = 0
	if r.trip == 0 {
		r.trip = trip
	}
	r.trip += (trip - r.trip) / 8
}

// repeated notes when a report that was sent several times was answered: so long after it was sent
// first.
func (r *rounds) repeated(took int64) {
	if off := took - r.took; max(off, -off) <= took/4 {
		r.longest = time.Duration(took)
	}
	r.took = took
}
