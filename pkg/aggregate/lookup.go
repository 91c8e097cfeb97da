package aggregate

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/internal/wire"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/window"
)

// Errors of Lookup and Reset beside that of their context.
var (
	// ErrNotJoined says that the store has not been reached yet.
	ErrNotJoined = errors.New("the store has not been reached yet")
	// ErrKey is for an invalid rule or key.
	ErrKey = errors.New("no such key")
)

// KeyState is the store's knowledge of one key, without the hits that checkers have not reported
// yet.
type KeyState struct {
	// Now is the fleet's time of the lookup, in Unix nanoseconds.
	Now int64
	// Count is how many hits count in the window, or have not drained.
	Count float64
	// Limit is how many hits fit at once into an unused key, and Remaining how many fit now.
	Limit, Remaining int64
	// RetryAfter is how long until a hit of cost 1 would fit; 0 if one does now.
	RetryAfter time.Duration
	// FreeAfter is how long until the key is as if it had never been used, if no more hits come.
	FreeAfter time.Duration
	// Denied is how many hits were denied in the buckets that the window touches, as far as
	// checkers have reported them, which they do for keys near their limit.
	Denied int64

	buckets map[int64]bucketCounts
}

// bucketCounts are a bucket's two counters.
type bucketCounts struct{ admitted, refunded int64 }

// net is the hits that have not been given back.
func (c bucketCounts) net() int64 { return max(c.admitted-c.refunded, 0) }

// resendAfter is after how long a lookup is repeated. What it gives back counts once.
const resendAfter = 500 * time.Millisecond

// Lookup returns the store's knowledge of a key of a rule, by a report that the worker sends to
// itself. The rule is one as reports describe it; its Kind does not matter. The worker must be
// running. It is safe for concurrent use.
func (w *Worker) Lookup(ctx context.Context, rule storage.Rule, key string) (KeyState, error) {
	w.lookups.mu.Lock()
	defer w.lookups.mu.Unlock()
	return w.lookupLocked(ctx, rule, key)
}

// Reset gives back all hits of a key that the store knows of, as settlements would: by bucket, so
// that hits that arrive meanwhile stay. Of several resets at once, at any workers, none gives back
// the same hits twice. Checkers that deny the key learn of it at once, others with their next
// report of it. The part of a level that is older than its rule's window stays. It returns the
// key's state before and afterwards.
func (w *Worker) Reset(
	ctx context.Context, rule storage.Rule, key string,
) (before, after KeyState, err error) {
	w.lookups.mu.Lock()
	defer w.lookups.mu.Unlock()
	rule.Kind = storage.Admitted
	if before, err = w.lookupLocked(ctx, rule, key); err != nil {
		return before, after, err
	}
	list := settlements(rule, key, before)
	for len(list) > 0 {
		n := min(len(list), events.MaxSettlements)
		if _, err := w.reportLocked(ctx, rule, key, before.Now, list[:n]); err != nil {
			return before, after, err
		}
		list = list[n:]
	}
	after, err = w.lookupLocked(ctx, rule, key)
	return before, after, err
}

// settlements give back the hits that are left of each bucket.
func settlements(rule storage.Rule, key string, s KeyState) (list []*events.Settlement) {
	for bucket, counts := range s.buckets {
		hits := counts.net()
		if hits == 0 {
			continue
		}
		id := resetID(rule, key, bucket, counts.refunded)
		list = append(list, &events.Settlement{
			Epoch: id.Epoch, Number: id.Number, Made: s.Now, Hits: -hits,
			Charge: &events.Charge{
				Rule: wire.Rule(&rule, bucket), Key: []byte(key), Cost: events.Count(hits),
				Permits: !rule.Shape.Drains(), // if there are any on record
			},
		})
	}
	return list
}

// resetID identifies a reset's settlement of a bucket by the hits refunded before. It is the same
// for all workers: of two that have seen the same counts, the store takes one. Otherwise both would
// give back the same hits, and that many more would pass.
func resetID(rule storage.Rule, key string, bucket, refunded int64) storage.Settled {
	text := fmt.Appendf(nil, "%d %s%d %v %d %d %s",
		len(rule.Name), rule.Name, rule.Shape.Buckets, rule.Shape, bucket, refunded, key)
	sum := sha256.Sum256(text)
	return storage.Settled{
		Epoch:  binary.BigEndian.Uint64(sum[:])>>1 + 1,
		Number: 1 + uint64(sum[8]%8), // small, since stores keep a bit for each number up to it
	}
}

