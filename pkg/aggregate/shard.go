package aggregate

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/internal/queue"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
)

const (
	// slowAfter is after how long without an answer the store counts as slow for a shard, which is
	// left then, if another aggregator serves it.
	slowAfter = 250 * time.Millisecond
	// tooOld is how old the oldest report that waits may be before its shard is left likewise.
	tooOld = time.Second
	// A shard that has been left is probed every probeEvery, and every probeOthers as long as other
	// aggregators serve it.
	probeEvery  = 250 * time.Millisecond
	probeOthers = time.Second
	// leastAbsence is for how long a shard is left at least to others that serve it. The next
	// absence is twice as long, up to mostAbsence, unless healthyFor has passed in between.
	leastAbsence = 5 * time.Second
	mostAbsence  = time.Minute
	healthyFor   = time.Minute
)

// absence is how a worker stays away from a shard that it has left, so that a shard does not go to
// and fro between workers whose store is slow now and then. The lock of Worker.attended guards it.
type absence struct {
	until int64         // own time before which it ends only if no other aggregator serves the shard
	took  time.Duration // from its beginning until then; 0 before the first one
	ended int64         // own time of the end of the last one
}

// begin begins an absence at own time now.
func (a *absence) begin(now int64) {
	if a.took = min(2*a.took, mostAbsence); a.took == 0 || now-a.ended >= int64(healthyFor) {
		a.took = leastAbsence
	}
	a.until = now + int64(a.took)
}

// leaveLocked leaves a shard's requests to other aggregators from own time now on.
func (w *Worker) leaveLocked(s *shard, now int64) {
	if w.attended.shards[s.number] {
		w.attended.shards[s.number] = false
		s.absence.begin(now)
		s.retryAt.CompareAndSwap(queue.Never, now+int64(probeEvery))
		s.reports.WakeUp()
		w.reviewSoon()
	}
}

// comeBack takes a shard's requests again, if it is time for that at own time now, when
// the store has applied a batch: not before the absence is over, and not as long as the store is
// slow. But somebody must serve the shard: if no other aggregator does, this one does at once.
func (w *Worker) comeBack(s *shard, isSlow bool, now int64) {
	w.attended.Lock()
	defer w.attended.Unlock()
	switch {
	case w.attended.shards[s.number]:
	case w.members.ServedByOther(s.number, now) && (isSlow || now < s.absence.until):
		s.retryAt.Store(now + int64(probeOthers))
		return
	default:
		w.attended.shards[s.number] = true
		s.absence.ended = now
		w.reviewSoon()
	}
	s.retryAt.Store(queue.Never)
}

// leaveIfSlow leaves a shard to other aggregators, if one serves it, unless stop is called in time,
// and never after that: then the call's outcome decides.
func (w *Worker) leaveIfSlow(s *shard) (stop func()) {
	if !w.running.Load() { // the time is not this machine's
		return func() {}
	}
	var ended atomic.Bool
	timer := time.AfterFunc(slowAfter, func() {
		w.attended.Lock()
		defer w.attended.Unlock()
		if now := w.now(); !ended.Load() && w.members.ServedByOther(s.number, now) {
			w.leaveLocked(s, now)
		}
	})
	return func() {
		ended.Store(true)
		timer.Stop()
	}
}

// leaveOverloadedLocked leaves the shard whose oldest report has waited longest, of those that
// another aggregator serves, if that is too long at own time now: one of them each time, as this
// worker may keep up with the others then.
func (w *Worker) leaveOverloadedLocked(now int64) {
	var left *shard
	oldest := now - int64(tooOld)
	for _, s := range w.shards() {
		at := s.reports.Oldest()
		if at < oldest && w.attended.shards[s.number] && w.members.ServedByOther(s.number, now) {
			left, oldest = s, at
		}
	}
	if left != nil {
		w.leaveLocked(left, now)
	}
}

// probe applies an empty batch to a shard at own time now, and returns whether the store took it.
// An error is never for its content, as it has none.
func (w *Worker) probe(ctx context.Context, s *shard, now int64) bool {
	ctx, cancel := context.WithTimeout(ctx, w.o.Timeout)
	defer cancel()
	batch := storage.Batch{Shard: s.number, Now: w.clock.Time(now), Seen: s.seen()}
	begin, stopTimer := w.latest(), w.leaveIfSlow(s)
	applied, err := w.o.Store.Apply(ctx, &batch)
	end := w.latest()
	stopTimer()
	if err == nil {
		w.observeState(s, batch.Seen, applied.State, applied.Loss)
	}
	// After a cancellation the outcome says nothing: the worker was told to stop.
	if ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded) {
		w.observeOutcome(s, err, begin, end)
	}
	return err == nil
}

// retry probes a shard that has been left, when that is due.
func (w *Worker) retry(ctx context.Context, s *shard, now int64) {
	at := s.retryAt.Load()
	if at <= now && s.retryAt.CompareAndSwap(at, now+int64(w.o.Timeout)) {
		w.probe(ctx, s, now)
	}
}

// observeOutcome takes in whether the store has applied a batch of a shard, in a call from own time
// begin until now. If not, the shard is left, so that its requests go to an aggregator that can
// count them; the log says so, unless it has done so lately.
func (w *Worker) observeOutcome(s *shard, err error, begin, now int64) {
	if err == nil {
		if s.lastOK.Swap(now) == 0 {
			w.reviewSoon()
		}
		w.comeBack(s, now-begin > int64(slowAfter), now)
		if f := s.failure.Swap(nil); f != nil && f.logged {
			w.o.Log.Info("the store takes reports again", slog.Int("shard", int(s.number)))
		}
		return
	}
	w.counters.add(func(c *Stats) { c.ApplyErrors++ })
	s.retryAt.Store(now + int64(probeEvery))
	w.attended.Lock()
	w.leaveLocked(s, now)
	w.attended.Unlock()
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
