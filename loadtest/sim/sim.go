// Package sim runs a scenario in virtual time: the same code of checkers, aggregators and store as
// in a live run, stepped by hand over an in-memory network that can be slow, lossy and torn. What
// happens depends on the scenario, the options and the seed alone.
//
// Nothing in it takes time but the network: decisions, folds and the store are instantaneous.
package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/offpath-io/offpath/internal/checktuning"
	"github.com/offpath-io/offpath/internal/testing/membus"
	"github.com/offpath-io/offpath/loadtest/result"
	"github.com/offpath-io/offpath/loadtest/scenario"
	"github.com/offpath-io/offpath/loadtest/score"
	"github.com/offpath-io/offpath/loadtest/tap"
	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/rules"
)

// Options say what the network and the clocks are like.
type Options struct {
	// Seed decides everything that is left to chance.
	Seed uint64
	// Delay is how long every message takes each way, Jitter how much longer at the most.
	Delay, Jitter time.Duration
	// Loss and Repeat are the shares of messages that vanish, and that arrive twice.
	Loss, Repeat float64
	// Partitions cut checkers off.
	Partitions []Partition
	// Failures take aggregators out of action.
	Failures []Failure
	// NoForecast lets checkers decide by what they are told alone.
	NoForecast bool
	// QuietFor is how long hits of quiet keys wait at the most; 0 for the checkers' own default.
	QuietFor time.Duration
	// Skew is by how much each checker's clock is off at the most, either way.
	Skew time.Duration
	// Acquire is how long a hit under strict enforcement waits for a permit; 0 for not at all.
	Acquire time.Duration
	// Progress, if not nil, is called now and then with how much of the virtual time has passed.
	Progress func(done, all time.Duration)
}

// Partition cuts the first so many checkers off the network.
type Partition struct {
	Checkers int
	// From is counted from the beginning of the measured part.
	From, For time.Duration
}

// Failure takes the first so many aggregators out of action.
type Failure struct {
	Aggregators int
	// Frozen aggregators take messages and do nothing. Others are told that the store is away.
	Frozen bool
	// From is counted from the beginning of the measured part.
	From, For time.Duration
}

// String describes the failure.
func (f Failure) String() string {
	how := "without store"
	if f.Frozen {
		how = "frozen"
	}
	return fmt.Sprintf("%d %s@%v+%v", f.Aggregators, how, f.From, f.For)
}

// String describes the partition as the command line does.
func (p Partition) String() string { return fmt.Sprintf("%d@%v+%v", p.Checkers, p.From, p.For) }

// stepFloor and gather are what the real loops do: check.Run takes a step that it is woken for a
// millisecond after the last one at the earliest, and a worker looks at its requests when the first
// has waited for so long.
const (
	stepFloor = int64(time.Millisecond)
	gather    = 2 * time.Millisecond
	// gatherLeases is the same for lease requests.
	gatherLeases = time.Millisecond
)

// epoch is the virtual time at which simulations begin, more or less.
var epoch = time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC).UnixNano()

// meeting is how long the fleet has to get to know each other before the first hit: aggregators
// listen for 2.5 s before they say how many checkers there are, and checkers ask every 2 s.
const meeting = 5 * time.Second

// world is a fleet in virtual time.
type world struct {
	scenario *scenario.Scenario
	o        Options
	rand     *rand.Rand
	now      int64
	bus      *membus.Bus
	memory   *memstore.Store
	store    *tap.Store
	workers  []*worker
	checkers []*checker
	due      queue // of steps: checkers first, then workers
	woken    woken // by messages
	plan     []action
	waiting  []waiter // in the order of their deadlines
	judge    func(h scenario.Hit, allowed bool)
	spent    [2]tap.Cost       // at the beginning and the end of the measured part
	sent     [2]membus.Traffic // likewise
	excess   excess
	reckoned [2]result.Estimate // likewise
}

type worker struct {
	*aggregate.Worker
	storage.Store      // its way to the store
	away, frozen  bool // the store, or the worker itself
}

var errAway = errors.New("the store is away")

// Join fails while the store is away, as do Apply and Lease.
func (k *worker) Join(ctx context.Context, shards int) (storage.Fleet, error) {
	if k.away {
		return storage.Fleet{}, errAway
	}
	return k.Store.Join(ctx, shards)
}

// Apply applies a fold.
func (k *worker) Apply(ctx context.Context, fold *storage.Batch) (storage.Applied, error) {
	if k.away {
		return storage.Applied{}, errAway
	}
	return k.Store.Apply(ctx, fold)
}

// Lease carries out a lease fold.
func (k *worker) Lease(ctx context.Context, fold *storage.LeaseBatch) (storage.Leased, error) {
	if k.away {
		return storage.Leased{}, errAway
	}
	return k.Store.Lease(ctx, fold)
}

type checker struct {
	tap.Checker
	skew int64
	last int64 // time of the last step
	cuts int   // partitions that keep it off the network
}

// isWoken returns whether the checker has asked for an early step since the last call.
func (c *checker) isWoken() bool {
	select {
	case <-c.Wake():
		return true
	default:
		return false
	}
}

// action is something that happens at a time that is known beforehand.
type action struct {
	at int64
	do func()
}

