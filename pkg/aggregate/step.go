package aggregate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/offpath-io/offpath/pkg/window"
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

func (w *Worker) newHand() *hand {
	return &hand{folder: newFolder(int64(w.o.Tolerance)), answerer: answerer{id: w.o.Bus.ID()}}
}

// Step does everything that is due at own time now, in Unix nanoseconds: asks the store for the
// time every 2 s, folds, applies and answers the requests that have waited long enough, sends
// alarms, exchanges states with the memory. It is for a caller with a time of its own, instead of
// Run, and for one goroutine. It returns the time of the next call; requests that are received
// meanwhile may be due sooner, Options.Gather or GatherLeases after they came.
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
	return min(next, w.stepMemory(ctx, now))
}

// stepShard does everything that is due in one shard, or, to drain it, everything there is. It
// returns when something is due next, which may be never.
func (w *Worker) stepShard(ctx context.Context, s *shard, h *hand, clock func() int64, drain bool) int64 {
	for {
		w.retry(ctx, s, clock())
		w.sendAlarms(s, clock(), drain)
		if due := s.gather.due(); due == never || due > clock() && !drain {
			return min(due, s.alarms.due(), s.retryAt.Load())
		}
		h.requests = s.gather.take(h.requests[:0])
		w.process(ctx, s, h, h.requests, clock)
		s.gather.done(h.requests)
		clear(h.requests)
	}
}

// process folds, applies and answers requests. A fold that the store cannot take for what is in it is
// split in halves, until the one request is found that holds up the others.
func (w *Worker) process(ctx context.Context, s *shard, h *hand, requests []*request, clock func() int64) {
	if len(requests) == 0 {
		return
	}
	fold, err := w.count(ctx, s, h, requests, clock)
	switch {
	case err == nil:
	case !errors.Is(err, ErrFold):
		w.drop(requests)
	case len(requests) > 1:
		half := len(requests) / 2
		w.process(ctx, s, h, requests[:half], clock)
		w.process(ctx, s, h, requests[half:], clock)
	default:
		w.giveUp(ctx, s, h, requests[0], fold, err)
	}
}

// count folds and applies requests, again without those that turn out to have been counted before, and
// answers them.
func (w *Worker) count(ctx context.Context, s *shard, h *hand, requests []*request, clock func() int64) (*Fold, error) {
	h.folder.forget()
	for range maxRefolds {
		fold := h.folder.make(s.number, requests, s.seen(), w.clock.fleet(clock()))
		fold.MaxChunks = int64(w.o.MaxChunks)
		w.revisions.apply(fold.Rules, fold.Now)
		tellAll(requests, TraceEvent{Kind: TraceApply, Keys: len(fold.Keys), Reports: len(requests)})
		applied, err := w.apply(ctx, s, fold, s.ways.note(fold, requests), clock)
		tellAll(requests, TraceEvent{Kind: TraceApplied, Err: err})
		if err != nil {
			return fold, err
		}
		if applied.isNew() {
			w.tell(s, h, requests, fold, &applied)
			return fold, nil
		}
		w.counters.refolds.Add(1)
		for _, i := range applied.Repeated {
			requests[h.folder.marked[i]].repeated = true
		}
		h.folder.settled(applied.Spent, applied.SettledOverflow)
		h.folder.overdrawn(applied.Overdrawn)
	}
	return nil, errRepeats
}

// errRepeats is for a fold that always holds something that was counted meanwhile.
var errRepeats = errors.New("folded too often")

// drop leaves requests without an answer: their checkers send them again.
func (w *Worker) drop(requests []*request) {
	tellAll(requests, TraceEvent{Kind: TraceDropped})
	w.counters.dropped.Add(int64(len(requests)))
}

// giveUp answers the one request of a fold that the store cannot take for what is in it: with an error if
// it was not counted, so that its checker sends it no more, and without totals if it was. Unless the store takes
// nothing at all in this shard, which is no fault of the request.
func (w *Worker) giveUp(ctx context.Context, s *shard, h *hand, r *request, fold *Fold, reason error) {
	if !w.probeShard(ctx, s, w.latest()) {
		w.drop([]*request{r})
		return
	}
	if isTime(&s.toldRefusalAt, w.latest()) {
		w.o.Log.Warn("a report that the store cannot take is given up",
			slog.Int("shard", int(s.number)), slog.String("checker", strconv.FormatUint(r.epoch, 16)),
			slog.Bool("counted", r.repeated), slog.Any("error", reason))
	}
	w.counters.refused.Add(1)
	if !r.repeated {
		err := refuse(r.reply, r.epoch, s.number, r.sequence, reason)
		w.noteReply(r, err)
		return
	}
	unknown := Applied{State: s.seen(), Totals: make([][]Cell, len(fold.Keys)), Levels: make([]window.Level, len(fold.Keys))}
	for i := range unknown.Levels {
		unknown.Levels[i], fold.Keys[i].Cells = Untold, nil // that nothing is told of them means nothing
	}
	w.noteReply(r, h.answerer.answer(r, fold, &unknown, &s.refund))
}

// isNew says whether the fold was applied, since all in it was new and covered, and there was room
// for it.
func (a *Applied) isNew() bool {
	return len(a.Repeated) == 0 && len(a.Spent) == 0 && len(a.SettledOverflow) == 0 && len(a.Overdrawn) == 0
}

