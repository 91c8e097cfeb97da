// Package fleetstate holds a checker's knowledge of the fleet: its time, its size, how current that
// knowledge is, and the rounds in which all checkers report.
//
// The reporter learns these from aggregators and writes them here; decisions read them, without a
// lock. The options that both need are here, too.
package fleetstate

import (
	"sync/atomic"
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/fleetclock"
	"github.com/offpath-io/offpath/pkg/identity"
)

// State is a checker's knowledge of itself, of the fleet and of time. Any goroutine may use it,
// except for fields that the reporter's lock guards.
type State struct {
	Config Config
	Clock  fleetclock.Clock

	worst   atomic.Uint32                         // of the shards' freshness; see differ
	levels  atomic.Pointer[[]atomic.Uint32]       // the freshness of each shard
	refused atomic.Pointer[map[Refused]Freshness] // of rules whose reports are refused
	count   [Outage + 1]int                       // shards by freshness; of those who set it
	// Size is the number of live checkers, for forecasts and permits: as last told, or as expected
	// if that is more. It is 0 before the first welcome, and then at least 2 until a number is
	// told.
	Size     atomic.Int64
	told     atomic.Bool
	LiveKeys atomic.Int64 // counters in the table
	// Unmatched counts the requests that no rule matched.
	Unmatched atomic.Int64

	Rounds    rounds
	Wake      chan struct{} // of capacity 1; full if an early step is wanted
	leaseTrip atomic.Int64  // ns that a lease request takes, smoothed; 0 before the first answer
}

// Config is the part of a checker's options that counters need.
type Config struct {
	MaxLiveKeys          int64
	Epoch                uint64
	ExpectCheckers       int64 // the least size of the fleet
	Local                bool  // the checker has no link, so there is no fleet
	DenyUnmatched        bool  // requests that no rule matches
	NoForecast           bool
	FlushEvery           time.Duration
	FlushFloor, QuietFor time.Duration
	Now                  func() time.Time                        // own time; nil: the system's
	KeyHash              *identity.Hasher                        // nil: keys are as they are
	OnDenied             func(rule, key string, decisions int64) // may be nil
}

// rounds are the moments of the fleet's time at which every checker reports its hits of keys with a
// forecast. So an answer's totals are complete up to that moment, and all other hits came later,
// here and elsewhere. *Fast* rounds are as close to each other as a report's round trip allows.
// Keys that are not urgent are reported in *normal* rounds, which are fewer. Denied hits alone wait
// for a *full* round.
type rounds struct {
	Wanted atomic.Uint32 // the rounds that checks have asked for; bits
	Fast   atomic.Int64  // ns between fast rounds
	Normal atomic.Int64  // ns between normal ones

	// Trip is the smoothed time in ns from a report to its answer. The reporter's lock guards
	// writes.
	Trip atomic.Int64
	// Apart is the smoothed time in ns from a flush to the next one. The reporter's lock guards
	// writes.
	Apart atomic.Int64
}

// Init initializes the state. It is called once, before anything else.
func (s *State) Init(config Config) {
	s.Config = config
	s.Wake = make(chan struct{}, 1)
	s.SetShards(1, Local)
	s.Rounds.Apart.Store(int64(config.FlushEvery))
}

// WakeUp makes the reporter take a step soon. It does not block.
func (s *State) WakeUp() {
	select {
	case s.Wake <- struct{}{}:
	default:
	}
}

// Crowded returns whether the table is so full that idle counters should leave.
func (s *State) Crowded() bool { return s.LiveKeys.Load() > s.Config.MaxLiveKeys*3/4 }

// NoteSize records how many checkers a welcome says there are; 0 if its aggregator does not know
// yet. One goroutine calls it at a time.
func (s *State) NoteSize(checkers int64) {
	switch {
	case checkers > 0:
		s.Size.Store(max(checkers, s.Config.ExpectCheckers))
		s.told.Store(true)
	case !s.told.Load():
		s.Size.Store(max(assumedCheckers, s.Config.ExpectCheckers))
	}
}

// assumedCheckers is for forecasts, until a number is told: a checker is hardly ever alone, and one
// that is finds out by its own reports. Shares of a limit are not reckoned by an assumption.
const assumedCheckers = 2

// KnownCheckers returns the size of the fleet, this checker included, as last told or expected; 0
// if it is neither.
func (s *State) KnownCheckers() int64 {
	if s.told.Load() {
		return s.Size.Load()
	}
	return s.Config.ExpectCheckers
}

// Checkers returns the same, at least 1.
func (s *State) Checkers() int64 { return max(s.KnownCheckers(), 1) }
