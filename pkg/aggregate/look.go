package aggregate

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/window"
)

// Errors of Look and Reset beside that of their context.
var (
	// ErrNotJoined says that the store has not been reached yet.
	ErrNotJoined = errors.New("the store has not been reached yet")
	// ErrKey is for a rule or a key that there cannot be.
	ErrKey = errors.New("no such key")
)

// KeyState is what the store knows of one key. Hits that checkers have not reported yet are not in it.
type KeyState struct {
	// Now is the fleet's time that the rest is as of, in Unix nanoseconds.
	Now int64
	// Count is how many hits weigh in the window, or have not drained.
	Count float64
	// Limit is how many there is room for at once, and Remaining how many more would fit.
	Limit, Remaining int64
	// RetryAfter is how long until a hit of cost 1 would fit; 0 if one does now.
	RetryAfter time.Duration
	// FreeAfter is how long until the key is as if it had never been used, if no more hits come.
	FreeAfter time.Duration
	// Denied is how many hits were denied in the buckets that the window touches, as far as checkers have reported that, which they do
	// of keys near their limit.
	Denied int64
	// counts are what the store has of the key's buckets, in no order.
	counts map[int64]bucketCounts
}

// bucketCounts are a bucket's two counters.
type bucketCounts struct{ admitted, refunded int64 }

// left is what has not been given back.
func (c bucketCounts) left() int64 { return max(c.admitted-c.refunded, 0) }

// looks are the questions that a worker asks on behalf of people. To the store they are the reports of one more checker, which never
// has hits of its own.
type looks struct {
	mu       sync.Mutex // one question at a time
	epoch    uint64
	sequence uint64
}

// askAgain is after how long a question is repeated. It is counted once however often it is asked.
const askAgain = 500 * time.Millisecond

// Now is the fleet's time: the store's, as far as the worker has heard of it. It is safe for concurrent use.
func (w *Worker) Now() time.Time { return time.Unix(0, w.clock.fleet(w.now())) }

// Look returns what the store knows of a key of a rule. The rule is one as reports describe it; its Kind does not matter. The worker must be
// running. It is safe for concurrent use.
func (w *Worker) Look(ctx context.Context, rule Rule, key string) (KeyState, error) {
	w.looks.mu.Lock()
	defer w.looks.mu.Unlock()
	return w.look(ctx, rule, key)
}

// Reset gives back all hits of a key that the store knows of, as settlements would: by bucket, so that what comes meanwhile stays. Of
// several at once, at whichever workers, none gives back what another has.
// Checkers that deny the key hear of it at once, others with their next report of it. Of a token or leaky bucket what has settled
// stays, which is what is left of hits older than its window. It returns what was there before and afterwards.
func (w *Worker) Reset(ctx context.Context, rule Rule, key string) (before, after KeyState, err error) {
	w.looks.mu.Lock()
	defer w.looks.mu.Unlock()
	rule.Kind = Admitted
	if before, err = w.look(ctx, rule, key); err != nil {
		return before, after, err
	}
	list := settlements(rule, key, before)
	for len(list) > 0 {
		n := min(len(list), events.MaxSettlements)
		if _, err := w.ask(ctx, rule, key, before.Now, list[:n]); err != nil {
			return before, after, err
		}
		list = list[n:]
	}
	after, err = w.look(ctx, rule, key)
	return before, after, err
}

// settlements give back what is left of each bucket.
func settlements(rule Rule, key string, s KeyState) (list []*events.Settlement) {
	for bucket, counts := range s.counts {
		hits := counts.left()
		if hits == 0 {
			continue
		}
		id := resetID(rule, key, bucket, counts.refunded)
		list = append(list, &events.Settlement{
			Epoch: id.Epoch, Number: id.Number, Made: s.Now, Hits: -hits,
			Charge: &events.Charge{
				Rule: wireRule(&rule, bucket), Key: []byte(key), Cost: events.Count(hits),
				Permits: !rule.Shape.Drains(), // if there are any on record
			},
		})
	}
	return list
}

// resetID is a reset's settlement of a bucket of which so much was refunded before. It is the same for all workers: so of two that have seen
// the same, the store takes one. Else both would give back the same hits, and let as many pass for nothing.
func resetID(rule Rule, key string, bucket, refunded int64) Settled {
	text := fmt.Appendf(nil, "%d %s%d %v %d %d %s", len(rule.Name), rule.Name, rule.Shape.Buckets, rule.Shape, bucket, refunded, key)
	sum := sha256.Sum256(text)
	// The number is small, since stores keep a bit for each number up to it.
	return Settled{Epoch: binary.BigEndian.Uint64(sum[:])>>1 + 1, Number: 1 + uint64(sum[8]%8)}
}

