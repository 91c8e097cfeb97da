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
	// logClock is by how much the store's clock is set before the log says so.
	logClock = 10 * time.Millisecond
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
	w.join.next = got + int64(joinEvery)
	if err != nil {
		return err
	}
	if w.observeClock(ctx, sent, got, fleet); w.clock.Wants() {
		w.join.next = got + int64(rejoinAfter)
	}
	if w.shards() != nil {
		w.startClock(got)
		return nil
	}
	kept, err := w.recall(ctx, got)
	if err != nil {
		w.join.next = got + int64(rejoinAfter)
		return err
	}
	w.makeShards(fleet.Shards, kept)
	w.startClock(got)
	return nil
}

// observeClock compares the store's clock, or this machine's if the store has none, with the
// fleet's time, and has the store keep another offset if need be. There is no keeper of a machine's
// own time: if that is set, or the machine was suspended, it is right all the same.
func (w *Worker) observeClock(ctx context.Context, sent, got int64, fleet storage.Fleet) {
	theirs := fleet.Time.UnixNano()
	keeper := w.members.Keeper() == w.members.ID() && w.members.Listened(got)
	if fleet.Time.IsZero() {
		w.clockless.Store(true)
		if sent, theirs, keeper = got, got, false; w.running.Load() { // its clock may be set meanwhile
			sent, theirs, got = w.now(), w.o.Now().UnixNano(), w.now()
		}
	}
	keep := w.clock.ObserveStore(sent, got, theirs, int64(fleet.Offset), keeper)
	w.onRecord.Store(int64(fleet.Offset))
	if time.Duration(keep) == fleet.Offset {
		return
	}
	step := time.Duration(keep) - fleet.Offset
	switch err := w.o.Store.KeepOffset(ctx, fleet.Offset, time.Duration(keep)); {
	case err != nil: // the next look finds the same
		if w.join.offsetLog.allow(got) {
			w.o.Log.Warn("cannot record the fleet's time: it steps if all aggregators are replaced now",
				slog.Duration("by", step), slog.Any("error", err))
		}
	case step.Abs() > logClock:
		w.o.Log.Warn("the store's clock was set: the fleet's time goes on without a step",
			slog.Duration("by", -step))
	}
}

// makeShards makes the shards, once their number is known, from the states that the memory keeps.
func (w *Worker) makeShards(n int, kept []storage.State) {
	all := make([]*shard, n)
	for i := range all {
		all[i] = &shard{
			number:  uint32(i),
			reports: queue.New[*report](gather, w.o.BatchKeys),
			leases:  queue.New[*merge.LeaseRequest](gatherLeases, min(w.o.BatchKeys, merge.MaxLeases)),
			alarms:  alarm.NewQueue(uint32(i), max(alarmKeys/n, 1)),
		}
		all[i].retryAt.Store(queue.Never)
	}
	w.attended.Lock()
	w.attended.shards = slices.Repeat([]bool{true}, n)
	w.attended.Unlock()
	owned := make([]bool, n)
	w.owned.Store(&owned)
	w.all.Store(&all)
	w.remember(kept, w.latest())
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

// observeMemory logs when the memory begins to fail, and when it is back. That the worker is told
// to stop meanwhile is neither.
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