// Run simulates the scenario, which must be valid. If ctx is done before the end, the result is of
// what was simulated until then.
func Run(ctx context.Context, sc *scenario.Scenario, o Options) (result.Run, error) {
	traffic := scenario.New(sc, o.Seed)
	traces := score.NewTraces(sc, traffic)
	w, err := newWorld(sc, o, traces)
	if err != nil {
		return result.Run{}, err
	}
	start := w.now + int64(meeting)
	s := score.New(sc, traffic, start)
	s.StartTraces(traces)
	w.schedule(s)
	interrupted := w.play(ctx, start, traffic, s)
	end := w.now
	w.settle()

	run := s.Run(end)
	run.Mode, run.Interrupted = result.Simulated, interrupted
	run.Params.Seed, run.Params.Store, run.Params.Faults = o.Seed, "memory", o.faults()
	run.Params.DelayMS, run.Params.JitterMS = float64(o.Delay)/1e6, float64(o.Jitter)/1e6
	score.Cost(&run, w.spent[1].Sub(w.spent[0]))
	run.Traffic = trafficOf(w.sent[0], w.sent[1], run.MeasuredSeconds)
	run.RefreshLagMS = s.Lag(traces, end)
	run.Estimate = w.estimate(run.Hits)
	run.Conservation = w.conservation(s.Admitted())
	return run, nil
}

func (o Options) faults() string {
	var text string
	add := func(what, how string) {
		if text != "" {
			text += ", "
		}
		text += what + " " + how
	}
	if o.Loss > 0 {
		add("loss", strconv.FormatFloat(o.Loss, 'g', -1, 64))
	}
	if o.Repeat > 0 {
		add("repeat", strconv.FormatFloat(o.Repeat, 'g', -1, 64))
	}
	if o.NoForecast {
		add("forecast", "none")
	}
	if o.QuietFor > 0 {
		add("quiet keys wait", o.QuietFor.String())
	}
	for _, p := range o.Partitions {
		add("partition", p.String())
	}
	for _, f := range o.Failures {
		add("failure", f.String())
	}
	if o.Skew > 0 {
		add("skew", o.Skew.String())
	}
	return text
}

// newRand returns the source of what is left to chance, but for the traffic and the network.
func newRand(o Options) *rand.Rand { return rand.New(rand.NewPCG(o.Seed, 0x73696d)) }

// startOf returns when the scenario starts, with its warm-up. Its phase against the windows' edges
// is left to chance, unless it says otherwise.
func startOf(sc *scenario.Scenario, r *rand.Rand) int64 {
	length := int64(sc.Longest())
	phase := r.Int64N(length)
	if sc.Phase != nil {
		phase = int64(*sc.Phase)
	}
	return epoch - epoch%length + length + phase
}

func newWorld(sc *scenario.Scenario, o Options, traces []*tap.Trace) (*world, error) {
	set, err := rules.NewSet(sc.Rules...)
	if err != nil {
		return nil, err
	}
	w := &world{
		scenario: sc, o: o, rand: newRand(o),
		bus: membus.New(membus.Options{Seed: o.Seed, Faults: membus.Faults{
			Delay: o.Delay, Jitter: o.Jitter, Lose: o.Loss, Repeat: o.Repeat, RepeatWithin: 2*o.Delay + time.Second,
		}, Broadcast: onAllCores}),
		memory: memstore.New(),
	}
	w.store = tap.NewStore(w.memory)
	w.now = startOf(sc, w.rand) - int64(meeting)
	for i := range sc.Checkers {
		if err := w.addChecker(i, set, traces[i]); err != nil {
			return nil, err
		}
	}
	for i := range sc.Aggregators {
		if err := w.addWorker(sc.Checkers + i); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func (w *world) clock() int64 { return w.now }

func (w *world) addChecker(i int, set *rules.Set, trace *tap.Trace) error {
	end, c := w.bus.Checker("c"+strconv.Itoa(i)), &checker{}
	if w.o.Skew > 0 {
		c.skew = w.rand.Int64N(2*int64(w.o.Skew)+1) - int64(w.o.Skew)
	}
	var err error
	c.Checker, err = tap.NewChecker(w.scenario, tap.NewLink(end, w.clock, trace), check.Options{
		Rules: set, Epoch: uint64(i + 1), MaxIdleKeys: -1, Tuning: checktuning.Tuning{NoForecast: w.o.NoForecast},
		QuietFor: w.o.QuietFor, Now: func() time.Time { return time.Unix(0, w.now+c.skew) },
	})
	if err != nil {
		return err
	}
	end.Attach(func(kind events.Kind, payload []byte) {
		c.Receive(kind, payload)
		c.Link.Heard(kind, payload)
		if kind == events.KindGrant {
			w.retry(c)
		}
		if c.isWoken() {
			w.woken.add(i)
		}
	})
	w.checkers = append(w.checkers, c)
	// Checkers do not start in the same instant, and so do not flush in it.
	w.due.set(i, w.now+w.rand.Int64N(int64(min(w.scenario.Flush, time.Second))))
	return nil
}

// heed brings a checker's next step forward if it asks for that.
func (w *world) heed(i int, c *checker) {
	if c.isWoken() {
		w.due.sooner(i, max(w.now, c.last+stepFloor))
	}
}

func (w *world) addWorker(number int) error {
	end := w.bus.Worker()
	k := &worker{Store: w.store}
	var err error
	k.Worker, err = aggregate.New(aggregate.Options{
		Store: k, Bus: end, ID: uint64(number) + 1, OnApply: w.excess.note,
	})
	if err != nil {
		return err
	}
	end.Attach(func(kind events.Kind, payload []byte, reply func([]byte) error) {
		if k.frozen {
			return
		}
		k.Receive(w.now, kind, payload, reply)
		after := gather
		switch kind {
		case events.KindLease:
			after = gatherLeases
		case events.KindMember:
			after = 0
		}
		w.due.sooner(number, w.now+int64(after))
	})
	w.workers = append(w.workers, k)
	w.due.set(number, w.now)
	return nil
}
