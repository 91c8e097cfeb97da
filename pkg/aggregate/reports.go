package aggregate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/internal/merge"
	"github.com/offpath-io/offpath/pkg/aggregate/internal/queue"
	"github.com/offpath-io/offpath/pkg/aggregate/internal/wire"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/window"
)

// receiveReport takes in a report; own says that this worker made it, for a lookup.
func (w *Worker) receiveReport(now int64, payload []byte, reply func([]byte) error, own bool) {
	w.counters.add(func(c *Stats) { c.Reports++ })
	shards := w.known()
	if reply == nil || len(shards) == 0 { // nobody to answer, or no store or time yet
		w.counters.add(func(c *Stats) { c.Dropped++ })
		return
	}
	if w.repeats(payload, reply, func(s *shard) queued { return s.reports }) {
		w.counters.add(func(c *Stats) { c.Replaced++ })
		return
	}
	m, err := events.DecodeReport(payload)
	if err == nil {
		err = w.checkRules(m.GetShards(), m.GetHits().GetRules())
	}
	if err == nil {
		err = checkAge(m, w.clock.Time(now))
	}
	if err == nil && !own {
		err = w.admitRules(m.GetEpoch(), m.GetHits().GetRules(), now)
	}
	if err != nil {
		if errors.Is(err, events.ErrMalformed) {
			w.counters.add(func(c *Stats) { c.Malformed++ })
		}
		if w.refuse(payload, reply, err, refusedReport) {
			w.counters.add(func(c *Stats) { c.Refused++ })
		}
		return
	}
	if slices.ContainsFunc(m.GetHits().GetRules(), isUnknown) {
		w.counters.add(func(c *Stats) { c.RulesUnknown++ })
	}
	w.filterSettlements(m, now, own)
	r := &report{Report: merge.Report{Message: m, Own: own, Header: queue.Header{
		Epoch: m.GetEpoch(), Sequence: m.GetSequence(), Reply: reply, Arrived: now,
		Weight: wire.Weight(m.GetHits()) + 2*len(m.Settlements), Size: len(payload),
	}}}
	if m.Trace != "" && w.o.Trace != nil {
		r.follow = w.o.Trace(m.Trace, m.Shard, m.Sequence, m.Hits.Keys())
	}
	if !own {
		w.noteRequest(m.GetShard(), now)
	}
	switch shards[m.GetShard()].reports.Add(r) {
	case queue.Replaced:
		w.counters.add(func(c *Stats) { c.Replaced++ })
	case queue.Stale:
		w.counters.add(func(c *Stats) { c.Stale++ })
		r.trace(TraceEvent{Kind: TraceDropped})
	case queue.Full:
		w.counters.add(func(c *Stats) { c.Dropped++ })
		r.trace(TraceEvent{Kind: TraceDropped})
	}
}

func refusedReport(epoch uint64, shard uint32, sequence uint64, reason error) events.Message {
	return &events.Refresh{Epoch: epoch, Shard: shard, Sequence: sequence, Error: reason.Error()}
}

// isUnknown says whether a rule's hits are of a kind that this build does not know. They are left
// out of their report.
func isUnknown(r *events.Rule) bool {
	_, known := wire.Kind(r)
	return !known
}

// checkAge refuses a report that may have been counted so long ago that no store remembers it. Its
// checker gives it up at the same age, but by a clock that stands still while its machine is
// asleep.
func checkAge(m *events.Report, now int64) error {
	if age := time.Duration(now - m.GetMade()); m.GetMade() > 0 && age > events.MaxReportAge {
		return fmt.Errorf("the report is %v old", age.Round(time.Second))
	}
	return nil
}

var (
	errOldReceipt = errors.New("settlement: its receipt is too old")
	errNewReceipt = errors.New("settlement: its receipt is of the future")
	errOtherShard = errors.New("settlement: its key is of another shard")
)

// filterSettlements drops those of a report's settlements that are invalid, or come too late to
// know whether they are new; its hits count all the same.
func (w *Worker) filterSettlements(m *events.Report, now int64, own bool) {
	w.counters.add(func(c *Stats) { c.Settlements += int64(len(m.Settlements)) })
	for i, settlement := range m.GetSettlements() {
		err := w.checkSettlement(settlement, m.GetShard(), w.clock.Time(now))
		if err == nil && !own {
			rule := settlement.GetCharge().GetRule()
			err = w.admitRules(m.GetEpoch(), []*events.Rule{rule}, now)
		}
		if err != nil {
			w.counters.add(func(c *Stats) { c.SettlementsRefused++ })
			w.countRules(err)
			m.Settlements[i] = nil
		}
	}
}

