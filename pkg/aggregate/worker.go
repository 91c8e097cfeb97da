package aggregate

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// never is a time that does not come.
const never = int64(math.MaxInt64)

// Worker is one aggregator. Either Run works it, in real time, or Step does, in a time of the
// caller's choice. Receive, Ready and Stats are safe for concurrent use at any time.
type Worker struct {
	o         Options
	clock     fleetClock
	checkers  *roll
	ruleBound *ruleBound
	health    health
	counters  counters
	revisions revisions
	fleet     atomic.Pointer[[]*shard] // nil until the store has been reached

	began   time.Time
	running atomic.Bool
	lastNow atomic.Int64 // own time of the last Step

	attending struct {
		sync.Mutex
		shards []bool
	}

	nextJoin int64 // own time; used by the one goroutine that joins
	backoff  time.Duration
	stepper  *hand // of Step
	leaser   *leaseHand
	looks    looks
	losses   losses

	newGeneration chan struct{} // of some shard, for the memory
	forgetful     atomic.Bool   // the memory failed the last time
	recallUntil   int64         // own time until which a memory that does not answer is waited for; 0 before it was asked
	mergeIn       time.Duration
	nextMerge     int64 // own time; of Step
}

// shard is what a worker knows of one shard.
type shard struct {
	number uint32
	gather *gather[*request]
	leases *gather[*leaseRequest]
	alarms *alarms
	refund refunding
	ways   hearsay
	state  struct {
		sync.Mutex
		told       State // by the store
		remembered State // by the memory
	}
	trouble atomic.Pointer[trouble]
	retryAt atomic.Int64 // own time at which a shard in trouble is looked at again
	refused atomic.Bool  // the last lease fold failed
	lastOK  atomic.Int64 // own time of the last fold that the store took
	// toldAt and toldRefusalAt are the own times at which trouble and a refused request were last
	// logged.
	toldAt, toldRefusalAt atomic.Int64
}

// New returns a worker, and starts nothing. The error is for invalid options.
func New(o Options) (*Worker, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	w := &Worker{
		o:         o,
		checkers:  newRoll(int64(o.Forget), o.MaxCheckers),
		ruleBound: newRuleBound(o.MaxRules),
		health:    health{log: o.Log},
		began:     time.Now(),
		backoff:   joinSooner,

		newGeneration: make(chan struct{}, 1), mergeIn: mergeEvery,
	}
	w.stepper, w.leaser = w.newHand(), w.newLeaseHand()
	return w, nil
}

// now is Run's own time. It goes on steadily when the machine's clock is set.
func (w *Worker) now() int64 {
	return w.began.UnixNano() + int64(time.Since(w.began))
}

// latest is own time, as far as anybody has told the worker.
func (w *Worker) latest() int64 {
	if w.running.Load() {
		return w.now()
	}
	return w.lastNow.Load()
}

// SetRules takes the rules in force from somebody who is believed, all of them, in place of those
// before: name, shape, limit, burst, revision and whether it is loose. What messages say of a rule
// of one of these names and shapes does not count from then on, but for the hits; what they say of
// others, and before the first call of all, does. It is safe for concurrent use.
func (w *Worker) SetRules(rules []Rule) { w.revisions.know(rules, w.clock.fleet(w.latest())) }

func (w *Worker) shards() []*shard {
	if fleet := w.fleet.Load(); fleet != nil {
		return *fleet
	}
	return nil
}

// Ready returns nil if the worker can apply reports now, as far as it knows: the store has lately
// said the time, and no shard's last fold has failed lately. Otherwise the error says what is missing.
func (w *Worker) Ready() error {
	now := w.latest()
	if err := w.health.joined(now); err != nil {
		return err
	}
	if w.shards() == nil {
		return errNotRecalled
	}
	for _, s := range w.shards() {
		if t := s.trouble.Load(); t != nil && now-t.at < int64(staleTrouble) {
			return fmt.Errorf("shard %d: %w", s.number, t.err)
		}
	}
	return nil
}

// join asks the store for shards and time, and takes in what it says.
func (w *Worker) join(ctx context.Context, clock func() int64) error {
	ctx, cancel := context.WithTimeout(ctx, w.o.Timeout)
	defer cancel()
	shards := max(len(w.shards()), w.o.Shards)
	sent := clock()
	fleet, err := w.o.Store.Join(ctx, shards)
	got := clock()
	w.health.noteJoin(got, err)
	if err != nil {
		w.nextJoin = got + int64(w.backoff)
		w.backoff = min(2*w.backoff, joinEvery)
		return err
	}
	w.backoff = joinSooner
	w.nextJoin = got + int64(joinEvery)
	switch {
	case !fleet.Time.IsZero():
		w.clock.observe(sent, got, fleet.Time.UnixNano())
	case w.running.Load(): // the machine's clock, which may have been set since the last time
		w.clock.observe(got, got, time.Now().UnixNano())
	}
	if w.fleet.Load() == nil {
		kept, err := w.recall(ctx, got)
		if err != nil {
			w.nextJoin = got + int64(joinSooner)
			return err
		}
		w.divide(fleet.Shards, kept)
	}
	return nil
}

// divide makes the shards, once their number is known, and what is remembered of them.
func (w *Worker) divide(shards int, kept []State) {
	all := make([]*shard, shards)
	for i := range all {
		all[i] = &shard{
			number: uint32(i),
			gather: newGather[*request](int64(w.o.Gather), w.o.FoldKeys),
			leases: newGather[*leaseRequest](int64(w.o.GatherLeases), min(w.o.FoldKeys, maxLeaseFold)),
			alarms: newAlarms(),
		}
		all[i].retryAt.Store(never)
	}
	w.fleet.Store(&all)
	w.remember(kept, w.latest())
	w.attending.shards = slices.Repeat([]bool{true}, shards)
	w.tellBus()
	w.o.Log.Info("joined the store", slog.Int("shards", shards))
}

// attend has the bus bring a shard's reports, or leave them to others.
func (w *Worker) attend(s *shard, yes bool) {
	w.attending.Lock()
	defer w.attending.Unlock()
	w.attendLocked(s, yes)
}

func (w *Worker) attendLocked(s *shard, yes bool) {
	if w.attending.shards[s.number] != yes {
		w.attending.shards[s.number] = yes
		w.tellBus()
	}
}

func (w *Worker) tellBus() {
	if err := w.o.Bus.Attend(slices.Clone(w.attending.shards)); err != nil {
		w.o.Log.Warn("cannot say which shards are attended to", slog.Any("error", err))
	}
}

const (
	// soonestAlarm is AlarmEvery by default in a small fleet, and perChecker what each checker adds in a
	// large one.
	soonestAlarm = 4 * time.Millisecond
	perChecker   = 10 * time.Microsecond
)

// alarmEvery is the least time between two alarms of a shard, in ns.
func (w *Worker) alarmEvery(now int64) int64 {
	if w.o.AlarmEvery > 0 {
		return int64(w.o.AlarmEvery)
	}
	return int64(max(soonestAlarm, time.Duration(w.checkers.live(now))*perChecker))
}
