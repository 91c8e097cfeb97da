// Package reporter carries hits from a checker's counters to the aggregators, and the fleet's
// totals back, off the critical path of requests.
//
// A [Reporter] collects the counters that have pending hits, and sends one report per shard, with
// one report in flight: [Reporter.Step] does what is due, [Reporter.Receive] takes in messages. An
// unanswered report is sent again, with the same hits; after 20 hours it is given up. Lease
// requests for permits, and grants, travel beside reports. Hellos and welcomes tell the time, the
// number of shards and of checkers. How soon keys are reported depends on how near they are to
// their limits; the counters ask for it.
//
// One lock guards all of a Reporter. No check takes it.
package reporter

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/offpath-io/offpath/internal/checktuning"
	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/check/internal/queue"
	"github.com/offpath-io/offpath/pkg/check/internal/settlement"
	"github.com/offpath-io/offpath/pkg/events"
)

// Config makes a reporter. See check.Options, where it is not said.
type Config struct {
	Link                                Link // nil: there is nobody to report to
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
	Report(shard uint32, aggregator uint64, report []byte) error
	Lease(shard uint32, aggregator uint64, request []byte) error
	Hello(hello []byte) error
}

// Groups are the groups of a checker's rules. Revive and Release are called with the reporter's
// lock held.
type Groups interface {
	// Find returns the group that counts for a message's rule; nil if there is none.
	Find(*events.Rule) *counter.Group
	// Revive takes back groups that were used after they had been let go.
	Revive()
	// Release lets groups go that hold nothing any more.
	Release(fleet int64)
}

// Init makes the reporter ready. It is called once, before anything else.
func (r *Reporter) Init(h *counter.Host, o Config) { r.host, r.o = h, o }

// FleetTimeLocked returns the fleet's time of the last step or message.
func (r *Reporter) FleetTimeLocked() int64 { return r.host.Clock.Fleet(r.now) }

// Reporter is everything off the critical path: the queues of counters to report, the reports in
// flight, the counters that may leave. One lock holds it all together; no check ever takes it.
type Reporter struct {
	host   *counter.Host
	o      Config
	Strict atomic.Bool // some group is strict, or has been

	mu        sync.Mutex
	shards    []shard            // none until the first welcome
	unsharded []*counter.Counter // dirty counters while the shards are not known
	sweeps    uint               // how many queues, and counters without one, have been swept
	build     uint64             // numbers the reports built, to give rules their index
	sequence  uint64             // of the last report, of whichever shard; it never starts again
	// olderUntil is the fleet's time until which reports are made for aggregators that do not know
	// of refunds.
	olderUntil   int64
	generations  uint8 // counts the generations that shards have entered
	now          int64 // own time of the last step or message
	other        int   // a number of shards that differs, and was heard once
	nextFlush    int64
	lastFlush    int64
	nextHello    int64
	lastContact  int64 // own time of the last word from an aggregator
	welcomes     uint64
	missedAlarms bool  // alarms may have been missed, which the next hello asks for
	asked        int64 // own time of the last hello that did
	draining     bool
	counts       Stats
	leases       leases
	trips        trips
}

// shard is one shard's queue and report.
type shard struct {
	queue queue.FIFO[*counter.Counter]
	late  queue.FIFO[*counter.Group] // with late hits to report here
	// settlements to report here.
	settlements     queue.FIFO[settlement.Settlement]
	taken           uint64 // counters ever taken off the queue
	generation      uint64
	localGeneration uint8 // stands for the generation; counters compare it with theirs
	flight          *inFlightReport
	// aggregator is the ID of the one that has answered last, which is asked first; 0 for any.
	aggregator uint64
	missed     bool            // a round came while it was not answered
	gaveUp     int64           // own time at which a report had become too old; 0 if none has
	spare      *inFlightReport // the last one, for its memory
}

// inFlightReport is a report that has been sent and not been answered. It does not change.
type inFlightReport struct {
	report   []byte
	sequence uint64
	// generation is the shard's that was known when the report was made.
	generation uint64
	text       int       // bytes of keys and rules, with some to spare
	rows       []row     // in the order of the report's keys
	hits       []ownHits // in the order of the report's rules
	born       int64     // own time
	retryAt    int64
	wait       time.Duration
	tries      int
	refusals   int
	refused    int64 // own time of the first refusal
	repeated   bool
	toAny      bool   // not to one aggregator, the last time, and nobody is known to be missing
	after      uint64 // the shard's taken, before this report
	message    events.Report
	// settlements are those of the message.
	settlements []settlement.Settlement
	follow      func(Event) // nil: it is not traced
}

// row is one key of a report. The denied and refunded hits of a counter are rows of their own,
// before that of the admitted ones.
type row struct {
	counter *counter.Counter
	newest  int64 // the bucket that ages count from
	rule    int   // its index in the report
	kind    int
}

// ownHits are the hits of one limiter in a report.
type ownHits struct {
	group *counter.Group
	hits  int64
}

// leases is how permits come and go: counters that want some, or have some to give back, gather per
// shard, and travel in one request at a time. A request that is not answered is made anew, from
// what is the case by then; all its numbers are absolute, so it does no harm if the first one
// arrives after all. The reporter's lock guards all but the atomic fields.
type leases struct {
	queues    []leaseQueue                 // by shard
	unsharded []*counter.Counter           // counters that ask while the shards are not known
	reviews   queue.Heap[*counter.Counter] // counters that hold permits, by when to review them
	build     uint64                       // numbers the requests, to give rules their index
}

// leaseQueue is one shard's queue of counters that ask, and the request on its way.
type leaseQueue struct {
	queue     queue.FIFO[*counter.Counter]
	flight    *inFlightLease
	notBefore int64         // own time of the next request
	wait      time.Duration // for the next answer; 0: the usual
}

// inFlightLease is a request on its way.
type inFlightLease struct {
	sequence   uint64
	counters   []*counter.Counter // in the order of the request's keys
	newest     []int64            // per key, the bucket that ages count from
	sent       int64              // own time
	retryAt    int64
	toAny      bool   // as of a report's flight
	generation uint64 // the same
}

// trips are what a reporter knows of how long answers take. Its lock guards them.
type trips struct {
	took    int64         // from the first sending to the answer, of the last repeated report
	longest time.Duration // the same, if it was the case twice in a row
}

// Stats is a snapshot of a reporter. See check.Stats.
type Stats struct {
	Sent, Repeated, Answered, GivenUp, Unsent                 int64
	LeasesSent, LeasesRepeated, LeasesAnswered, LeasesRefused int64
	Alarms, Ignored, Unreadable                               int64
	Shards                                                    int
	Heard                                                     time.Duration
	Problem                                                   string // why the last report was refused, until one is answered
}

// Tracing is told of a report that is about to be sent for the first time, of so many keys
// and to this shard. It returns the W3C traceparent that goes with it and a function that is told
// what becomes of it; "" and nil if it is not traced.
type Tracing func(shard uint32, sequence uint64, keys int) (traceparent string, follow func(Event))

// Event is what has become of a report.
type Event uint8
