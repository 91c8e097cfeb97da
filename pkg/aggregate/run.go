package aggregate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/offpath-io/offpath/pkg/events"
)

// hands is how many goroutines work each shard's reports, and how many its lease requests, so that the
// CPU folds one lot while the store is busy with another.
const hands = 2

// Run joins the store, however long that takes, and serves the bus until ctx is done. Then it takes
// no further reports, finishes those in hand, for at most 5 s, and returns nil. It returns an error
// before that if the store has another number of shards on record ([ErrShards]), or if the bus can
// serve no more. Run is called at most once, and not together with Step.
func (w *Worker) Run(ctx context.Context) error {
	w.running.Store(true)
	if err := w.keepJoining(ctx, true); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return nil
	}

	serving, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	working, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	stopping := make(chan struct{})
	var workers, probe sync.WaitGroup
	for _, s := range w.shards() {
		for range hands {
			workers.Go(func() { w.workShard(working, s, stopping) })
			workers.Go(func() { w.workLeases(working, s, stopping) })
		}
	}
	probe.Go(func() {
		if err := w.keepJoining(serving, false); err != nil {
			stop(err)
		}
	})

	probe.Go(func() { w.keepMerging(serving) })

	err := w.o.Bus.Serve(serving, w.serve)
	if err == nil && serving.Err() == nil {
		err = errors.New("it stopped serving")
	}
	if err != nil {
		err = fmt.Errorf("serve reports: %w", err)
	}
	if cause := context.Cause(serving); errors.Is(cause, ErrShards) {
		err = cause
	}
	stop(nil)
	probe.Wait()

	grace := time.AfterFunc(stopGrace, abandon)
	defer grace.Stop()
	close(stopping)
	workers.Wait()
	if w.o.Memory != nil {
		w.mergeStates(working, w.now()) // what the last folds have left
	}
	return err
}

func (w *Worker) serve(kind events.Kind, payload []byte, reply func([]byte) error) {
	w.Receive(w.now(), kind, payload, reply)
}

// keepJoining joins again and again until ctx is done, or, the first time, until it has worked. The
// only error is one that trying again does not mend.
func (w *Worker) keepJoining(ctx context.Context, first bool) error {
	for ctx.Err() == nil {
		if w.now() >= w.nextJoin {
			err := w.join(ctx, w.now)
			if errors.Is(err, ErrShards) {
				return fmt.Errorf("join the store: %w", err)
			}
			if err == nil && first {
				return nil
			}
			if !first {
				w.probe(ctx)
			}
		}
		timer := time.NewTimer(time.Duration(w.nextJoin - w.now()))
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return nil
}

// probesAtOnce bounds the shards that are probed at the same time.
const probesAtOnce = 16

// probe applies a fold of nothing to every shard that has had no other lately, so that Ready knows of
// a dead node also while there is no traffic; or none since the store went away, to know which shards are left.
func (w *Worker) probe(ctx context.Context) {
	var probes sync.WaitGroup
	slots := make(chan struct{}, probesAtOnce)
	since, away := w.health.away()
	for _, s := range w.shards() {
		if w.now()-s.lastOK.Load() < int64(joinEvery) && (!away || s.hasTakenSince(since)) {
			continue
		}
		slots <- struct{}{}
		probes.Go(func() {
			defer func() { <-slots }()
			w.probeShard(ctx, s, w.now())
		})
	}
	probes.Wait()
}

// probeShard applies a fold of nothing to a shard at own time now, and returns whether the store
// took it. An error is never for its content, as it has none.
func (w *Worker) probeShard(ctx context.Context, s *shard, now int64) bool {
	ctx, cancel := context.WithTimeout(ctx, w.o.Timeout)
	defer cancel()
	fold := Fold{Shard: s.number, Now: w.clock.fleet(now), Seen: s.seen()}
	applied, err := w.o.Store.Apply(ctx, &fold)
	if err == nil {
		w.saw(s, fold.Seen, applied.State, applied.Loss)
	}
	if ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded) { // not: told to stop
		w.noteShard(s, err, w.latest())
	}
	return err == nil
}

// workShard is the life of one of a shard's hands.
func (w *Worker) workShard(ctx context.Context, s *shard, stopping <-chan struct{}) {
	h := w.newHand()
	w.work(stopping, s.gather.wake, func(drain bool) int64 { return w.stepShard(ctx, s, h, w.now, drain) })
}

// workLeases is the life of one of a shard's hands for lease requests, which do not wait for reports.
func (w *Worker) workLeases(ctx context.Context, s *shard, stopping <-chan struct{}) {
	h := w.newLeaseHand()
	w.work(stopping, s.leases.wake, func(drain bool) int64 { return w.stepLeases(ctx, s, h, w.now, drain) })
}

// work takes steps when they are due, or sooner when woken, and when stopping the last one.
func (w *Worker) work(stopping, wake <-chan struct{}, step func(drain bool) (next int64)) {
	for {
		select {
		case <-stopping:
			step(true)
			return
		default:
		}
		timer := time.NewTimer(time.Duration(step(false) - w.now()))
		select {
		case <-timer.C:
		case <-wake:
		case <-stopping:
		}
		timer.Stop()
	}
}