func (w *Worker) lookupLocked(
	ctx context.Context, rule storage.Rule, key string,
) (KeyState, error) {
	now := w.clock.Time(w.now())
	rule.Kind = storage.Admitted
	refresh, err := w.reportLocked(ctx, rule, key, now, nil)
	if err != nil {
		return KeyState{}, err
	}
	return stateOf(rule, now, refresh), nil
}

// kinds are the counters of a rule, in the order in which a lookup asks for them.
var kinds = [...]storage.Kind{storage.Admitted, storage.Denied, storage.Refunded}

// reportLocked sends the worker a report about one key, and waits for the answer.
func (w *Worker) reportLocked(
	ctx context.Context, rule storage.Rule, key string, now int64, list []*events.Settlement,
) (*events.Refresh, error) {
	if err := rule.Shape.Validate(); err != nil {
		return nil, fmt.Errorf("%w: rule %q: %w", ErrKey, rule.Name, err)
	}
	shards := uint32(len(w.shards()))
	if shards == 0 {
		return nil, ErrNotJoined
	}
	l := &w.lookups
	l.sequence++
	m := &events.Report{
		Epoch: l.epoch, Sequence: l.sequence,
		Shard: events.Shard(rule.Name, key, shards), Shards: shards,
		Hits: new(events.Table), Settlements: list,
	}
	for i, kind := range kinds {
		rule.Kind = kind
		m.Hits.Rules = append(m.Hits.Rules, wire.Rule(&rule, rule.Shape.Bucket(now)))
		m.Hits.AddKey(uint32(i), key)
		m.Hits.AddCell(0, 0)
	}
	payload, err := events.Append(nil, m)
	if err == nil {
		_, err = events.DecodeReport(payload)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	return w.awaitAnswer(ctx, payload, l.sequence)
}

// awaitAnswer gives the worker a report until it is answered.
func (w *Worker) awaitAnswer(
	ctx context.Context, payload []byte, sequence uint64,
) (*events.Refresh, error) {
	answers := make(chan []byte, 16) // more than come before one is read; others may be lost
	reply := func(data []byte) error {
		select {
		case answers <- data:
		default:
		}
		return nil
	}
	again := time.NewTicker(resendAfter)
	defer again.Stop()
	for {
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

// stateOf reads the answer to a lookup.
func stateOf(rule storage.Rule, now int64, m *events.Refresh) KeyState {
	s := KeyState{Now: now, Limit: rule.Limit}
	newest := rule.Shape.Bucket(now)
	s.buckets, s.Denied = readCounts(m, newest)
	var cells []storage.Cell
	for bucket, c := range s.buckets {
		cells = append(cells, storage.Cell{Bucket: bucket, Count: c.net()})
	}
	counts := storage.ByAge(nil, rule.Shape, cells, now)
	if !rule.Shape.Drains() {
		s.Count = rule.Shape.Count(counts, now)
		s.Remaining = rule.Shape.Remaining(counts, rule.Limit, now)
		s.RetryAfter, _ = rule.Shape.RetryAfter(counts, rule.Limit, 1, now)
		s.FreeAfter = rule.Shape.Reset(counts, now)
		return s
	}
	var level window.Level
	if len(m.Level) > 0 {
		level = window.Level{Bucket: newest - m.LevelAge[0], Parts: int64(m.Level[0])}
	}
	drain := rule.Drain()
	s.Limit = drain.Burst
	s.Count = drain.Count(level, counts, now)
	s.Remaining = drain.Remaining(level, counts, now)
	s.RetryAfter, _ = drain.RetryAfter(level, counts, 1, now)
	s.FreeAfter = drain.Reset(level, counts, now)
	return s
}

// readCounts reads the counters of a lookup's answer.
func readCounts(m *events.Refresh, newest int64) (buckets map[int64]bucketCounts, denied int64) {
	buckets = make(map[int64]bucketCounts)
	next := 0
	for i, kind := range kinds {
		for range m.KeyCells[i] {
			bucket, total := newest-m.Age[next], int64(m.Total[next])
			c := buckets[bucket]
			switch kind {
			case storage.Admitted:
				c.admitted = storage.Sum(c.admitted, total)
			case storage.Refunded:
				c.refunded = storage.Sum(c.refunded, total)
			case storage.Denied:
				denied = storage.Sum(denied, total)
			}
			buckets[bucket] = c
			next++
		}
	}
	return buckets, denied
}
