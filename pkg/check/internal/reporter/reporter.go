// Package reporter carries hits from a checker's counters to the aggregators, and the fleet's
// totals back, off the critical path of requests.
//
// A [Reporter] collects the counters that have pending hits, and sends one report per shard, with
// one report in flight: [Reporter.Step] does everything that is due, [Reporter.Receive] processes
// messages. An unanswered report is sent again, with the same hits; after 20 hours it is given up.
// Lease requests for permits, and grants, are sent beside reports. Welcomes, the answers to hellos,
// have the time and the number of shards and of checkers. How soon keys are reported depends on how
// near they are to their limits: the counters ask for the rounds that they need.
//
// One lock guards all of a Reporter. No check takes it.
package reporter

import (
	"cmp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/offpath-io/offpath/internal/checktuning"
	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/check/internal/queue"
	"github.com/offpath-io/offpath/pkg/check/internal/settlement"
	"github.com/offpath-io/offpath/pkg/events"
)

// Config configures a reporter. Fields without a comment are those of check.Options.
type Config struct {
	Link                                Link // nil: nothing is reported
	Groups                              Groups
	Settling                            *settlement.Queue
	Epoch                               uint64
	FlushEvery, HelloEvery              time.Duration
	StaleAfter, ShareAfter, OutageAfter time.Duration
	ExpectCheckers                      int
	Tuning                              checktuning.Tuning
	Trace                               Tracing      // may be nil
	Now                                 func() int64 // own time
}

// Link sends messages to aggregators. See check.Link.
type Link interface {
	Report(shard uint32, toOwner bool, report []byte) error
	Lease(shard uint32, toOwner bool, request []byte) error
	Hello(hello []byte) error
}

// Groups are the groups of a checker's rules. Revive and Release are called with the reporter's
// lock held.
type Groups interface {
	// Find returns the group of a message's rule; nil if there is none.
	Find(*events.Rule) *counter.Group
	// Revive takes back groups that were used after they had been released.
	Revive()
	// Release releases retired groups that hold nothing any more.
	Release(fleet int64)
}

// Init initializes the reporter. It is called once, before anything else.
func (r *Reporter) Init(h *counter.Host, o Config) { r.host, r.o = h, o }

// FleetTimeLocked returns the fleet's time of the last step or message.
func (r *Reporter) FleetTimeLocked() int64 { return r.host.Clock.Fleet(r.now) }

// Reporter does the work off the critical path. It has the queues of counters to report, and the
// reports and lease requests in flight. One lock guards it, and the reporter's part of counters and
// groups; no check takes it.
type Reporter struct {
	host   *counter.Host
	o      Config
	Strict atomic.Bool // some group is strict, or has been

	mu        sync.Mutex
	shards    []shard            // none until the first welcome
	unsharded []*counter.Counter // dirty counters while the shards are not known
	sweeps    uint               // how many queues, and counters without one, have been swept
	build     uint64             // number of the report being built, see counter.ReportState
	sequence  uint64             // of the last report or lease request, of any shard; it only grows
	// olderUntil is the own time until which reports are made for aggregators that do not know of
	// refunds.
	olderUntil   int64
	generations  uint8 // counts the generations that shards have entered
	now          int64 // own time of the last step or message
	other        int   // a different number of shards, which one welcome has said
	nextFlush    int64
	lastFlush    int64
	nextHello    int64
	lastContact  int64 // own time of the last message from an aggregator
	judged       int64 // own time at which all shards' levels were looked at
	missedAlarms bool  // alarms may have been missed; the next hello asks for them
	asked        int64 // own time of the last hello that asked for them
	draining     bool
	counts       Stats
	leases       leases
	trips        trips
}

// noOwnerFor is how long messages of a shard go to any aggregator after its owner has not been
// reached: about as long as another takes to take its place.
const noOwnerFor = 250 * time.Millisecond

// route is where messages of one kind and shard go: to the shard's owner, or to any aggregator.
type route struct {
	ownerAfter int64 // own time from which on they go to the owner
}

func (r *route) isToOwner(now int64) bool { return now >= r.ownerAfter }

// avoidOwner makes them go to any aggregator for a while, if the one that has failed went to the
// owner.
func (r *route) avoidOwner(toOwner bool, now int64) {
	if toOwner {
		r.ownerAfter = now + int64(noOwnerFor)
	}
}

