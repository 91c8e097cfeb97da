package aggregate_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate"
)

// The stores of this file misbehave, each in one way, on top of another.

// faulty is a store that fails before or after it has done what it was asked to, or answers badly.
type faulty struct {
	aggregate.Store
	clock int64                   // what Join says, if it is set
	cut   func(*aggregate.Leased) // if it is set, leaves something out of each answer
	// hook, if it is set, is called for each fold with what applies it.
	hook func(fold *aggregate.Fold, do func() (aggregate.Applied, error)) (aggregate.Applied, error)
	// lease, if it is set, is what becomes of a lease fold.
	lease func(*aggregate.LeaseFold) error

	mu sync.Mutex
	faults
	folds, largest int // how many, and how many keys the largest has
}

type faults struct{ join, before, after error }

func (s *faulty) have(f faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
}

func (s *faulty) now() faults {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults
}

func (s *faulty) Join(ctx context.Context, shards int) (aggregate.Fleet, error) {
	if err := s.now().join; err != nil {
		return aggregate.Fleet{}, err
	}
	fleet, err := s.Store.Join(ctx, shards)
	if s.clock != 0 {
		fleet.Time = time.Unix(0, s.clock)
	}
	return fleet, err
}

func (s *faulty) Apply(ctx context.Context, fold *aggregate.Fold) (aggregate.Applied, error) {
	s.mu.Lock()
	s.folds, s.largest = s.folds+1, max(s.largest, len(fold.Keys))
	s.mu.Unlock()
	return attempt(s.now(), func() (aggregate.Applied, error) {
		do := func() (aggregate.Applied, error) { return s.Store.Apply(ctx, fold) }
		if s.hook != nil {
			return s.hook(fold, do)
		}
		return do()
	})
}

func (s *faulty) Lease(ctx context.Context, fold *aggregate.LeaseFold) (aggregate.Leased, error) {
	return attempt(s.now(), func() (aggregate.Leased, error) {
		if s.lease != nil {
			if err := s.lease(fold); err != nil {
				return aggregate.Leased{}, err
			}
		}
		leased, err := s.Store.Lease(ctx, fold)
		if s.cut != nil {
			s.cut(&leased)
		}
		return leased, err
	})
}

func attempt[T any](f faults, do func() (T, error)) (T, error) {
	var nothing T
	if f.before != nil {
		return nothing, f.before
	}
	done, err := do()
	if f.after != nil {
		return nothing, f.after
	}
	return done, err
}

// slow is a store that takes its time, and for one shard never answers.
type slow struct {
	aggregate.Store
	takes time.Duration // before it applies
	after atomic.Int64  // nanoseconds from applying to answering
	hangs uint32        // 0: none

	mu      sync.Mutex
	current map[uint64]bool // the checkers whose reports are in folds
	now     int             // how many folds are under way
	atOnce  int
}

func (s *slow) Apply(ctx context.Context, fold *aggregate.Fold) (aggregate.Applied, error) {
	takes := s.takes
	if s.hangs != 0 && fold.Shard == s.hangs {
		takes = time.Hour
	} else {
		s.enter(fold)
		defer s.leave(fold)
	}
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return aggregate.Applied{}, ctx.Err()
	}
	after := time.Duration(s.after.Load())
	applied, err := s.Store.Apply(ctx, fold)
	time.Sleep(after)
	return applied, err
}

func (s *slow) enter(fold *aggregate.Fold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now++
	s.atOnce = max(s.atOnce, s.now)
	if s.current == nil {
		s.current = make(map[uint64]bool)
	}
	for _, m := range fold.Marks {
		if s.current[m.Epoch] {
			panic(fmt.Sprintf("checker %d has a report in two folds at once", m.Epoch))
		}
		s.current[m.Epoch] = true
	}
}

// most is how many folds were under way at once.
func (s *slow) most() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.atOnce
}

func (s *slow) leave(fold *aggregate.Fold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now--
	for _, m := range fold.Marks {
		delete(s.current, m.Epoch)
	}
}