func (w *Worker) look(ctx context.Context, rule Rule, key string) (KeyState, error) {
	now := w.clock.fleet(w.now())
	rule.Kind = Admitted
	refresh, err := w.ask(ctx, rule, key, now, nil)
	if err != nil {
		return KeyState{}, err
	}
	return stateOf(rule, now, refresh), nil
}

// kinds are the counters of a rule, in the order in which they are asked for.
var kinds = [...]Kind{Admitted, Denied, Refunded}

// ask sends the worker a report about one key, and waits for the answer.
func (w *Worker) ask(ctx context.Context, rule Rule, key string, now int64, list []*events.Settlement) (*events.Refresh, error) {
	if err := rule.Shape.Validate(); err != nil {
		return nil, fmt.Errorf("%w: rule %q: %w", ErrKey, rule.Name, err)
	}
	shards := uint32(len(w.shards()))
	if shards == 0 {
		return nil, ErrNotJoined
	}
	l := &w.looks
	if l.epoch == 0 {
		l.epoch = rand.Uint64()>>1 + 1
	}
	l.sequence++
	report := &events.Report{
		Epoch: l.epoch, Shard: events.Shard(rule.Name, key, shards), Shards: shards, Sequence: l.sequence,
		Hits: new(events.Table), Settlements: list,
	}
	for i, kind := range kinds {
		rule.Kind = kind
		report.Hits.Rules = append(report.Hits.Rules, wireRule(&rule, rule.Shape.Bucket(now)))
		report.Hits.AddKey(uint32(i), key)
		report.Hits.AddCell(0, 0)
	}
	payload, err := events.Append(nil, report)
	if err == nil {
		_, err = events.DecodeReport(payload)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	return w.exchange(ctx, payload, l.sequence)
}

// exchange hands the worker a report until it is answered.
func (w *Worker) exchange(ctx context.Context, payload []byte, sequence uint64) (*events.Refresh, error) {
	answers := make(chan []byte, 16) // more than come before anybody looks; others may be lost
	reply := func(data []byte) error {
		select {
		case answers <- data:
		default:
		}
		return nil
	}
	again := time.NewTicker(askAgain)
	defer again.Stop()
	for {
		w.counters.reports.Add(1)
		w.receiveReport(w.now(), payload, reply, true)
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the store has not answered: %w", ctx.Err())
		case <-again.C:
		case data := <-answers:
			refresh, err := events.DecodeRefresh(data)
			switch {
			case err != nil:
				return nil, err
			case refresh.GetError() != "":
				return nil, fmt.Errorf("%w: %s", ErrKey, refresh.GetError())
			case refresh.GetSequence() == sequence && len(refresh.KeyCells) == len(kinds):
				return refresh, nil
			}
		}
	}
}

// stateOf reads an answer to ask.
func stateOf(rule Rule, now int64, m *events.Refresh) KeyState {
	s := KeyState{Now: now, Limit: rule.Limit, counts: make(map[int64]bucketCounts)}
	newest, at := rule.Shape.Bucket(now), 0
	for kind := range kinds {
		for range m.KeyCells[kind] {
			bucket, total := newest-m.Age[at], int64(m.Total[at])
			counts := s.counts[bucket]
			switch kinds[kind] {
			case Admitted:
				counts.admitted = Sum(counts.admitted, total)
			case Refunded:
				counts.refunded = Sum(counts.refunded, total)
			case Denied:
				s.Denied = Sum(s.Denied, total)
			}
			s.counts[bucket] = counts
			at++
		}
	}
	admitted := make([]int64, rule.Shape.Live())
	for bucket, counts := range s.counts {
		// Hits ahead of this worker's clock are in the current bucket soon enough.
		if age := max(newest-bucket, 0); age < int64(len(admitted)) {
			admitted[age] = Sum(admitted[age], counts.left())
		}
	}
	if !rule.Shape.Drains() {
		s.Count = rule.Shape.Count(admitted, now)
		s.Remaining = rule.Shape.Remaining(admitted, rule.Limit, now)
		s.RetryAfter, _ = rule.Shape.RetryAfter(admitted, rule.Limit, 1, now)
		s.FreeAfter = rule.Shape.Reset(admitted, now)
		return s
	}
	var level window.Level
	if len(m.Level) > 0 {
		level = window.Level{Bucket: rule.Shape.Bucket(now) - m.LevelAge[0], Parts: int64(m.Level[0])}
	}
	drain := rule.Drain()
	s.Limit = drain.Burst
	s.Count = drain.Count(level, admitted, now)
	s.Remaining = drain.Remaining(level, admitted, now)
	s.RetryAfter, _ = drain.RetryAfter(level, admitted, 1, now)
	s.FreeAfter = drain.Reset(level, admitted, now)
	return s
}
