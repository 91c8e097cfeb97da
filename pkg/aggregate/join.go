package aggregate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/internal/alarm"
	"github.com/offpath-io/offpath/pkg/aggregate/internal/merge"
	"github.com/offpath-io/offpath/pkg/aggregate/internal/queue"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
)

const (
	// mergeEvery is how often states are exchanged with the memory, and mergeSeldom how often at
	// last while that fails.
	mergeEvery  = time.Second
	mergeSeldom = time.Minute
	// recallFor is for how long a worker that starts waits for a memory that does not answer.
	recallFor = 10 * time.Second
	// generationAhead is how far in the future a generation, which is a time in microseconds, may
	// be that the memory names: one from a broken memory must not become the store's.
	generationAhead = 24 * time.Hour
)

// joinStore asks the store for shards and time, and makes the shards the first time.
func (w *Worker) joinStore(ctx context.Context, clock func() int64) error {
	ctx, cancel := context.WithTimeout(ctx, w.o.Timeout)
	defer cancel()
	shards := max(len(w.shards()), w.o.Shards)
	sent := clock()
	fleet, err := w.o.Store.Join(ctx, shards)
	got := clock()
	w.health.observe(got, err)
	if err != nil {
		w.join.next = got + int64(w.join.backoff)
		w.join.backoff = min(2*w.join.backoff, joinEvery)
		return err
	}
	w.join.backoff = rejoinAfter
	w.join.next = got + int64(joinEvery)
	switch {
	case !fleet.Time.IsZero():
		w.clock.Observe(sent, got, fleet.Time.UnixNano())
	case w.running.Load(): // the machine's clock, which may have been set since the last time
		w.clock.Observe(got, got, time.Now().UnixNano())
	}
	if w.shards() != nil {
		return nil
	}
	kept, err := w.recall(ctx, got)
	if err != nil {
		w.join.next = got + int64(rejoinAfter)
		return err
	}
	w.makeShards(fleet.Shards, kept)
	return nil
}

// makeShards makes the shards, once their number is known, from the states that the memory keeps.
func (w *Worker) makeShards(n int, kept []storage.State) {
	all := make([]*shard, n)
	for i := range all {
		all[i] = &shard{
			number:  uint32(i),
			reports: queue.New[*report](int64(w.o.BatchDelay), w.o.BatchKeys),
			leases: queue.New[*merge.LeaseRequest](
				int64(w.o.LeaseDelay), min(w.o.BatchKeys, merge.MaxLeases),
			),
			alarms: alarm.NewQueue(uint32(i)),
		}
		all[i].retryAt.Store(queue.Never)
	}
	w.all.Store(&all)
	w.remember(kept, w.latest())
	w.attended.Lock()
	defer w.attended.Unlock()
	w.attended.shards = slices.Repeat([]bool{true}, n)
	w.updateBusLocked()
	w.o.Log.Info("joined the store", slog.Int("shards", n))
}

// recall reads the memory before the worker has any shards, at own time now. An error means that it
// is to be tried again; a worker does without a memory that does not answer for long.
func (w *Worker) recall(ctx context.Context, now int64) ([]storage.State, error) {
	if w.o.Memory == nil {
		return nil, nil
	}
	if w.memory.waitUntil == 0 {
		w.memory.waitUntil = now + int64(recallFor)
	}
	states, err := w.o.Memory.Merge(ctx, nil)
	w.observeMemory(err)
	if err != nil && !errors.Is(err, ErrNoMemory) && now < w.memory.waitUntil {
		return nil, fmt.Errorf("read the states of shards: %w", err)
	}
	return states, nil
}

// mergeStates tells the memory which states this worker has seen, and takes in those that others
// have. It returns in how long it is to be called next.
func (w *Worker) mergeStates(ctx context.Context, now int64) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, w.o.Timeout)
	defer cancel()
	states := make([]storage.State, len(w.shards()))
	for i, s := range w.shards() {
		states[i] = s.seen()
	}
	kept, err := w.o.Memory.Merge(ctx, states)
	w.observeMemory(err)
	w.remember(kept, now)
	if w.memory.backoff = min(2*w.memory.backoff, mergeSeldom); err == nil {
		w.memory.backoff = mergeEvery
	}
	return w.memory.backoff
}

// remember takes in the states that the memory keeps.
func (w *Worker) remember(kept []storage.State, now int64) {
	latest := uint64(max(w.clock.Time(now)+int64(generationAhead), 0)) / 1000
	for i, s := range w.shards() {
		if i < len(kept) && kept[i].Generation <= latest {
			s.remember(kept[i])
		}
	}
}

// observeMemory logs when the memory begins to fail, and when it is back. That the worker is told to
// stop meanwhile is neither.
func (w *Worker) observeMemory(err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	was := w.memory.failing.Swap(err != nil)
	switch {
	case err != nil && !was:
		w.o.Log.Warn("states of shards are not kept outside of the store: "+
			"a loss of its data is noticed only by aggregators that keep running", slog.Any("error", err))
	case err == nil && was:
		w.o.Log.Info("states of shards are kept outside of the store again")
	}
}
