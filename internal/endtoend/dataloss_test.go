package endtoend

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/rules"
)

// TestNobodyForgetsMoreThanTheStoreLost: whatever is lost and when, no checker ends up believing
// that less was counted than the store has; and if one worker lives through it all, and so knows
// the latest version, all checkers that still report end up with exactly the store's totals. (A
// blocked key reports nothing, and stays blocked by the hits that there were. Without such a worker
// an older snapshot can get past the version that was remembered before anybody looks; checkers
// that had seen a later one keep the higher totals then.)
func TestNobodyForgetsMoreThanTheStoreLost(t *testing.T) {
	happened, minute := seen{"exact": 0}, &testRules[3]
	for seed := range seeds(25, 750) {
		workers := 1 + int(seed/4%2)
		w := newWorld(t, options{seed: seed, workers: workers, shards: 1, faults: faultsOf(seed), forgetful: seed%2 != 0})
		w.immortal = workers == 1
		w.loseAtRandom()
		w.mend()
		for last := range 2 { // the second time, everybody has seen the latest generation
			for _, c := range w.checkers {
				l, _ := c.Limiter("minute")
				l.Check("k", 1)
				w.advance(time.Second + w.quietFor)
				want, got := max(minute.Limit-w.stored(minute, "k"), 0), w.left(c, "minute", "k")
				w.require(got <= want && (last != 1 || !w.immortal || got >= want || got <= 0),
					"%s sees %d left, by the store it is %d", c.name, got, want)
				if got == want {
					happened["exact"]++
				}
			}
		}
	}
	happened.all(t)
}

func (w *world) loseAtRandom() {
	snapshot := w.store.Snapshot()
	for range 80 {
		w.accident()
		switch w.rand.IntN(15) {
		case 0:
			snapshot = w.store.Snapshot()
		case 1:
			w.store.Restore(snapshot)
		case 2:
			w.store.Lose()
		}
		l, _ := w.anyone().Limiter("minute")
		l.Check("k", 1)
		w.pass(40 * time.Millisecond)
	}
}

// stored asks the store itself for a key's count over its live window; there is one shard.
func (w *world) stored(r *rules.Rule, key string) (sum int64) {
	w.t.Helper()
	applied, err := w.store.Apply(context.Background(), &storage.Batch{
		Now:    w.now,
		Rules:  []storage.Rule{{Name: r.Name, Shape: r.Window, Limit: r.Limit}},
		Ledger: make([]storage.Tally, 1),
		Keys:   []storage.Key{{Text: key}},
	})
	must(w.t, err)
	for _, c := range applied.Totals[0] {
		sum += c.Count
	}
	return sum
}

// flakyStore is a store that can be out of reach, or be cut off just after it has done its work.
type flakyStore struct {
	*memstore.Store
	mode  storeMode
	clock func() time.Time      // nil: the store has none
	full  func(key string) bool // whether there is no room for a key; nil: there is for all
}

type storeMode uint8

const (
	storeWorks storeMode = iota
	storeDown
	storeCutOff // applies, but the caller hears nothing of it
)

var errDown = errors.New("the store is down")

func (s *flakyStore) Join(ctx context.Context, shards int) (storage.Fleet, error) {
	if s.mode == storeDown {
		return storage.Fleet{}, errDown
	}
	fleet, err := s.Store.Join(ctx, shards)
	if s.clock != nil {
		fleet.Time = s.clock()
	}
	return fleet, err
}

func (s *flakyStore) Apply(ctx context.Context, f *storage.Batch) (storage.Applied, error) {
	return flaky(s, func() (storage.Applied, error) { return s.applyFull(ctx, f) })
}

func (s *flakyStore) Lease(ctx context.Context, f *storage.LeaseBatch) (storage.Leased, error) {
	return flaky(s, func() (storage.Leased, error) { return s.Store.Lease(ctx, f) })
}

func flaky[T any](s *flakyStore, do func() (T, error)) (answer T, err error) {
	if s.mode == storeDown {
		return answer, errDown
	}
	done, err := do()
	if s.mode == storeCutOff {
		return answer, errDown
	}
	return done, err
}
