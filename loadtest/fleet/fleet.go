// Package fleet runs a scenario live: real checkers with connections of their own, a real NATS
// server, aggregators with a store, and a load generator that keeps to its plan whether or not the
// fleet keeps up.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath/internal/natsclient"
	"github.com/offpath-io/offpath/internal/natsconn"
	"github.com/offpath-io/offpath/internal/redisconn"
	"github.com/offpath-io/offpath/internal/testing/servers"
	"github.com/offpath-io/offpath/loadtest/pace"
	"github.com/offpath-io/offpath/loadtest/scenario"
	"github.com/offpath-io/offpath/loadtest/tap"
	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/events/natsbus"
	"github.com/offpath-io/offpath/pkg/rules"
)

// Options say where the fleet's servers are.
type Options struct {
	// NATS is a server's URL; "" starts one within this process.
	NATS string
	// NATSAccess is what gets the fleet into that server.
	NATSAccess natsconn.Access
	// Redis is a server's URL, Embedded for one that is started for this run, or "" for a store in
	// memory.
	Redis string
	// RedisAccess is what gets the fleet into that Redis.
	RedisAccess redisconn.Access
	// Delay is how long every message takes each way beside what NATS takes, Jitter how much longer
	// at the most.
	Delay, Jitter time.Duration
	// Acquire is how long a hit under strict enforcement waits for a permit, if Check has denied
	// it; 0 for not at all.
	Acquire time.Duration
	// Seed of the traffic.
	Seed uint64
	// MeetingTimeout is how long the fleet may take to come together; default 20 s.
	MeetingTimeout time.Duration
	// Hammer is how long the cores are asked for all they can, after the measured part; default 1
	// s.
	Hammer time.Duration
	// Log gets what the fleet has to say; nil: nobody does.
	Log *slog.Logger
	// Progress, if not nil, is called about ten times a second during the run.
	Progress func(done, all time.Duration)

	// For tests: by how much the clock of the store in memory is ahead, what drivers wait with, and
	// check.Options.MaxIdleKeys.
	ahead    time.Duration
	newPause func() pace.Pauser
	idleKeys int
}

// drainTimeout is how long the last hits may take to be delivered, without which no run is
// accounted for: longer than in a service, since all cores were asked for all they can.
const drainTimeout = 20 * time.Second

// Embedded is a Redis of our own.
const Embedded = "embedded"

// started is the moment that this process' own time counts from.
var started = time.Now()

// ownTime returns the time in Unix nanoseconds: the wall clock at the start and what has passed
// since, which is how checkers tell the time too.
func ownTime() int64 { return started.UnixNano() + int64(time.Since(started)) }

// fleet is everything that runs.
type fleet struct {
	o         Options
	log       *slog.Logger
	rand      *rand.Rand
	namespace string
	nats      string
	access    []nats.Option // to it
	checkers  []*checker
	store     *store
	taps      []*tap.Store // one per aggregator

	// offset is how far the fleet's time is ahead of this process' own, as its checkers found; 0
	// before they did.
	offset  atomic.Int64
	working sync.WaitGroup // aggregators
	stop    context.CancelFunc
	closers []func()

	mu     sync.Mutex
	failed error // of the first part that ended by itself
}

type checker struct {
	tap.Checker
	stop  context.CancelFunc
	ended chan struct{}
}

