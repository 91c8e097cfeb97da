package fleetstate

import (
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/forecast"
)

// The rounds that a check can ask for.
const (
	NextFast uint32 = 1 << iota
	NextNormal
	NextFull
	AtOnce // in no round
)

const (
	// After a round's first update, the last one may come later by updateTrail, while aggregators
	// gather reports, and by the time between two alarms: soonestUpdate, or trailPerChecker for
	// each checker if that is more. All are in ns.
	updateTrail, soonestUpdate, trailPerChecker = int64(2e6), int64(4e6), int64(10e3)
)

// Want asks for a flush in the next round of this kind. It does not block.
func (s *State) Want(round uint32) {
	if s.Rounds.Wanted.Load()&round == 0 && s.Rounds.Wanted.Or(round)&round == 0 {
		s.WakeUp()
	}
}

// ForecastFleet returns the state of the fleet in the form that forecasts use.
func (s *State) ForecastFleet() forecast.Fleet {
	n := max(s.Size.Load(), 1)
	return forecast.Fleet{
		Checkers: float64(n), FastInterval: max(s.Rounds.Fast.Load(), 1),
		Trail: updateTrail + max(soonestUpdate, n*trailPerChecker),
	}
}

// UpdateFastInterval computes the time between fast rounds, stores it as Rounds.Fast, and returns
// it: the smallest power of two of milliseconds in which a report can be answered. So a report is
// answered before the next round, and checkers with different round trips still have common rounds.
// With OnTimerOnly it returns FlushEvery, and stores nothing.
func (s *State) UpdateFastInterval() int64 {
	if s.OnTimerOnly() {
		return int64(s.Config.FlushEvery)
	}
	r := &s.Rounds
	t := int64(1e6)
	for t < max(int64(s.Config.FlushFloor), r.Trip.Load()) {
		t *= 2
	}
	r.Fast.Store(t)
	return t
}

// UpdateNormalInterval computes the time between normal rounds, stores it as Rounds.Normal, and
// returns it: the fast interval, which it updates too, doubled as often as the result fits
// FlushEvery.
func (s *State) UpdateNormalInterval() int64 {
	t := s.UpdateFastInterval()
	for 2*t <= int64(s.Config.FlushEvery) {
		t *= 2
	}
	s.Rounds.Normal.Store(t)
	return t
}

// NoteFlush records how long after the one before a flush comes, in ns.
func (s *State) NoteFlush(after int64) {
	apart := &s.Rounds.Apart
	apart.Store(apart.Load() + (after-apart.Load())/16)
}

// FlushesInEachFast returns whether this checker flushes in about every fast round, for whatever
// keys. Other checkers of much traffic then do, too, so these rounds are complete for all keys:
// hits of others that one of them does not bring have not been admitted.
func (s *State) FlushesInEachFast() bool {
	return s.Rounds.Apart.Load() < s.Rounds.Fast.Load()*9/8
}

// OnTimerOnly returns whether flushes come only when the timer fires, never earlier.
func (s *State) OnTimerOnly() bool { return s.Config.FlushFloor == s.Config.FlushEvery }

// LeaseRoundTrip returns about how long a lease request takes.
func (s *State) LeaseRoundTrip() time.Duration {
	if t := s.leaseTrip.Load(); t != 0 {
		return time.Duration(t)
	}
	return usualTrip
}

// Soon returns how long a denied caller should wait before it asks again, if there is no better
// estimate.
func (s *State) Soon() time.Duration { return s.LeaseRoundTrip() + 2*time.Duration(LeaseFloor) }

// NoteLeaseTrip records how long a lease request has taken, in ns.
func (s *State) NoteLeaseTrip(took int64) {
	old := s.leaseTrip.Load()
	if old == 0 {
		old = took
	}
	s.leaseTrip.Store(max(old+(took-old)/8, 1))
}

const (
	// LeaseFloor is the least time between two lease requests of a shard.
	LeaseFloor = time.Millisecond
	// usualTrip stands for the round trip until the first has been measured.
	usualTrip = 2 * time.Millisecond
)
