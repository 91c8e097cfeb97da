package aggregate

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/internal/alarm"
	"github.com/offpath-io/offpath/pkg/aggregate/internal/fleet"
	"github.com/offpath-io/offpath/pkg/aggregate/internal/limits"
	"github.com/offpath-io/offpath/pkg/aggregate/internal/member"
	"github.com/offpath-io/offpath/pkg/aggregate/internal/merge"
	"github.com/offpath-io/offpath/pkg/aggregate/internal/queue"
	"github.com/offpath-io/offpath/pkg/aggregate/internal/refund"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
)

// Worker is one aggregator. Either Run works it, in real time, or Step does, in a time of the
// caller's choice. Receive, Ready and Stats are safe for concurrent use at any time.
type Worker struct {
	o         Options
	clock     fleet.Clock
	clockless atomic.Bool  // the store has no clock
	onRecord  atomic.Int64 // the offset of the fleet's time, in ns
	checkers  *fleet.Checkers
	quota     *limits.Quota
	revisions limits.Revisions
	health    health
	counters  counters
	all       atomic.Pointer[[]*shard] // nil until the store has been reached

	own      *fleet.OwnTime
	running  atomic.Bool
	lastNow  atomic.Int64 // own time of the last Step
	steppers []stepper    // of Step

	members  *member.Members
	attended struct {
		sync.Mutex
		shards []bool
		failed bool // the bus has not been told
		news   bool // nor the other aggregators

		failureLog logLimit
	}
	owned atomic.Pointer[[]bool]
	told  struct {
		review chan struct{} // who owns what is to be reviewed
		next   int64         // own time, of Step
	}
	join struct { // used by the one goroutine that joins
		next      int64 // own time
		offsetLog logLimit
	}
	memory  memory
	lookups lookups
}

// memory is how states are exchanged with [Options.Memory].
type memory struct {
	newGeneration chan struct{} // a shard has begun one
	failing       atomic.Bool   // it failed the last time
	waitUntil     int64         // own time until which a start waits for it; 0 before it was asked
	backoff       time.Duration
	next          int64 // own time of the next exchange; of Step
}

// lookups are requests on behalf of operators. To the store they are the reports of one more
// checker, which never has hits of its own.
type lookups struct {
	mu       sync.Mutex // one lookup at a time
	epoch    uint64
	sequence uint64
}

// shard is a worker's knowledge of one shard.
type shard struct {
	number  uint32
	reports *queue.Queue[*report]
	leases  *queue.Queue[*merge.LeaseRequest]
	alarms  *alarm.Queue
	refunds refund.Recent
	delays  delays

	state struct {
		sync.Mutex
		seen       storage.State // in the store
		remembered storage.State // by the memory
	}

	failure      atomic.Pointer[failure] // of the last batch; nil if it was applied
	retryAt      atomic.Int64            // own time at which a shard that was left is probed again
	lastOK       atomic.Int64            // own time of the last batch that the store applied
	leasesFailed atomic.Bool             // the last batch of lease requests failed
	absence      absence

	failureLog, rejectLog logLimit
}

// report is a report that waits for its answer.
type report struct {
	merge.Report
	follow func(TraceEvent) // nil if it is not traced
}

func (r *report) trace(e TraceEvent) {
	if r.follow != nil {
		r.follow(e)
	}
}

// stepper carries requests of one kind through the worker. One goroutine uses it at a time.
type stepper interface {
	// step applies the requests of a shard that are due, or, to drain it, all there are. It returns
	// the own time at which something is due next, which may be never.
	step(ctx context.Context, s *shard, clock func() int64, drain bool) (next int64)
	// wake returns the channel that tells when something is due sooner.
	wake(s *shard) <-chan struct{}
}

// failure is why and when a batch failed.
type failure struct {
	err    error
	at     int64 // own time
	logged bool
}

// New returns a worker, and starts nothing. The error is for invalid options.
func New(o Options) (*Worker, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	w := &Worker{
		o:        o,
		checkers: fleet.NewCheckers(int64(o.Forget), o.MaxCheckers),
		quota:    limits.NewQuota(o.MaxRules),
		health:   health{log: o.Log},
		own:      fleet.NewOwnTime(o.Now),
		memory:   memory{newGeneration: make(chan struct{}, 1), backoff: mergeEvery},
		lookups:  lookups{epoch: rand.Uint64()>>1 + 1},
		members:  member.New(cmp.Or(o.ID, rand.Uint64()|1)),
	}
	w.told.review = make(chan struct{}, 1)
	return w, nil
}

// now is Run's own time.
func (w *Worker) now() int64 { return w.own.Now() }

// latest is own time, by the clock while running, else by the last Step.
func (w *Worker) latest() int64 {
	if w.running.Load() {
		return w.now()
	}
	return w.lastNow.Load()
}

// Now is the fleet's time, as far as the worker knows it. It is safe for concurrent use.
func (w *Worker) Now() time.Time { return time.Unix(0, w.clock.Time(w.now())) }

// SetRules takes all rules in force from a trusted source, in place of those before: name, shape,
// limit, burst, revision and whether it is loose. From then on messages about a rule of one of
// these names and shapes bring hits, and change nothing of the rule; messages about other rules,
// and all messages before the first call, do. It is safe for concurrent use.
func (w *Worker) SetRules(rules []storage.Rule) {
	w.revisions.Trust(rules, w.clock.Time(w.latest()))
}

// known are the shards, nil until the fleet's time is known, too.
func (w *Worker) known() []*shard {
	if !w.clock.Known() {
		return nil
	}
	return w.shards()
}

func (w *Worker) shards() []*shard {
	if all := w.all.Load(); all != nil {
		return *all
	}
	return nil
}

// Ready returns nil if the worker can apply reports now, as far as it knows: the store has lately
// told the time, and no shard's last batch has failed lately. Otherwise the error says what is
// missing.
func (w *Worker) Ready() error {
	now := w.latest()
	if err := w.health.ready(now); err != nil {
		return err
	}
	if w.shards() == nil {
		return errNotRecalled
	}
	if !w.clock.Known() {
		return errNoTime
	}
	for _, s := range w.shards() {
		if f := s.failure.Load(); f != nil && now-f.at < int64(staleFailure) {
			return fmt.Errorf("shard %d: %w", s.number, f.err)
		}
	}
	return nil
}

// Stats returns the worker's counters. It is safe for concurrent use.
func (w *Worker) Stats() Stats {
	s := w.counters.snapshot()
	now := w.latest()
	s.Checkers, s.Aggregators = w.checkers.Live(now), w.members.Live(now)
	s.StoreOffset = time.Duration(w.onRecord.Load())
	if owned := w.owned.Load(); owned != nil {
		for _, is := range *owned {
			if is {
				s.Owned++
			}
		}
	}
	for _, shard := range w.shards() {
		s.Shards++
		s.Waiting += int64(shard.reports.Len())
	}
	return s
}
