// Package counter holds what a checker knows of each key, and decides by it.
//
// A [Counter] has the hits of one key under one rule: per time bucket a total, and the part of it
// that is pending, which is in no report yet. A [Group] is all counters of one rule, and a [Host]
// all groups of one checker, with the [Table] that holds the counters. What few keys need is beside
// the counts, and nil for the others: a level (token and leaky buckets), a forecast (keys near their
// limit), refunds (settlements), permits (strict enforcement).
//
// A check goes through three steps. [Counter.Take] takes a hit off the *allowance* that an earlier
// check has left, without a lock; most checks end there. Otherwise [Counter.Lock] gives a [Locked]
// counter, and a [Hit] decides with it: Consider finds out whether the hit may pass, then Charge or
// Deny changes the counts, and leaves the next allowance.
//
// The package reporter moves hits on. [Locked.Room] and all that needs the lock is a method of
// Locked; [Counter.Flush], [Counter.ObserveAnswer] and [Group.ObserveAlarm] take the lock
// themselves. A counter is *current* after [Locked.CatchUp]: its allowance is withdrawn, and its
// newest bucket is that of now. [Host.Evict] removes counters that are of no use any more.
//
// Nothing here does I/O. Every method is a function of the time that it is given.
package counter

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/dgraph-io/ristretto/v2"

	"github.com/offpath-io/offpath/pkg/check/internal/fleetclock"
	"github.com/offpath-io/offpath/pkg/check/internal/permit"
	"github.com/offpath-io/offpath/pkg/check/internal/queue"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/window"
)

// Host is what all counters of a checker share: the table that holds them, the time, how fresh
// what is known of the fleet is, and the queues to whoever carries their hits away.
type Host struct {
	Config Config
	Clock  fleetclock.Clock
	Table  Table
	// fresh is a freshness, and fleet the number of live checkers, as the last welcome said.
	Fresh     atomic.Uint32
	Fleet     atomic.Int64
	LiveKeys  atomic.Int64 // counters in the table
	stripe    atomic.Uint32
	dirty     [stripes]stack // counters with hits that no flush has seen yet
	Asks      askStack       // counters that ask for permits
	leaseTrip atomic.Int64   // ns that a lease request takes, smoothed; 0 before the first answer
	Idle      idleCounters
	// Whoever flushes guards these.
	Ageing    evictionQueues
	deferrals queue.Heap[*Group] // groups with deferred counters, by when the first deferral ends
	Rounds    rounds
	Lates     groups        // with late hits that no flush has seen yet
	Revived   groups        // used after they had been let go
	Wake      chan struct{} // an early flush is wanted
}

// Config is what a checker's options say to its counters.
type Config struct {
	MaxLiveKeys          int64
	Epoch                uint64
	ExpectCheckers       int64 // assumed until the fleet is known
	Local                bool  // there is no fleet
	NoForecast           bool
	FlushEvery           time.Duration
	FlushFloor, QuietFor time.Duration
	Now                  func() time.Time                        // own time; nil: the system's
	KeyHash              *identity.Hasher                        // nil: keys are as they are
	OnDenied             func(rule, key string, decisions int64) // may be nil
}

// groups are a list that any goroutine adds to.
type groups struct {
	mu   sync.Mutex
	list []*Group
}

// Group is the counters of one limiter, and what they have in common.
type Group struct {
	Host   *Host
	salt   uint64  // sets this group's keys apart in the table
	Strict *strict // nil unless it spends only permits
	Shape  window.Shape

	Name       string                 // the rule's
	Limits     atomic.Pointer[Limits] // what the limiter decides by at present
	Live       int                    // buckets that a window can touch, and of what drains some more
	FullRounds int64                  // see forecast.FullIntervals

	Cells   atomic.Int64 // in the table
	Retired atomic.Bool  // its rule is not in force
	Away    atomic.Bool  // it has been let go, see retired.go
	Refunds atomic.Bool  // there may be refunds to ask for
	Settles atomic.Bool  // a receipt of its hits may have been made here
	// changed is the number of the install at which its counters had last to be adjusted.
	Changed uint64

	Tallies [stripes]tally
	Late    atomic.Int64 // hits that left every window pending, to be reported so

	Cancelled    atomic.Int64 // hits of reservations that were given back
	FalseDenials atomic.Int64 // decisions, see forecast.FalseDenials

	Owed ReportState
	// deferred are its deferred counters, by when their deferral ends; whoever flushes guards them.
	deferred queue.FIFO[aged]
}

// tally are one stripe of a limiter's counts.
type tally struct {
	Allowed, Denied atomic.Int64 // decisions
	// Hits charged beyond one for each decision that allowed, which most cost.
	Further atomic.Int64
	_       [40]byte // keep the next stripe on another cache line
}

// aged is a counter that may leave, and when to look at it.
type aged struct {
	counter *Counter
	Due     int64 // fleet time
}

// ReportState is what behind keeps of a limiter, under its lock.
type ReportState struct {
	Build          uint64     // the report that the indices belong to
	Index          [Kinds]int // of the rule in that report, by kind of hits; -1 if it is not there
	QueuedLate     bool       // in its shard's list of late limiters
	Answered, Lost int64      // hits
	InFlight       int64
}

