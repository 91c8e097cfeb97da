package aggregate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/internal/queue"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/events"
)

const (
	// workersPerShard is how many goroutines apply each shard's reports, and how many its lease
	// requests, so that the CPU merges one batch while the store is busy with another.
	workersPerShard = 2
	// stopGrace is how long Run takes at most, after its end, for the requests it has received.
	stopGrace = 5 * time.Second
	// probesAtOnce bounds the shards that are probed at the same time.
	probesAtOnce = 16
)

// newSteppers returns what one goroutine works with; reports come before leases.
func (w *Worker) newSteppers() []stepper { return []stepper{w.newReports(), w.newLeases()} }

// Step does everything that is due at own time now, in Unix nanoseconds: asks the store for the
// time twice a second, applies and answers the requests that have waited long enough, sends alarms,
// exchanges states with the memory, tells other workers about this one. It is for a caller with a
// time of its own, instead of Run, and for one goroutine. It returns the time of the next call;
// what is received meanwhile may be due sooner: reports after 2 ms, lease requests after 1 ms, and
// at once what other workers tell.
func (w *Worker) Step(ctx context.Context, now int64) (next int64) {
	w.lastNow.Store(now)
	clock := func() int64 { return now }
	if now >= w.join.next {
		_ = w.joinStore(ctx, clock) // Ready says so, and the next Step tries again
	}
	if w.steppers == nil {
		w.steppers = w.newSteppers()
	}
	next = min(w.join.next, w.stepMembers(now))
	for _, s := range w.shards() {
		for _, stepper := range w.steppers {
			next = min(next, stepper.step(ctx, s, clock, false))
		}
	}
	return min(next, w.stepMembers(now), w.stepMemory(ctx, now)) // what has happened to shards, too
}

// stepMemory exchanges states with the memory if that is due, and returns when it is due next.
func (w *Worker) stepMemory(ctx context.Context, now int64) (next int64) {
	select {
	case <-w.memory.newGeneration:
		w.memory.next = now
	default:
	}
	switch {
	case w.o.Memory == nil || w.shards() == nil:
		return queue.Never
	case now >= w.memory.next:
		w.memory.next = now + int64(w.mergeStates(ctx, now))
	}
	return w.memory.next
}

// Run joins the store, however long that takes, and serves the bus until ctx is done. Then it takes
// no further requests, finishes those it has received, for at most 5 s, and returns nil. It returns
// an error before that if the store has another number of shards on record ([storage.ErrShards]),
// or if the bus can serve no more. Run is called at most once, and not together with Step.
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
	var workers, background sync.WaitGroup
	for _, s := range w.shards() {
		for range workersPerShard {
			for _, stepper := range w.newSteppers() {
				workers.Go(func() { w.work(working, stepper, s, stopping) })
			}
		}
	}
	background.Go(func() { w.probeIdle(serving) }) // to know soon which shards it can serve
	background.Go(func() {
		if err := w.keepJoining(serving, false); err != nil {
			stop(err)
		}
	})
	background.Go(func() { w.keepMerging(serving) })
	background.Go(func() { w.keepTelling(serving) })

	err := w.serve(serving)
	if cause := context.Cause(serving); errors.Is(cause, storage.ErrShards) {
		err = cause
	}
	stop(nil)
	background.Wait()

	grace := time.AfterFunc(stopGrace, abandon)
	defer grace.Stop()
	close(stopping)
	workers.Wait()
	if w.o.Memory != nil {
		w.mergeStates(working, w.now()) // of the last batches
	}
	return err
}

// serve serves the bus until ctx is done.
func (w *Worker) serve(ctx context.Context) error {
	receive := func(kind events.Kind, payload []byte, reply func([]byte) error) {
		w.Receive(w.now(), kind, payload, reply)
	}
	err := w.o.Bus.Serve(ctx, receive)
	if err == nil && ctx.Err() == nil {
		err = errors.New("it stopped serving")
	}
	if err != nil {
		return fmt.Errorf("serve reports: %w", err)
	}
	return nil
}

// keepJoining joins again and again until ctx is done, or, the first time, until it has worked. It
// returns only errors that another attempt would meet again.
func (w *Worker) keepJoining(ctx context.Context, first bool) error {
	var probing sync.Mutex
	var probes sync.WaitGroup
	defer probes.Wait()
	for ctx.Err() == nil {
		if w.now() >= w.join.next {
			err := w.joinStore(ctx, w.now)
			if errors.Is(err, storage.ErrShards) {
				return fmt.Errorf("join the store: %w", err)
			}
			if err == nil && first {
				return nil
			}
			if !first && probing.TryLock() { // a node that does not answer holds up no look at the clock
				probes.Go(func() {
					defer probing.Unlock()
					w.probeIdle(ctx)
				})
			}
		}
		timer := time.NewTimer(time.Duration(w.join.next - w.now()))
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return nil
}

// probeIdle probes every shard to which no batch has been applied lately, so that Ready notices a
// dead node without traffic; also those without one since the store went away, to know which shards
// can still count. Shards that have been left are probed anyway.
func (w *Worker) probeIdle(ctx context.Context) {
	var probes sync.WaitGroup
	slots := make(chan struct{}, probesAtOnce)
	since, away := w.health.away()
	for _, s := range w.shards() {
		if s.retryAt.Load() != queue.Never {
			continue
		}
		if w.now()-s.lastOK.Load() < int64(probeAfter) && (!away || s.appliedSince(since)) {
			continue
		}
		slots <- struct{}{}
		probes.Go(func() {
			defer func() { <-slots }()
			w.probe(ctx, s, w.now())
		})
	}
	probes.Wait()
}

// keepMerging exchanges states with the memory regularly, and at once when a shard has begun a
// generation, until ctx is done.
func (w *Worker) keepMerging(ctx context.Context) {
	if w.o.Memory == nil {
		return
	}
	timer := time.NewTimer(mergeEvery)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-w.memory.newGeneration:
		}
		timer.Reset(w.mergeStates(ctx, w.now()))
	}
}

// work takes a shard's steps when they are due, or sooner when woken, and when stopping the last
// one.
func (w *Worker) work(ctx context.Context, x stepper, s *shard, stopping <-chan struct{}) {
	for {
		select {
		case <-stopping:
			x.step(ctx, s, w.now, true)
			return
		default:
		}
		timer := time.NewTimer(time.Duration(x.step(ctx, s, w.now, false) - w.now()))
		select {
		case <-timer.C:
		case <-x.wake(s):
		case <-stopping:
		}
		timer.Stop()
	}
}
