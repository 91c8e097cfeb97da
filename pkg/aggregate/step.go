package aggregate

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// maxRefolds is how often reports are folded again because some turned out to be repeats. Each time
// some more are known to be, so it takes a rival worker that applies the others in between.
const maxRefolds = 4

// hand is what one goroutine works with.
type hand struct {
	folder   *folder
	answerer answerer
	requests []*request
	counts   []int64
}

func (w *Worker) newHand() *hand { return &hand{folder: newFolder(int64(w.o.Tolerance))} }

// Step does everything that is due at own time now, in Unix nanoseconds: asks the store for the time
// every 2 s, folds, applies and answers the requests that have waited long enough, sends alarms. It
// is for a caller with a time of its own, instead of Run, and for one goroutine. It returns the time
// of the next call; requests that are received meanwhile may be due sooner, Options.Gather or
// GatherLeases after they came.
func (w *Worker) Step(ctx context.Context, now int64) (next int64) {
	w.lastNow.Store(now)
	clock := func() int64 { return now }
	if now >= w.nextJoin {
		_ = w.join(ctx, clock) // Ready says so, and the next Step tries again
	}
	next = w.nextJoin
	for _, s := range w.shards() {
		next = min(next, w.stepShard(ctx, s, w.stepper, clock, false), w.stepLeases(ctx, s, w.leaser, clock, false))
	}
	return next
}

// stepShard does everything that is due in one shard, or, to drain it, everything there is. It
// returns when something is due next, which may be never.
func (w *Worker) stepShard(ctx context.Context, s *shard, h *hand, clock func() int64, drain bool) int64 {
	for {
		w.sendAlarms(s, clock(), drain)
		if due := s.gather.due(); due == never || due > clock() && !drain {
			return min(due, s.alarms.due())
		}
		h.requests = s.gather.take(h.requests[:0])
		w.process(ctx, s, h, clock)
		s.gather.done(h.requests)
		clear(h.requests)
	}
}

// process folds, applies and answers the requests in hand.
func (w *Worker) process(ctx context.Context, s *shard, h *hand, clock func() int64) {
	if len(h.requests) == 0 {
		return
	}
	clear(h.folder.spent)
	for range maxRefolds {
		fold := h.folder.make(s.number, h.requests, s.seen(), w.clock.fleet(clock()))
		w.revisions.apply(fold.Rules, fold.Now)
		tellAll(h.requests, TraceEvent{Kind: TraceApply, Keys: len(fold.Keys), Reports: len(h.requests)})
		applied, err := w.apply(ctx, s, fold, clock)
		tellAll(h.requests, TraceEvent{Kind: TraceApplied, Err: err})
		if err != nil {
			break
		}
		if applied.isNew() {
			w.tell(s, h, fold, &applied)
			return
		}
		w.counters.refolds.Add(1)
		for _, i := range applied.Repeated {
			h.requests[h.folder.marked[i]].repeated = true
		}
		for _, i := range applied.Spent {
			h.folder.spent[fold.Settled[i]] = struct{}{}
		}
	}
	tellAll(h.requests, TraceEvent{Kind: TraceDropped})
	w.counters.dropped.Add(int64(len(h.requests)))
}

// isNew says whether the fold was applied, since all in it was new.
func (a *Applied) isNew() bool { return len(a.Repeated) == 0 && len(a.Spent) == 0 }

// apply calls the store, and takes note of how that went.
func (w *Worker) apply(ctx context.Context, s *shard, fold *Fold, clock func() int64) (Applied, error) {
	ctx, cancel := context.WithTimeout(ctx, w.o.Timeout)
	defer cancel()
	begin := clock()
	applied, err := w.o.Store.Apply(ctx, fold)
	end := clock()
	if err == nil && applied.isNew() {
		err = checkApplied(fold, &applied)
	}
	if w.o.OnApply != nil {
		info := ApplyInfo{Fold: fold, Took: time.Duration(end - begin), Repeated: len(applied.Repeated) + len(applied.Spent), Err: err}
		if err == nil && applied.isNew() {
			info.Excess = excessOf(fold, &applied)
		}
		w.o.OnApply(info)
	}
	w.noteApply(s, err, end)
	return applied, err
}

// checkApplied is whether a store has answered what it was asked.
func checkApplied(fold *Fold, applied *Applied) error {
	if len(applied.Totals) != len(fold.Keys) {
		return fmt.Errorf("the store has %d totals for %d keys", len(applied.Totals), len(fold.Keys))
	}
	for i := range fold.Rules {
		if fold.Rules[i].Drains() && len(applied.Levels) != len(fold.Keys) {
			return fmt.Errorf("the store has %d levels for %d keys", len(applied.Levels), len(fold.Keys))
		}
	}
	return nil
}

// noteApply logs when a shard begins to fail and when it works again.
func (w *Worker) noteApply(s *shard, err error, now int64) {
	if err == nil {
		s.lastOK.Store(now)
		if s.trouble.Swap(nil) != nil {
			w.o.Log.Info("the store takes reports again", slog.Int("shard", int(s.number)))
		}
		return
	}
	w.counters.applyErrors.Add(1)
	if s.trouble.Swap(&trouble{err, now}) == nil {
		w.o.Log.Warn("the store takes no reports", slog.Int("shard", int(s.number)), slog.Any("error", err))
	}
}

// tell answers the requests of an applied fold, and takes note of keys near their limit.
func (w *Worker) tell(s *shard, h *hand, fold *Fold, applied *Applied) {
	s.saw(applied.State)
	s.refund.learn(fold, applied)
	w.counters.folds.Add(1)
	w.counters.keys.Add(int64(len(fold.Keys)))
	for i := range fold.Ledger {
		w.counters.hitsCounted.Add(fold.Ledger[i].Counted)
		w.counters.hitsLate.Add(fold.Ledger[i].Late)
		w.counters.hitsRefused.Add(fold.Ledger[i].Refused)
		w.counters.hitsRefunded.Add(fold.Ledger[i].Refunded)
		w.counters.hitsSettled.Add(fold.Ledger[i].Settled)
	}
	w.counters.settlementsApplied.Add(int64(len(fold.Settled)))
	for _, r := range h.requests {
		w.counters.answered.Add(1)
		if r.repeated {
			w.counters.repeated.Add(1)
		}
		err := h.answerer.answer(r, fold, applied, &s.refund)
		r.tell(TraceEvent{Kind: TraceAnswered, Err: err})
		if err != nil {
			w.counters.replyErrors.Add(1) // the checker asks again
		}
	}
	h.counts = s.alarms.note(fold, applied, h.counts)
}

// sendAlarms sends what the shard has to tell everybody, if it is time. An alarm that cannot be sent
// is lost: the keys' next reports raise it again.
func (w *Worker) sendAlarms(s *shard, now int64, drain bool) {
	if drain {
		s.alarms.hurry()
	}
	messages, keys, err := s.alarms.take(s.number, now, w.clock.fleet(now), w.alarmEvery(now))
	for _, m := range messages {
		if err = w.o.Bus.Alarm(s.number, m); err != nil {
			break
		}
		w.counters.alarms.Add(1)
	}
	if err != nil {
		w.counters.alarmErrors.Add(1)
		return
	}
	w.counters.alarmKeys.Add(int64(keys))
}

func (s *shard) seen() State {
	s.state.Lock()
	defer s.state.Unlock()
	return s.state.seen
}

func (s *shard) saw(state State) {
	s.state.Lock()
	defer s.state.Unlock()
	if s.state.seen.Less(state) {
		s.state.seen = state
	}
}