// receiptAhead is how far in the future a receipt may have been made: less than settlements are
// remembered longer than receipts are valid.
const receiptAhead = time.Hour

func (w *Worker) checkSettlement(m *events.Settlement, shard uint32, now int64) error {
	if err := m.Check(); err != nil {
		return err
	}
	rule, shards := m.GetCharge().GetRule(), uint32(len(w.shards()))
	if err := w.checkRules(shards, []*events.Rule{rule}); err != nil {
		return err
	}
	switch age := time.Duration(now - m.GetMade()); {
	case age > events.MaxReceiptAge:
		return errOldReceipt
	case age < -receiptAhead: // or it could be settled again when its number is forgotten
		return errNewReceipt
	case events.Shard(rule.GetName(), string(m.GetCharge().GetKey()), shards) != shard:
		return errOtherShard
	}
	return nil
}

// reports applies and answers reports.
type reports struct {
	w       *Worker
	merger  *merge.Reports
	answers merge.Answers
	list    []*merge.Report // memory to work with
	batch   *storage.Batch  // the last one
}

func (w *Worker) newReports() stepper {
	return &exchange[*report]{w: w, kind: &reports{
		w: w, merger: merge.NewReports(int64(w.o.Tolerance)),
	}}
}

func (e *reports) queueOf(s *shard) *queue.Queue[*report] { return s.reports }

func (e *reports) prepare(ctx context.Context, s *shard, now int64, drain bool) {
	e.w.retry(ctx, s, now)
	e.w.sendAlarms(s, now, drain)
}

func (e *reports) nextDue(s *shard) int64 { return min(s.alarms.Due(), s.retryAt.Load()) }

// maxRetries is how often reports are merged again because some turned out to be repeats. Each time
// more of them are known, so it takes a rival worker that applies the others in between.
const maxRetries = 4

var errRepeats = errors.New("too many retries because of repeated reports")

// apply merges and applies reports, again without those that turn out to have been counted before,
// and answers them.
func (e *reports) apply(
	ctx context.Context, s *shard, requests []*report, clock func() int64,
) error {
	e.list = e.list[:0]
	for _, r := range requests {
		e.list = append(e.list, &r.Report)
	}
	e.merger.Forget()
	for range maxRetries {
		now := e.w.clock.Time(clock())
		e.batch = e.merger.Merge(s.number, e.list, s.seen(), now)
		e.batch.MaxChunks = int64(e.w.o.MaxChunks)
		e.w.revisions.Apply(e.batch.Rules, now)
		traceAll(requests, TraceEvent{
			Kind: TraceApply, Keys: len(e.batch.Keys), Reports: len(requests),
		})
		applied, err := e.call(ctx, s, clock)
		traceAll(requests, TraceEvent{Kind: TraceApplied, Err: err})
		if err != nil {
			return err
		}
		if applied.IsNew() {
			e.answer(s, requests, &applied)
			return nil
		}
		e.w.counters.add(func(c *Stats) { c.Retries++ })
		e.merger.Exclude(&applied)
	}
	return errRepeats
}

// call calls the store, and takes in the outcome.
func (e *reports) call(
	ctx context.Context, s *shard, clock func() int64,
) (storage.Applied, error) {
	newest := s.delays.observe(e.batch, e.list)
	ctx, cancel := context.WithTimeout(ctx, e.w.o.Timeout)
	defer cancel()
	stopTimer := e.w.leaveIfSlow(s)
	begin := clock()
	applied, err := e.w.o.Store.Apply(ctx, e.batch)
	end := clock()
	stopTimer()
	if err == nil && applied.IsNew() {
		err = checkApplied(e.batch, &applied)
	}
	if e.w.o.OnApply != nil {
		info := ApplyInfo{
			Batch: e.batch, Took: time.Duration(end - begin), Err: err,
			Repeated: len(applied.Repeated) + len(applied.Spent),
		}
		if err == nil && applied.IsNew() {
			info.Overflow = applied.Overflow
			if !e.w.members.OwnedByOther(s.number) { // which knows how new the totals are
				info.Excess, info.Near = excessOf(e.batch, &applied, newest)
				info.Delay = s.delays.estimate()
			}
		}
		e.w.o.OnApply(info)
	}
	switch {
	case errors.Is(err, storage.ErrBatch): // says nothing about the shard
		e.w.counters.add(func(c *Stats) { c.ApplyErrors++ })
	case err != nil, applied.IsNew() && len(e.batch.Marks) > 0: // else it has written nothing
		e.w.observeOutcome(s, err, begin, end)
	}
	return applied, err
}

