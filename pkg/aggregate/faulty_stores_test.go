package aggregate_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
)

// faulty is a store that fails before or after it has done what it was asked to, answers badly, or
// takes its time. It sees to it that no checker has reports in two batches at once.
type faulty struct {
	storage.Store
	clock func() int64          // what Join says, if it is set
	cut   func(*storage.Leased) // if it is set, leaves something out of each answer
	// hook, if it is set, is called for each batch with what applies it.
	hook func(batch *storage.Batch, do func() (storage.Applied, error)) (storage.Applied, error)
	// hangs, if it is set, says which shards' batches are never answered.
	hangs func(shard uint32) bool
	takes time.Duration // before a batch is applied
	after atomic.Int64  // nanoseconds from applying to answering
	// lease, if it is set, is what becomes of a lease batch.
	lease func(*storage.LeaseBatch) error

	mu sync.Mutex
	faults
	batches, largest int             // how many, and how many keys the largest has
	current          map[uint64]bool // the checkers whose reports are in batches
	atOnce, most     int             // batches under way
}

type faults struct{ join, keep, before, after error }

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

func (s *faulty) Join(ctx context.Context, shards int) (storage.Fleet, error) {
	if err := s.now().join; err != nil {
		return storage.Fleet{}, err
	}
	fleet, err := s.Store.Join(ctx, shards)
	if s.clock != nil {
		fleet.Time = time.Unix(0, s.clock())
	}
	return fleet, err
}

func (s *faulty) KeepOffset(ctx context.Context, was, offset time.Duration) error {
	if err := s.now().keep; err != nil {
		return err
	}
	return s.Store.KeepOffset(ctx, was, offset)
}

func (s *faulty) Apply(ctx context.Context, batch *storage.Batch) (storage.Applied, error) {
	if s.hangs != nil && s.hangs(batch.Shard) {
		<-ctx.Done()
		return storage.Applied{}, ctx.Err()
	}
	s.enter(batch)
	defer s.leave(batch)
	if s.takes > 0 {
		select {
		case <-time.After(s.takes):
		case <-ctx.Done():
			return storage.Applied{}, ctx.Err()
		}
	}
	defer time.Sleep(time.Duration(s.after.Load()))
	return attempt(s.now(), func() (storage.Applied, error) {
		do := func() (storage.Applied, error) { return s.Store.Apply(ctx, batch) }
		if s.hook != nil {
			return s.hook(batch, do)
		}
		return do()
	})
}

func (s *faulty) enter(batch *storage.Batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batches, s.largest = s.batches+1, max(s.largest, len(batch.Keys))
	s.atOnce++
	s.most = max(s.most, s.atOnce)
	if s.current == nil {
		s.current = make(map[uint64]bool)
	}
	for _, m := range batch.Marks {
		if s.current[m.Epoch] {
			panic(fmt.Sprintf("checker %d has a report in two batches at once", m.Epoch))
		}
		s.current[m.Epoch] = true
	}
}

// mostAtOnce is how many batches were under way at once.
func (s *faulty) mostAtOnce() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most
}

func (s *faulty) leave(batch *storage.Batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.atOnce--
	for _, m := range batch.Marks {
		delete(s.current, m.Epoch)
	}
}

func (s *faulty) Lease(ctx context.Context, batch *storage.LeaseBatch) (storage.Leased, error) {
	return attempt(s.now(), func() (storage.Leased, error) {
		if s.lease != nil {
			if err := s.lease(batch); err != nil {
				return storage.Leased{}, err
			}
		}
		leased, err := s.Store.Lease(ctx, batch)
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
