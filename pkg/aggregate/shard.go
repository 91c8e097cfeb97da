package aggregate

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/internal/queue"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
)

// A shard whose batch the store has not answered within slowAfter is left to other aggregators, and
// probed every probeEvery.
const (
	slowAfter  = 250 * time.Millisecond
	probeEvery = 250 * time.Millisecond
)

// attend has the bus bring a shard's requests, or leave them to others.
func (w *Worker) attend(s *shard, yes bool) {
	w.attended.Lock()
	defer w.attended.Unlock()
	w.attendLocked(s, yes)
}

func (w *Worker) attendLocked(s *shard, yes bool) {
	if w.attended.shards[s.number] != yes {
		w.attended.shards[s.number] = yes
		w.updateBusLocked()
	}
}

func (w *Worker) updateBusLocked() {
	if err := w.o.Bus.Attend(slices.Clone(w.attended.shards)); err != nil {
		w.o.Log.Warn("cannot subscribe to shards", slog.Any("error", err))
	}
}

// leaveIfSlow leaves a shard to other aggregators unless stop is called in time, and never after
// that: then the call's outcome decides.
func (w *Worker) leaveIfSlow(s *shard) (stop func()) {
	if !w.running.Load() { // the time is not this machine's
		return func() {}
	}
	var ended atomic.Bool
	timer := time.AfterFunc(slowAfter, func() {
		w.attended.Lock()
		defer w.attended.Unlock()
		if !ended.Load() {
			s.retryAt.CompareAndSwap(queue.Never, w.now()+int64(probeEvery))
			w.attendLocked(s, false)
		}
	})
	return func() {
		ended.Store(true)
		timer.Stop()
	}
}

// probe applies an empty batch to a shard at own time now, and returns whether the store took it.
// An error is never for its content, as it has none.
func (w *Worker) probe(ctx context.Context, s *shard, now int64) bool {
	ctx, cancel := context.WithTimeout(ctx, w.o.Timeout)
	defer cancel()
	batch := storage.Batch{Shard: s.number, Now: w.clock.Time(now), Seen: s.seen()}
	applied, err := w.o.Store.Apply(ctx, &batch)
	if err == nil {
		w.observeState(s, batch.Seen, applied.State, applied.Loss)
	}
	// After a cancellation the outcome says nothing: the worker was told to stop.
	if ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded) {
		w.observeOutcome(s, err, w.latest())
	}
	return err == nil
}

// retry probes a failed shard, when that is due.
func (w *Worker) retry(ctx context.Context, s *shard, now int64) {
	at := s.retryAt.Load()
	if at <= now && s.retryAt.CompareAndSwap(at, now+int64(w.o.Timeout)) {
		w.probe(ctx, s, now)
	}
}

// observeOutcome takes in whether the store applies batches of a shard. If not, the shard is left,
// so that its requests go to an aggregator that can count them; the log says so, unless it has done
// so lately.
func (w *Worker) observeOutcome(s *shard, err error, now int64) {
	if err == nil {
		s.lastOK.Store(now)
		s.retryAt.Store(queue.Never)
		w.attend(s, true)
		if f := s.failure.Swap(nil); f != nil && f.logged {
			w.o.Log.Info("the store takes reports again", slog.Int("shard", int(s.number)))
		}
		return
	}
	w.counters.add(func(c *Stats) { c.ApplyErrors++ })
	s.retryAt.Store(now + int64(probeEvery))
	w.attend(s, false)
	before := s.failure.Load()
	f := &failure{err: err, at: now, logged: before != nil && before.logged}
	if !f.logged && s.failureLog.allow(now) {
		f.logged = true
		w.o.Log.Warn("the store takes no reports",
			slog.Int("shard", int(s.number)), slog.Any("error", err))
	}
	s.failure.Store(f)
}

// appliedSince says whether the store has applied a batch of the shard since then, and failed none
// after it.
func (s *shard) appliedSince(since int64) bool {
	return s.failure.Load() == nil && s.lastOK.Load() > since
}

// canCount says whether reports can be counted, as far as the worker knows. In a Redis Cluster the
// node that has the fleet's record may be dead while the others count on: the batches that they
// have applied since then show it.
func (w *Worker) canCount() bool {
	since, away := w.health.away()
	if !away {
		return true
	}
	shards, live := w.shards(), 0
	for _, s := range shards {
		if s.appliedSince(since) {
			live++
		}
	}
	return 2*live > len(shards)
}

// seen is the latest state of the shard that this worker knows of.
func (s *shard) seen() storage.State {
	s.state.Lock()
	defer s.state.Unlock()
	if s.state.seen.Less(s.state.remembered) {
		return s.state.remembered
	}
	return s.state.seen
}

// remember takes in the state that the memory keeps.
func (s *shard) remember(kept storage.State) {
	s.state.Lock()
	defer s.state.Unlock()
	if s.state.remembered.Less(kept) {
		s.state.remembered = kept
	}
}

// observeState takes in the state in which a store has left a shard, after a batch that named the
// state before. The first time that this is of a generation that began because data was lost, it
// counts and logs the loss.
func (w *Worker) observeState(s *shard, before, state storage.State, loss storage.Loss) {
	s.state.Lock()
	was := s.state.seen
	if was.Less(state) {
		s.state.seen = state
	}
	s.state.Unlock()
	if was.Generation >= state.Generation {
		return
	}
	select {
	case w.memory.newGeneration <- struct{}{}:
	default:
	}
	remembered := was.Generation
	if before.Generation < state.Generation {
		remembered = max(remembered, before.Generation)
	}
	if remembered == 0 {
		return
	}
	at := time.UnixMicro(int64(state.Generation))
	w.counters.add(func(c *Stats) { c.addLoss(ShardLoss{loss, s.number, at.UnixNano()}) })
	w.o.Log.Error("the store has lost data: counts of this shard begin again from what is left",
		slog.Int("shard", int(s.number)), slog.String("lost", loss.String()), slog.Time("found_out", at),
		slog.Uint64("remembered_version", loss.Remembered.Version),
		slog.Uint64("found_version", loss.Found.Version))
}
