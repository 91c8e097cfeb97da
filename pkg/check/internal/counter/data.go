// Package counter holds what a checker knows about each key, and decides with it.
//
// A [Counter] has the hits of one key under one rule: per time bucket a total, and the part of it
// that is pending, which is in no report yet. A [Group] is all counters of one rule, and a [Host]
// all groups of one checker, with the [Table] that holds the counters. Parts that few keys need are
// beside the counts, and nil for the others: a level (token and leaky buckets), a forecast (keys
// above the forecast threshold), refunds (settlements), permits (strict enforcement).
//
// A check goes through three steps. [Counter.Take] takes a hit off the *allowance* that an earlier
// check has left, without a lock; most checks end there. Otherwise [Counter.Lock] gives a [Locked]
// counter, and a [Hit] decides with it: Consider finds out whether the hit may pass, then Charge or
// Deny changes the counts, and leaves the next allowance.
//
// The package reporter moves hits into reports. Methods that need the lock are methods of Locked,
// such as [Locked.Room]; [Counter.Flush], [Counter.ObserveAnswer] and [Group.ObserveAlarm] take the
// lock themselves. A counter is *current* after [Locked.CatchUp]: its allowance is withdrawn, and
// its newest bucket is that of now. [Host.Evict] removes counters that are no longer needed.
//
// Nothing here does I/O. Only [Group.Now] and the [fleetstate.State] in a Host read the clock:
// everything else is a function of the time that it is given.
package counter

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/fleetstate"
	"github.com/offpath-io/offpath/pkg/check/internal/idle"
	"github.com/offpath-io/offpath/pkg/check/internal/level"
	"github.com/offpath-io/offpath/pkg/check/internal/permit"
	"github.com/offpath-io/offpath/pkg/check/internal/queue"
	"github.com/offpath-io/offpath/pkg/window"
)

// Host is the part that all counters of a checker share: the table that holds them, the time, the
// state of the fleet, and the queues through which counters reach the reporter. Any goroutine may
// use it, except for what the reporter's lock guards.
type Host struct {
	fleetstate.State
	Table  Table
	stripe atomic.Uint32        // of the next counter
	Idle   idle.Cache[*Counter] // of evicted ones, by the hash of rule and key

	forecastCount atomic.Int64 // forecasts in memory

	// Queues to the reporter.
	dirty   [stripes]stack // counters with hits that no flush has seen
	Asks    askStack       // counters that ask for permits
	Lates   groups         // with late hits that no flush has seen
	Revived groups         // released ones that were used again

	Scratch sync.Pool // working memory of checks

	// The reporter's lock guards these.
	Ageing    idle.Queue[*Counter]     // those that may leave
	forecasts queue.FIFO[agedForecast] // those that may be dropped: a forecast takes more memory than its counter
	deferrals queue.Heap[*Group]       // groups with deferred counters, by the end of the first deferral
}

// groups is a list of groups. Any goroutine may add to it.
type groups struct {
	mu   sync.Mutex
	list []*Group
}

// Group is the counters of one rule, or of one inline limit, and what they have in common.
type Group struct {
	Host   *Host
	salt   uint64  // makes the hashes of this group's keys differ from other groups'
	Strict *strict // nil unless the rule is strict
	Shape  window.Shape

	Name       string                 // the rule's
	Limits     atomic.Pointer[Limits] // those in force
	Live       int                    // buckets whose counts a counter keeps
	FullRounds int64                  // see forecast.FullIntervals

	Counters atomic.Int64 // in the table
	Retired  atomic.Bool  // its rule is not in force
	Released atomic.Bool  // only a weak pointer to it is kept
	Refunds  atomic.Bool  // aggregators may know of refunds
	Settles  atomic.Bool  // a receipt of its hits may have been made here
	// Changed is the number of the last change of rules that has to adjust its counters.
	Changed uint64

	Tallies      [stripes]tally
	Late         atomic.Int64 // hits that left every window while they were pending
	Cancelled    atomic.Int64 // hits of reservations that were given back
	FalseDenials atomic.Int64 // decisions, see forecast.FalseDenials

	// The reporter's lock guards these.
	Reports  ReportState
	deferred queue.FIFO[aged] // deferred counters, by the end of their deferral
}

// tally is one stripe of a group's counts.
type tally struct {
	Allowed, Denied atomic.Int64 // decisions
	// Further is the hits charged beyond one for each decision that allowed.
	Further atomic.Int64
	_       [40]byte // keep the next stripe on another cache line
}