// A Counter is what this checker knows of one key under one rule.
//
// Per bucket it has two numbers: the *total*, which is base + in flight + pending, and the part of
// it that is *pending*. That is enough, because a checker has one report in flight per shard: when
// an answer says that the fleet's total is T, everything this counter ever took out of pending is
// in T, so the new total is max(old total, T + pending). For an alarm, which may or may not contain
// the report in flight, the same formula gives a floor. Own hits are in the total from the moment
// they are admitted and no message takes them out.
//
// Most checks do not take the lock: a check that does leaves behind an *allowance*, the number of
// hits that may still pass in this bucket, already added to total and pending; the next checks only
// take hits off it. The estimate falls as time passes and rises only by a merge, so an allowance
// stays right until the bucket ends or a merge withdraws it. Whoever takes the lock first withdraws
// the allowance (withdraw) and so sees exact numbers.
type Counter struct {
	Allowance atomic.Uint64 // see allowance
	Until     atomic.Int64  // when the allowance ends, or the block; fleet time
	Group     *Group
	long      *byte         // the key's text, if it is longer than short; never changes
	Beyond    atomic.Uint32 // how many hits there was room for beyond the allowance; raised, if its limits were
	length    uint16        // of the key's text
	short     [18]byte
	mu        sync.Mutex

	// The first cache line ends here: a check that passes without the lock reads nothing below.

	next       *Counter      // in a dirty stack
	Newest     int64         // bucket of totals()[0] and pending()[0]
	active     atomic.Uint32 // when last reported or denied, in ticks
	generation uint8         // which of the shard's generations the base is of
	State      uint8         // see the state constants
	Stripe     uint8         // which dirty stack and counters it uses; never changes
	overflow   bool          // the store has no room for the key, and nobody but this checker counts its hits
	more       *more         // nil for most
	inline     [4]int64
}

// strictCounter is the memory of a strict limiter's counter. It keeps the permits out of all other
// counters, which fill two cache lines exactly.
type strictCounter struct {
	Counter
	permits permit.Account
	next    *Counter // in the stack of counters that ask
}

// strict is what a limiter under strict enforcement has beside the rest.
type strict struct {
	// forgotten is the newest bucket of which a counter that has left the live map had been granted
	// permits. How many it had spent is unknown, and all are taken to be.
	Forgotten atomic.Int64

	// By the reporter's lock: the request that index belongs to, and the rule's index in it.
	Build uint64
	Index int
}

// stack holds counters that have become dirty, newest first. Any goroutine pushes; a flush takes
// all.
type stack struct {
	head atomic.Pointer[Counter]
	_    [56]byte // keep the next stack on another cache line
}

// rounds are the moments of the fleet's time at which all checkers report the keys that are near
// their limit, each if it has hits of them. Then an answer's totals are complete up to that moment,
// and all other hits came since, here and elsewhere. *Fast* rounds are as close to each other as a
// report's round trip allows. A key that needs no haste is reported in *normal* rounds, every so
// many fast ones. Denied hits alone wait for a *full* round.
type rounds struct {
	Wanted atomic.Uint32 // the round that some check waits for; bits
	Fast   atomic.Int64  // ns between fast rounds
	Normal atomic.Int64  // ns between normal ones

	// trip is how long an answer takes, lately; written under the reporter's lock.
	Trip atomic.Int64
}

// idleCounters holds counters that have left the live map, by the hash of rule and key; a reader
// makes sure that it got the right one. It is there while Run is at work. The lock is for its end:
// a check that comes just then does not wait for it, and does without.
type idleCounters struct {
	mu    sync.RWMutex
	Cache *ristretto.Cache[uint64, *Counter]
}

// evictionQueues are queues, each in the order of due: counters that were never looked at, and
// counters that were not empty when they were, by how long after that they are looked at again.
// That is as long as can be before they are empty, if nothing else comes, of laterLook, twice, four
// times that and so on: so an idle counter of a long window is looked at a few times, not every so
// often. Forecasts, which take more memory than their counters, have a queue of their own: a
// counter that waits for a day can come near its limit meanwhile, and be idle again.
type evictionQueues struct {
	Fresh     queue.FIFO[aged]
	Known     [LaterLooks]queue.FIFO[aged]
	forecasts queue.FIFO[agedForecast]
}

// agedForecast is the forecast of an ageing counter, as long as it has this one.
type agedForecast struct {
	aged
	ahead *Forecast
}

// askStack holds counters that ask, newest first. Any goroutine pushes.
type askStack struct{ Head atomic.Pointer[Counter] }

// stripes is the number of dirty stacks, and of copies of each limiter's counters: enough that
// cores seldom meet on one.
const stripes = 16

// more is what few counters have.
type more struct {
	counts []int64   // totals, newest first, then pending, where inline is too short
	ahead  *Forecast // of a key near its limit
	// What was given back per bucket, newest first, and memory for net; nil for most.
	refunded, net []int64
	asks          bool // for refunds, with the next report

	drained *levelState // of a key that has a level
}

const (
	// firstLook is how long after its last report was answered a counter is looked at, and
	// laterLook how long after that at the least.
	firstLook = 5 * time.Second
	laterLook = 30 * time.Second
	// LaterLooks is enough for the longest window.
	LaterLooks = 21
	// silentBlock is how long a blocked key must have been silent before it may make room for
	// others: a blocked key that still sends stays blocked.
	silentBlock = 10 * time.Second
	// silentForecast is how long a counter has been silent when it goes without its forecast,
	// whenever it is looked at. Where it is looked at every laterLook, that does so before.
	silentForecast = firstLook + laterLook
	// looksAtOnce bounds the counters looked at in one step, and so how long the lock is held.
	looksAtOnce = 4096
)

func (s *stack) push(c *Counter) {
	for {
		head := s.head.Load()
		c.next = head
		if s.head.CompareAndSwap(head, c) {
			return
		}
	}
}