func (o Options) withDefaults() Options {
	if o.MeetingTimeout == 0 {
		o.MeetingTimeout = 20 * time.Second
	}
	if o.newPause == nil {
		o.newPause = pace.New
	}
	if o.Hammer == 0 {
		o.Hammer = time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// start starts a fleet for a scenario, and returns when all of it knows each other.
func start(ctx context.Context, sc *scenario.Scenario, o Options, traces []*tap.Trace) (f *fleet, err error) {
	f = &fleet{
		o: o, log: o.Log, nats: o.NATS,
		rand:      rand.New(rand.NewPCG(o.Seed, 0x666c656574)),
		namespace: fmt.Sprintf("loadtest-%x", rand.Uint64()), // by no seed: nobody else's
	}
	defer func() {
		if err != nil {
			f.end()
		}
	}()
	if f.access, err = o.NATSAccess.Options(nil); err != nil {
		return f, err
	}
	if f.nats == "" {
		server, err := servers.StartNATS(servers.NATSOptions{Logger: f.log})
		if err != nil {
			return f, err
		}
		f.closers = append(f.closers, func() { _ = server.Stop() })
		f.nats = server.URL()
	}
	if f.store, err = openStore(ctx, o, f.namespace); err != nil {
		return f, err
	}
	f.store.ahead = o.ahead
	f.closers = append(f.closers, f.store.close)
	if err := f.startAggregators(sc.Aggregators); err != nil {
		return f, err
	}
	if err := f.startCheckers(sc, traces); err != nil {
		return f, err
	}
	if err := f.meet(ctx); err != nil {
		return f, err
	}
	f.lookAtClock()
	return f, nil
}

// lookAtClock takes over the fleet's time, by which hits are counted: the store's may be another
// machine's.
func (f *fleet) lookAtClock() {
	offsets := make([]int64, len(f.checkers))
	for i, c := range f.checkers {
		offsets[i] = int64(c.Stats().ClockOffset)
	}
	slices.Sort(offsets)
	f.offset.Store(offsets[len(offsets)/2])
}

// fleetTime returns the fleet's time in Unix nanoseconds.
func (f *fleet) fleetTime() int64 { return ownTime() + f.offset.Load() }

func (f *fleet) connect(name string) (*nats.Conn, error) {
	conn, err := natsclient.Open(f.nats, name, f.log, f.access...)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	f.closers = append(f.closers, func() { natsclient.Close(conn) })
	return conn, nil
}

func (f *fleet) startAggregators(n int) error {
	ctx, stop := context.WithCancel(context.Background())
	f.stop = stop
	for i := range n {
		conn, err := f.connect(fmt.Sprintf("loadtest-aggregator-%d", i))
		if err != nil {
			return err
		}
		bus, err := natsbus.NewWorker(conn, f.namespace)
		if err != nil {
			return err
		}
		if err := f.runAggregator(ctx, i, bus); err != nil {
			return err
		}
	}
	return nil
}

func (f *fleet) runAggregator(ctx context.Context, i int, bus aggregate.Bus) error {
	own, err := f.store.forAggregator()
	if err != nil {
		return err
	}
	counted := tap.NewStore(own)
	f.taps = append(f.taps, counted)
	worker, err := aggregate.New(aggregate.Options{Store: counted, Bus: bus, Log: f.log})
	if err != nil {
		return err
	}
	f.working.Go(func() { f.note(fmt.Sprintf("aggregator %d", i), worker.Run(ctx)) })
	return nil
}

func (f *fleet) startCheckers(sc *scenario.Scenario, traces []*tap.Trace) error {
	set, err := rules.NewSet(sc.Rules...)
	if err != nil {
		return err
	}
	for i := range sc.Checkers {
		if err := f.startChecker(i, sc, set, traces[i]); err != nil {
			return err
		}
	}
	return nil
}

func (f *fleet) startChecker(i int, sc *scenario.Scenario, set *rules.Set, trace *tap.Trace) error {
	epoch := events.NewEpoch("")
	name := fmt.Sprintf("%x", epoch)
	conn, err := f.connect("loadtest-checker-" + name)
	if err != nil {
		return err
	}
	end, err := natsbus.NewChecker(conn, f.namespace, name)
	if err != nil {
		return err
	}
	return f.runChecker(i, sc, set, trace, epoch, end)
}

func (f *fleet) runChecker(
	i int, sc *scenario.Scenario, set *rules.Set, trace *tap.Trace, epoch uint64, end check.Link,
) (err error) {
	c := &checker{ended: make(chan struct{})}
	link := tap.NewLink(slowed(end, f.o.Delay, f.o.Jitter), f.fleetTime, trace)
	options := check.Options{
		Rules: set, Epoch: epoch, MaxIdleKeys: f.o.idleKeys, DrainTimeout: drainTimeout,
	}
	if c.Checker, err = tap.NewChecker(sc, link, options); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	f.checkers = append(f.checkers, c)
	// Real checkers do not start in the same instant, and so do not flush in it.
	phase := time.Duration(f.rand.Int64N(int64(min(sc.Flush, time.Second))))
	go func() {
		defer close(c.ended)
		select {
		case <-time.After(phase):
		case <-ctx.Done():
		}
		f.note(fmt.Sprintf("checker %d", i), c.Run(ctx))
	}()
	return nil
}

// note keeps the first thing that went wrong.
func (f *fleet) note(part string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil && f.failed == nil {
		f.failed = fmt.Errorf("%s: %w", part, err)
	}
}

// failure returns what went wrong first, if something did.
func (f *fleet) failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

// meet waits until every checker has heard of an aggregator.
func (f *fleet) meet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, f.o.MeetingTimeout)
	defer cancel()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		if err := f.failure(); err != nil {
			return err
		}
		met := 0
		for _, c := range f.checkers {
			if s := c.Stats(); s.Freshness == check.Fresh && s.Shards > 0 {
				met++
			}
		}
		if met == len(f.checkers) {
			return nil
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("%d of %d checkers have met an aggregator after %v: are NATS and Redis there?",
					met, len(f.checkers), f.o.MeetingTimeout)
			}
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// drain stops the checkers, which deliver what they still have, and then the aggregators.
func (f *fleet) drain() {
	for _, c := range f.checkers {
		c.stop()
	}
	for _, c := range f.checkers {
		<-c.ended
	}
	if f.stop != nil {
		f.stop()
		f.working.Wait()
	}
}

// end stops everything that runs. It may be called twice.
func (f *fleet) end() {
	f.drain()
	for i := len(f.closers) - 1; i >= 0; i-- {
		f.closers[i]()
	}
	f.closers = nil
}

// cost returns what counting has cost so far.
func (f *fleet) cost() tap.Cost {
	var sum tap.Cost
	for _, c := range f.checkers {
		sum = sum.Add(c.Link.Cost())
	}
	for _, s := range f.taps {
		sum = sum.Add(s.Cost())
	}
	return sum
}
