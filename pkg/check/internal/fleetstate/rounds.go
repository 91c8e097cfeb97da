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
)

const (
	// updateTrail and trailPerChecker make up how long after a round's first update the last one
	// may come: aggregators wait for reports, and between alarms.
	updateTrail, soonestUpdate, trailPerChecker = int64(2e6), int64(4e6), int64(10e3)
)

// Want asks for a flush in the next round of some kind. It does not wait.
func (s *State) Want(round uint32) {
	if s.Rounds.Wanted.Load()&round == 0 && s.Rounds.Wanted.Or(round)&round == 0 {
		s.WakeUp()
	}
}

// ForecastFleet is what forecasts must know about the fleet.
func (s *State) ForecastFleet() forecast.Fleet {
	n := max(s.Size.Load(), 1)
	return forecast.Fleet{
		Checkers: float64(n), FastInterval: max(s.Rounds.Fast.Load(), 1),
		Trail: updateTrail + max(soonestUpdate, n*trailPerChecker),
	}
}

// FastInterval is the time between fast rounds: the smallest power of two of milliseconds in which
// a report can be answered. So a report is out of the way at the next round, and checkers of
// different round trips still meet.
func (s *State) FastInterval() int64 {
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

// NormalInterval is the time between normal rounds.
func (s *State) NormalInterval() int64 {
	t := s.FastInterval()
	for 2*t <= int64(s.Config.FlushEvery) {
		t *= 2
	}
	s.Rounds.Normal.Store(t)
	return t
}

// OnTimerOnly says whether early flushes are forbidden.
func (s *State) OnTimerOnly() bool { return s.Config.FlushFloor == s.Config.FlushEvery }

// LeaseRoundTrip is about what a request takes.
func (s *State) LeaseRoundTrip() time.Duration {
	if t := s.leaseTrip.Load(); t != 0 {
		return time.Duration(t)
	}
	return usualTrip
}

// Soon is when asking again may help, if nothing better is known.
func (s *State) Soon() time.Duration { return s.LeaseRoundTrip() + 2*time.Duration(LeaseFloor) }

// NoteLeaseTrip takes in how long a lease request has taken, in ns.
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