// apply calls the store, and takes note of how that went. The newest report so far was made then.
func (w *Worker) apply(ctx context.Context, s *shard, fold *Fold, newest int64, clock func() int64) (Applied, error) {
	ctx, cancel := context.WithTimeout(ctx, w.o.Timeout)
	defer cancel()
	stopTimer := w.leaveIfSlow(s)
	begin := clock()
	applied, err := w.o.Store.Apply(ctx, fold)
	end := clock()
	stopTimer()
	if err == nil && applied.isNew() {
		err = checkApplied(fold, &applied)
	}
	if w.o.OnApply != nil {
		info := ApplyInfo{Fold: fold, Took: time.Duration(end - begin), Repeated: len(applied.Repeated) + len(applied.Spent), Err: err}
		if err == nil && applied.isNew() {
			info.Overflow = applied.Overflow
			info.Excess, info.Unheard = excessOf(fold, &applied, newest), s.ways.unheard()
		}
		w.o.OnApply(info)
	}
	w.noteApply(s, err, end)
	return applied, err
}

// checkApplied is whether a store has answered what it was asked.
func checkApplied(fold *Fold, applied *Applied) error {
	if len(applied.Totals) != len(fold.Keys) {
		return fmt.Errorf("%w: %d totals for %d keys", ErrFold, len(applied.Totals), len(fold.Keys))
	}
	drains := func(key Key) bool { return fold.Rules[key.Rule].Drains() }
	if len(applied.Levels) != len(fold.Keys) && slices.ContainsFunc(fold.Keys, drains) {
		return fmt.Errorf("%w: %d levels for %d keys", ErrFold, len(applied.Levels), len(fold.Keys))
	}
	return nil
}

// A shard that the store has not taken a fold of for so long is left to other aggregators, and tried again so often.
const (
	unanswered = 250 * time.Millisecond
	retryEvery = 250 * time.Millisecond
)

// leaveIfSlow leaves a shard to other aggregators unless stop is called in time, and never after
// that: then the call's outcome decides.
func (w *Worker) leaveIfSlow(s *shard) (stop func()) {
	if !w.running.Load() { // the time is not this machine's
		return func() {}
	}
	var ended atomic.Bool
	timer := time.AfterFunc(unanswered, func() {
		w.attending.Lock()
		defer w.attending.Unlock()
		if !ended.Load() {
			s.retryAt.CompareAndSwap(never, w.now()+int64(retryEvery))
			w.attendLocked(s, false)
		}
	})
	return func() {
		ended.Store(true)
		timer.Stop()
	}
}

// retry looks whether the store takes folds of a shard again, when that is due.
func (w *Worker) retry(ctx context.Context, s *shard, now int64) {
	if at := s.retryAt.Load(); at <= now && s.retryAt.CompareAndSwap(at, now+int64(w.o.Timeout)) {
		w.probeShard(ctx, s, now)
	}
}

// noteApply takes note of whether the store has taken a fold of requests. One that fails for its
// content says nothing of the shard.
func (w *Worker) noteApply(s *shard, err error, now int64) {
	if errors.Is(err, ErrFold) {
		w.counters.applyErrors.Add(1)
		return
	}
	w.noteShard(s, err, now)
}

// noteShard takes note of whether the store takes folds of a shard. If not, the shard is not
// attended to any more, so that its reports go to an aggregator that can count them; the log says
// so, unless it has done so lately.
func (w *Worker) noteShard(s *shard, err error, now int64) {
	if err == nil {
		s.lastOK.Store(now)
		s.retryAt.Store(never)
		w.attend(s, true)
		if t := s.trouble.Swap(nil); t != nil && t.told {
			w.o.Log.Info("the store takes reports again", slog.Int("shard", int(s.number)))
		}
		return
	}
	w.counters.applyErrors.Add(1)
	s.retryAt.Store(now + int64(retryEvery))
	w.attend(s, false)
	before := s.trouble.Load()
	t := &trouble{err: err, at: now, told: before != nil && before.told}
	if !t.told && isTime(&s.toldAt, now) {
		t.told = true
		w.o.Log.Warn("the store takes no reports", slog.Int("shard", int(s.number)), slog.Any("error", err))
	}
	s.trouble.Store(t)
}

// isTime says whether a message that was last logged at own time at may be logged again now, and
// notes that it is.
func isTime(at *atomic.Int64, now int64) bool {
	last := at.Load()
	return now-last >= int64(tellAgain) && at.CompareAndSwap(last, now)
}

// tell answers the requests of an applied fold, and takes note of keys near their limit.
func (w *Worker) tell(s *shard, h *hand, requests []*request, fold *Fold, applied *Applied) {
	w.saw(s, fold.Seen, applied.State, applied.Loss)
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
	for _, o := range applied.Overflow {
		w.counters.hitsCounted.Add(-o.Hits)
	}
	w.counters.settlementsApplied.Add(int64(len(fold.Settled)))
	for _, r := range requests {
		w.counters.answered.Add(1)
		w.counters.settlementsUncovered.Add(int64(len(r.uncovered)))
		w.counters.settlementsOverflow.Add(r.overflow)
		if r.repeated {
			w.counters.repeated.Add(1)
		}
		w.noteReply(r, h.answerer.answer(r, fold, applied, &s.refund))
	}
	h.counts = s.alarms.note(fold, applied, h.counts)
}

// noteReply takes note of how answering went.
func (w *Worker) noteReply(r *request, err error) {
	r.tell(TraceEvent{Kind: TraceAnswered, Err: err})
	if err != nil {
		w.counters.replyErrors.Add(1) // the checker asks again
	}
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