// shard is the reporter's state of one shard.
type shard struct {
	backlog
	late queue.FIFO[*counter.Group] // with late hits to report here
	// settlements to report here.
	settlements     queue.FIFO[settlement.Settlement]
	state           state // the latest that a message was from
	localGeneration uint8 // stands for its generation; counters compare it with theirs
	flight          *inFlightReport
	missed          bool            // a round came while the report was in flight
	gaveUp          int64           // own time at which the last report was given up as too old; 0 if none was
	spare           *inFlightReport // the last report, to reuse its memory
	route                           // of reports
	freshness
}

// state orders what a shard has had: by version within a generation. A later one begins when the
// store is found to have lost data. Its number is that time by the store's clock, in microseconds, or
// more.
type state struct{ generation, version uint64 }

func (s state) isBefore(o state) bool {
	return cmp.Or(cmp.Compare(s.generation, o.generation), cmp.Compare(s.version, o.version)) < 0
}

// inFlightReport is a report that has been sent and not been answered. Its hits do not change until
// it is answered or given up.
type inFlightReport struct {
	report   []byte
	sequence uint64
	known    state     // the shard's, when the report was made
	text     int       // an upper bound of the bytes of keys and rules
	rows     []row     // in the order of the report's keys
	hits     []ownHits // in the order of the report's rules
	born     int64     // own time
	sent     int64     // own time of the last sending
	retryAt  int64
	wait     time.Duration
	tries    int
	refusals int
	refused  int64 // own time of the first refusal
	repeated bool
	toOwner  bool     // it was last sent to the shard's owner
	suspect  *suspect // the suspect rule that the report is about; nil if it is not
	after    uint64   // counters taken off its line before this report
	message  events.Report
	// settlements are those of the message.
	settlements []settlement.Settlement
	follow      func(Event) // nil: it is not traced
}

// row is the hits of one kind of one key in a report. The rows of a counter's denied and refunded
// hits come before the row of its admitted hits.
type row struct {
	counter *counter.Counter
	newest  int64 // the bucket that ages count from
	rule    int   // its index in the report
	kind    int
}

// ownHits are the admitted and late hits of one group in a report.
type ownHits struct {
	group *counter.Group
	hits  int64
}

// leases is the reporter's part of strict enforcement. Counters that want permits, or have permits
// to return, are queued per shard; a shard has one lease request in flight. If a request is not
// answered, a new one is made from the state by then; all its numbers are absolute, so it does no
// harm if the first one arrives after all. The reporter's lock guards it.
type leases struct {
	queues    []leaseQueue                 // by shard
	unsharded []*counter.Counter           // counters that ask, while the shards are not known
	reviews   queue.Heap[*counter.Counter] // counters with permits, by the time of their review
	build     uint64                       // number of the request being built, see Group.Strict
}

// leaseQueue is one shard's queue of counters that ask, and the request in flight.
type leaseQueue struct {
	backlog
	flight    *inFlightLease
	notBefore int64         // own time of the next request
	wait      time.Duration // time-out of the next request; 0: the usual one
	route                   // of requests, whose answers may take longer than those of reports
}

// inFlightLease is a lease request in flight.
type inFlightLease struct {
	sequence uint64
	counters []*counter.Counter // in the order of the request's keys
	newest   []int64            // per key, the bucket that ages count from
	suspect  *suspect           // as in inFlightReport
	sent     int64              // own time
	toOwner  bool               // as in inFlightReport
	wait     time.Duration      // its time-out
	retryAt  int64              // own time; sooner than that if there is a reason
	known    state              // as in inFlightReport
}

// trips are a reporter's measurements of how long answers take. Its lock guards them.
type trips struct {
	took    int64         // from the first sending to the answer, of the last repeated report
	longest time.Duration // the last one similar to the one before; 0 after an answer to a report sent once
}

// Stats is a snapshot of a reporter. See check.Stats.
type Stats struct {
	Sent, Repeated, Answered, GivenUp, Unsent                 int64
	LeasesSent, LeasesRepeated, LeasesAnswered, LeasesRefused int64
	Alarms, Ignored, Unreadable                               int64
	StoreLosses, LastStoreLoss                                int64
	Shards                                                    int
	Heard                                                     time.Duration
	Problem                                                   string // the last error, until a report is answered
}

// Tracing is called with a report that is about to be sent for the first time: its shard, its
// sequence and its number of keys. It returns the W3C traceparent for the report, and a function
// that is called with its events; "" and nil if it is not traced.
type Tracing func(shard uint32, sequence uint64, keys int) (traceparent string, follow func(Event))

// Event is an event in the life of a report.
type Event uint8
