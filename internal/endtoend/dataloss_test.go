package endtoend

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"math/rand/v2"
	"slices"
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
	for seed := range seeds(12, 750) {
		workers := 1 + int(seed/4%2)
		faults := faultsOf(seed)
		// All repeats arrive before anybody compares: where the store has lost that it counted a
		// report, a later one would count, and only its sender would hear of it.
		faults.RepeatWithin = min(faults.RepeatWithin, 9*time.Second)
		w := newWorld(t, options{seed: seed, workers: workers, shards: 1, faults: faults, forgetful: seed%2 != 0})
		w.immortal = workers == 1
		w.loseAtRandom()
		w.mend()
		for last := range 2 { // the second time, everybody has seen the latest generation
			for _, c := range w.checkers {
				l, _ := c.Limiter("minute")
				l.Check("k", 1)
				w.advance(time.Second + w.quietFor)
				want, got := w.leftByStore(minute, "k"), w.left(c, "minute", "k")
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
	w.snapshot = w.store.Snapshot()
	for range 80 {
		w.accident(rough.outage)
		w.loss(15)
		l, _ := w.anyone().Limiter("minute")
		l.Check("k", 1)
		w.pass(40 * time.Millisecond)
	}
}

// loss perhaps has the store lose all data, or what is newer than a snapshot, as a stale replica
// does, if there was one in the beginning.
func (w *world) loss(oneIn int) {
	switch event := w.rand.IntN(oneIn); {
	case event == 0:
		w.store.Lose()
	case event == 1 && w.snapshot != nil:
		w.store.Restore(w.snapshot)
	case event == 2 && w.snapshot != nil:
		w.snapshot = w.store.Snapshot()
	}
}

// leftByStore is what is left of a key by the store's own totals; there is one shard.
func (w *world) leftByStore(r *rules.Rule, key string) int64 {
	w.t.Helper()
	applied, err := w.store.Apply(context.Background(), &storage.Batch{
		Now:    w.now,
		Rules:  []storage.Rule{{Name: r.Name, Shape: r.Window, Limit: r.Limit}},
		Ledger: make([]storage.Tally, 1),
		Keys:   []storage.Key{{Text: key}},
	})
	must(w.t, err)
	all := make(history)
	for _, c := range applied.Totals[0] {
		all[c.Bucket] = c.Count
	}
	return w.leftOf(r, all)
}

// flakyStore is a store that can be out of reach, or be cut off just after it has done its work, or
// hang: then it does its work later, when nobody waits for it any more.
type flakyStore struct {
	*memstore.Store
	rand  *rand.Rand
	mode  storeMode
	late  []func()
	dead  map[uint32]bool       // shards whose node is down
	clock func() time.Time      // nil: the store has none
	full  func(key string) bool // whether there is no room for a key; nil: there is for all
}

type storeMode uint8

const (
	storeWorks storeMode = iota
	storeDown
	storeCutOff // applies, but the caller hears nothing of it
	storeHangs
)

var errDown = errors.New("the store is down")

func (s *flakyStore) Join(ctx context.Context, shards int) (storage.Fleet, error) {
	if s.isDown() || s.dead[0] { // its node has the record, too
		return storage.Fleet{}, errDown
	}
	fleet, err := s.Store.Join(ctx, shards)
	if s.clock != nil {
		fleet.Time = s.clock()
	}
	return fleet, err
}

func (s *flakyStore) KeepOffset(ctx context.Context, was, offset time.Duration) error {
	if s.isDown() {
		return errDown
	}
	return s.Store.KeepOffset(ctx, was, offset)
}

func (s *flakyStore) isDown() bool { return s.mode == storeDown || s.mode == storeHangs }

func (s *flakyStore) Apply(ctx context.Context, f *storage.Batch) (storage.Applied, error) {
	return flaky(s, f, f.Shard, func(f *storage.Batch) (storage.Applied, error) { return s.applyFull(ctx, f) })
}

func (s *flakyStore) Lease(ctx context.Context, f *storage.LeaseBatch) (storage.Leased, error) {
	return flaky(s, f, f.Shard, func(f *storage.LeaseBatch) (storage.Leased, error) { return s.Store.Lease(ctx, f) })
}

func flaky[T, B any](s *flakyStore, f *B, shard uint32, do func(*B) (T, error)) (answer T, err error) {
	if s.mode == storeHangs {
		later := copyOf(f)
		s.late = append(s.late, func() { _, _ = do(later) })
	}
	if s.isDown() || s.dead[shard] {
		return answer, errDown
	}
	if len(s.late) > 0 { // without a draw otherwise, so that other schedules stay as they are
		s.finish(s.rand.IntN(1 + len(s.late)))
	}
	done, err := do(f)
	if s.mode == storeCutOff {
		return answer, errDown
	}
	return done, err
}

// finish carries out some of what came over other connections while the store hung.
func (s *flakyStore) finish(n int) {
	for range n {
		i := s.rand.IntN(len(s.late))
		s.late[i]()
		s.late = slices.Delete(s.late, i, i+1)
	}
}

// copyOf copies a batch, whose memory its caller uses again.
func copyOf[B any](f *B) *B {
	var data bytes.Buffer
	c := new(B)
	if err := errors.Join(gob.NewEncoder(&data).Encode(f), gob.NewDecoder(&data).Decode(c)); err != nil {
		panic(err)
	}
	return c
}