// checkApplied returns an error if a store's answer does not fit the batch.
func checkApplied(batch *storage.Batch, applied *storage.Applied) error {
	if len(applied.Totals) != len(batch.Keys) {
		return fmt.Errorf("%w: %d totals for %d keys", storage.ErrBatch, len(applied.Totals), len(batch.Keys))
	}
	drains := func(key storage.Key) bool { return batch.Rules[key.Rule].Drains() }
	if len(applied.Levels) != len(batch.Keys) && slices.ContainsFunc(batch.Keys, drains) {
		return fmt.Errorf("%w: %d levels for %d keys", storage.ErrBatch, len(applied.Levels), len(batch.Keys))
	}
	return nil
}

// answer answers the reports of an applied batch, and takes in keys near their limit.
func (e *reports) answer(s *shard, requests []*report, applied *storage.Applied) {
	e.w.observeState(s, e.batch.Seen, applied.State, applied.Loss)
	s.refunds.Observe(e.batch, applied)
	e.w.counters.add(func(c *Stats) {
		c.addBatch(e.batch, applied)
		c.Answered += int64(len(requests))
		for _, r := range requests {
			c.SettlementsUncovered += int64(len(r.Uncovered))
			c.SettlementsOverflow += r.Overflow
			if r.Repeated {
				c.Repeated++
			}
		}
	})
	for _, r := range requests {
		e.send(r, e.answers.Refresh(&r.Report, e.batch, applied, &s.refunds))
	}
	s.alarms.Observe(e.batch, applied, e.merger.Reporters())
}

func (e *reports) send(r *report, m events.Message) {
	r.trace(TraceEvent{Kind: TraceAnswered, Err: e.w.send(r.Reply, m)})
}

// reject answers a report that the store cannot take: with an error if it was not counted, so that
// its checker sends it no more, and without totals if it was.
func (e *reports) reject(s *shard, r *report, reason error) {
	e.w.counters.add(func(c *Stats) { c.Refused++ })
	if !r.Repeated {
		e.send(r, refusedReport(r.Epoch, s.number, r.Sequence, reason))
		return
	}
	keys := e.batch.Keys
	unknown := storage.Applied{
		State: s.seen(), Totals: make([][]storage.Cell, len(keys)), Levels: make([]window.Level, len(keys)),
	}
	for i := range keys {
		unknown.Levels[i] = storage.NoLevel
		keys[i].Cells = nil // or the missing totals would mean that the store has no room
	}
	e.send(r, e.answers.Refresh(&r.Report, e.batch, &unknown, &s.refunds))
}

func (e *reports) drop(requests []*report) {
	traceAll(requests, TraceEvent{Kind: TraceDropped})
	e.w.counters.add(func(c *Stats) { c.Dropped += int64(len(requests)) })
}

func traceAll(requests []*report, e TraceEvent) {
	for _, r := range requests {
		r.trace(e)
	}
}

const (
	// minAlarmInterval is AlarmEvery by default in a small fleet, and alarmPerChecker what each
	// checker adds in a large one.
	minAlarmInterval = 4 * time.Millisecond
	alarmPerChecker  = 10 * time.Microsecond

	// alarmKeys is of how many keys an alarm of each shard is, all together, so that what a checker
	// hears does not grow with its fleet. One shard's is of one at least.
	alarmKeys = 1000
)

// sendAlarms sends the shard's alarms, if they are due. An alarm that cannot be sent is lost: the
// keys' next reports raise it again.
func (w *Worker) sendAlarms(s *shard, now int64, drain bool) {
	if drain {
		s.alarms.Flush()
	}
	interval := w.o.AlarmEvery
	if interval == 0 {
		interval = max(minAlarmInterval, time.Duration(w.checkers.Live(now))*alarmPerChecker)
	}
	messages, keys, err := s.alarms.Take(now, w.clock.Time(now), int64(interval))
	sent := 0
	for err == nil && sent < len(messages) {
		if err = w.o.Bus.Alarm(s.number, messages[sent]); err == nil {
			sent++
		}
	}
	w.counters.add(func(c *Stats) {
		c.Alarms += int64(sent)
		if err != nil {
			c.AlarmErrors++
		} else {
			c.AlarmKeys += int64(keys)
		}
	})
}
