package aggregate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/internal/queue"
	"github.com/offpath-io/offpath/pkg/aggregate/internal/wire"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/events"
)

const (
	// gather is how long a report waits for others to be applied with. Checkers report at common
	// moments, so the answer to the first of them would lack the hits of the others. Without a
	// wait, 8 checkers with bursts of 50 times their limit decide 1.7 % of hits wrongly, with 1 ms
	// or 2 ms 0.8 % (means of 7 seeds of loadtest sim burst --load 50 --delay 2ms).
	gather = 2 * time.Millisecond
	// gatherLeases is the same for a lease request, whose callers may be waiting for permits.
	gatherLeases = time.Millisecond
)

// exchange takes requests of one kind out of a shard's queue, has them applied in batches, and
// handles failures. It is a [stepper].
type exchange[R queue.Request] struct {
	w *Worker
	kind[R]
	requests []R // memory to work with
}

// kind is what reports and lease requests do differently.
type kind[R queue.Request] interface {
	// queueOf is where requests for a shard wait.
	queueOf(s *shard) *queue.Queue[R]
	// prepare comes before each batch, and is due at nextDue without one.
	prepare(ctx context.Context, s *shard, now int64, drain bool)
	nextDue(s *shard) int64
	// apply applies requests in one batch, and answers them. An error leaves all of them without an
	// answer; it wraps storage.ErrBatch if the batch's content is the cause.
	apply(ctx context.Context, s *shard, requests []R, clock func() int64) error
	// reject answers a request that the store cannot take.
	reject(s *shard, r R, reason error)
	// drop leaves requests without an answer: their checkers send them again.
	drop(requests []R)
}

func (e *exchange[R]) wake(s *shard) <-chan struct{} { return e.queueOf(s).Wake }

func (e *exchange[R]) step(ctx context.Context, s *shard, clock func() int64, drain bool) int64 {
	q := e.queueOf(s)
	for {
		e.prepare(ctx, s, clock(), drain)
		if due := q.Due(); due == queue.Never || due > clock() && !drain {
			return min(due, e.nextDue(s))
		}
		e.requests = q.Take(e.requests[:0])
		e.process(ctx, s, e.requests, clock)
		q.Done(e.requests)
		clear(e.requests)
	}
}

// process applies requests. A batch that the store cannot take because of its content is split in
// halves, until the one request is found that blocks the others.
func (e *exchange[R]) process(
	ctx context.Context, s *shard, requests []R, clock func() int64,
) {
	if len(requests) == 0 {
		return
	}
	err := e.apply(ctx, s, requests, clock)
	switch {
	case err == nil:
	case !errors.Is(err, storage.ErrBatch):
		e.drop(requests)
	case len(requests) > 1:
		half := len(requests) / 2
		e.process(ctx, s, requests[:half], clock)
		e.process(ctx, s, requests[half:], clock)
	case !e.w.probe(ctx, s, e.w.latest()): // the store takes no batch at all of this shard
		e.drop(requests)
	default:
		if s.rejectLog.allow(e.w.latest()) {
			e.w.o.Log.Warn("a request that the store cannot take is given up",
				slog.Int("shard", int(s.number)),
				slog.String("checker", strconv.FormatUint(requests[0].Head().Epoch, 16)),
				slog.Any("error", err))
		}
		e.reject(s, requests[0], err)
	}
}

// send answers a message. A checker that gets no answer sends again.
func (w *Worker) send(reply func([]byte) error, m events.Message) error {
	data, err := events.Append(nil, m) // fresh memory, as the carrier may keep it
	if err == nil {
		err = reply(data)
	}
	if err != nil {
		w.counters.add(func(c *Stats) { c.ReplyErrors++ })
		return fmt.Errorf("send answer: %w", err)
	}
	return nil
}

// refusal makes the answer to a request that will never be carried out.
type refusal func(epoch uint64, shard uint32, sequence uint64, reason error) events.Message

// refuse answers a payload that is no valid request with the reason, and returns true, if the
// payload names its sender.
func (w *Worker) refuse(
	payload []byte, reply func([]byte) error, reason error, answer refusal,
) bool {
	w.countRules(reason)
	epoch, shard, sequence, ok := events.PeekRequest(payload)
	if ok {
		_ = w.send(reply, answer(epoch, shard, sequence, reason))
	}
	return ok
}

// countRules counts a message that is refused, if its rules are the reason.
func (w *Worker) countRules(reason error) {
	switch {
	case errors.Is(reason, errWindow):
		w.counters.add(func(c *Stats) { c.RulesLong++ })
	case errors.Is(reason, events.ErrRules), errors.Is(reason, errRules):
		w.counters.add(func(c *Stats) { c.RulesMany++ })
	case errors.Is(reason, events.ErrAlgorithm):
		w.counters.add(func(c *Stats) { c.RulesUnknown++ })
	}
}

// maxNewest leaves room for the ages of all live buckets, counted from a bucket of a report.
const maxNewest = 1 << 42

var (
	errWindow = errors.New("a window")                         // beyond Options.MaxWindow
	errRules  = errors.New("too many rules of one credential") // beyond Options.MaxRules
)

// checkRules checks that a message is for a fleet of as many shards as this one, and that its rules
// can be answered.
func (w *Worker) checkRules(shards uint32, rules []*events.Rule) error {
	if ours := len(w.shards()); int64(shards) != int64(ours) {
		return fmt.Errorf("message for a fleet of %d shards; this one has %d", shards, ours)
	}
	for _, r := range rules {
		if n := r.GetNewest(); n > maxNewest || n < -maxNewest {
			return fmt.Errorf("%w: rule %q: bucket %d", events.ErrMalformed, r.GetName(), n)
		}
		shape := wire.Shape(r)
		if shape.Length > w.o.MaxWindow {
			return fmt.Errorf("rule %q: %w of %v; this aggregator takes %v at most",
				r.GetName(), errWindow, shape.Length, w.o.MaxWindow)
		}
		if err := shape.Validate(); err != nil {
			return fmt.Errorf("%w: rule %q: %w", events.ErrMalformed, r.GetName(), err)
		}
	}
	return nil
}

// admitRules refuses a message if its credential has no room for its rules.
func (w *Worker) admitRules(epoch uint64, rules []*events.Rule, now int64) error {
	if !w.quota.Admit(epoch, rules, now) {
		return errRules
	}
	return nil
}
