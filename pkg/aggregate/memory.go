package aggregate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Memory keeps the latest state of each shard outside of the store, so that a loss of the store's
// data is found out although every worker that has seen the state is gone. Package natsmemory holds
// an implementation. Its method is safe for concurrent use.
type Memory interface {
	// Merge raises what is kept of each shard to the states, which are by the shard's number, where
	// these are later, and returns what is kept then; that may be of more shards, or of fewer.
	// After an error the states may or may not have been kept; it wraps [ErrNoMemory] if there is
	// nothing to keep them in.
	Merge(ctx context.Context, states []State) ([]State, error)
}

// ErrNoMemory is wrapped by errors of [Memory] that say that nothing can be kept here.
var ErrNoMemory = errors.New("there is nothing to keep states in")

const (
	// mergeEvery is how often states are exchanged with the memory, and mergeSeldom how often while
	// that fails, at last.
	mergeEvery  = time.Second
	mergeSeldom = time.Minute
	// recallFor is for how long a worker that starts waits for a memory that does not answer.
	recallFor = 10 * time.Second
	// generationAhead is how far in the future a generation, which is a time in microseconds, may
	// be that this worker has not got from the store: one out of a broken memory must not become
	// the store's.
	generationAhead = 24 * time.Hour
)

// recall reads the memory before the worker has any shards, at own time now. An error means that it
// is to be tried again; a memory that does not answer for long is done without.
func (w *Worker) recall(ctx context.Context, now int64) ([]State, error) {
	if w.o.Memory == nil {
		return nil, nil
	}
	if w.recallUntil == 0 {
		w.recallUntil = now + int64(recallFor)
	}
	states, err := w.o.Memory.Merge(ctx, nil)
	w.noteMemory(err)
	if err != nil && !errors.Is(err, ErrNoMemory) && now < w.recallUntil {
		return nil, fmt.Errorf("read the states of shards: %w", err)
	}
	return states, nil
}

// mergeStates tells the memory what this worker has seen of the shards, and learns what others
// have. It returns in how long it is to be called next.
func (w *Worker) mergeStates(ctx context.Context, now int64) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, w.o.Timeout)
	defer cancel()
	states := make([]State, len(w.shards()))
	for i, s := range w.shards() {
		states[i] = s.seen()
	}
	kept, err := w.o.Memory.Merge(ctx, states)
	w.noteMemory(err)
	w.remember(kept, now)
	if w.mergeIn = min(2*w.mergeIn, mergeSeldom); err == nil {
		w.mergeIn = mergeEvery
	}
	return w.mergeIn
}

// remember takes in what the memory keeps.
func (w *Worker) remember(kept []State, now int64) {
	latest := uint64(max(w.clock.fleet(now)+int64(generationAhead), 0)) / 1000
	for i, s := range w.shards() {
		if i < len(kept) && kept[i].Generation <= latest {
			s.remember(kept[i])
		}
	}
}

func (s *shard) remember(kept State) {
	s.state.Lock()
	defer s.state.Unlock()
	if s.state.remembered.Less(kept) {
		s.state.remembered = kept
	}
}

// seen is the latest state of the shard that this worker knows of.
func (s *shard) seen() State {
	s.state.Lock()
	defer s.state.Unlock()
	if s.state.told.Less(s.state.remembered) {
		return s.state.remembered
	}
	return s.state.told
}

// noteMemory logs when the memory begins to fail, and when it is back.
func (w *Worker) noteMemory(err error) {
	was := w.forgetful.Swap(err != nil)
	switch {
	case err != nil && !was:
		w.o.Log.Warn("states of shards are not kept outside of the store: a loss of its data is noticed by aggregators that run on, and by no others",
			slog.Any("error", err))
	case err == nil && was:
		w.o.Log.Info("states of shards are kept outside of the store again")
	}
}

// keepMerging exchanges states with the memory every so often, and at once when a shard has begun a
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
		case <-w.newGeneration:
		}
		timer.Reset(w.mergeStates(ctx, w.now()))
	}
}

// stepMemory exchanges states with the memory if that is due, and returns when it is due next.
func (w *Worker) stepMemory(ctx context.Context, now int64) (next int64) {
	select {
	case <-w.newGeneration:
		w.nextMerge = now
	default:
	}
	switch {
	case w.o.Memory == nil || w.shards() == nil:
		return never
	case now >= w.nextMerge:
		w.nextMerge = now + int64(w.mergeStates(ctx, now))
	}
	return w.nextMerge
}

// Latest is the later of two states of each shard; one of the slices may be of more shards than the
// other.
func Latest(a, b []State) []State {
	all := make([]State, max(len(a), len(b)))
	copy(all, a)
	for i, s := range b {
		if all[i].Less(s) {
			all[i] = s
		}
	}
	return all
}