// aged is a counter in a queue, and when to look at it.
type aged struct {
	counter *Counter
	Due     int64 // fleet time
}

// ReportState is the reporter's state of a group.
type ReportState struct {
	Build      uint64     // the report that Index belongs to
	Index      [Kinds]int // of the rule in that report, by kind of hits; -1 if it is not there
	QueuedLate bool       // its late hits wait for their report

	InFlight, Answered, Lost int64 // hits
}

// A Counter holds what this checker knows about one key under one rule.
//
// Per bucket it has two numbers: the *total*, which is base + in flight + pending, and the part of
// it that is *pending*. That is enough, because a checker has one report in flight per shard: when
// an answer says that the fleet's total is T, everything this counter ever took out of pending is
// in T, so the new total is max(old total, T + pending). For an alarm, which may or may not contain
// the report in flight, the same formula gives a floor. Own hits are in the total from the moment
// they are admitted, and no message removes them.
//
// Most checks do not take the lock: a check that does leaves behind an *allowance*, the number of
// hits that may still pass in this bucket, already added to total and pending; the next checks only
// take hits off it. The estimate falls as time passes and rises only by a merge, so an allowance
// stays right until the bucket ends or a merge withdraws it. A check that takes the lock withdraws
// the allowance first, and so sees exact numbers.
type Counter struct {
	Allowance atomic.Uint64 // see word.go
	Until     atomic.Int64  // when the allowance ends, or the block; fleet time
	Group     *Group
	long      *byte         // the key's text, if it is longer than short; never changes
	Beyond    atomic.Uint32 // hits that there was room for beyond the allowance; see Raised
	length    uint16        // of the key's text
	short     [18]byte
	mu        sync.Mutex

	// The first cache line ends here: a check that passes without the lock reads nothing below.

	next       *Counter      // in a dirty stack
	Newest     int64         // bucket of Totals()[0] and Pending()[0]
	active     atomic.Uint32 // when last reported or denied, see activityUnit
	generation uint8         // which of the shard's generations the base is of
	State      uint8         // see the state constants
	Stripe     uint8         // which dirty stack and tally it uses; never changes
	overflow   bool          // the store has no room for the key: only this checker counts its hits
	more       *more         // nil for most
	inline     [4]int64
}

// strictCounter is the memory of a strict group's counter. All other counters have no permits, so
// that they fill two cache lines exactly.
type strictCounter struct {
	Counter
	permits permit.Account
	next    *Counter // in the stack of counters that ask
}

// strict holds the fields that only the group of a strict rule has.
type strict struct {
	// Forgotten is the newest bucket for which an evicted counter had been granted permits. How
	// many it had spent is not known, so they all count as spent.
	Forgotten atomic.Int64

	// Index is the rule's index in the lease request with the number Build. The reporter's lock
	// guards both.
	Build uint64
	Index int
}

// stack holds counters that have become dirty, newest first. Any goroutine may push; a flush takes
// all.
type stack struct {
	head atomic.Pointer[Counter]
	_    [56]byte // keep the next stack on another cache line
}

// agedForecast is a counter's forecast, if the counter still has this one.
type agedForecast struct {
	aged
	forecast *Forecast
}

// askStack holds counters that ask for permits, newest first. Any goroutine may push.
type askStack struct{ Head atomic.Pointer[Counter] }

// stripes is the number of dirty stacks, and of tallies of each group: enough that cores seldom
// write to the same one.
const stripes = 16

// more holds the fields that few counters need. Each is nil or false for a counter that does not
// need it.
type more struct {
	counts   []int64      // totals, newest first, then pending, if inline is too short
	forecast *Forecast    // of a key above the forecast threshold
	level    *level.State // of a token or leaky bucket
	// refunded is the hits that were given back per bucket, newest first, and net memory for net.
	refunded, net []int64
	asks          bool      // the next report is to ask for refunds
	thinning      *thinning // of a key beyond half of a small limit
}

const (
	// silentBlock is how long a blocked key must have been silent before its counter may be evicted
	// for others: a blocked key that still sends stays blocked.
	silentBlock = 10 * time.Second
	// silentForecast is how long a counter has been silent when its forecast is dropped.
	silentForecast = idle.FirstLook + idle.LaterLook
	// silentKey is how long a key has been silent when its counter moves to the idle cache,
	// whenever it is considered.
	silentKey = idle.FirstLook + idle.LaterLook
	// looksAtOnce bounds the counters considered in one step, which holds the reporter's lock.
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
