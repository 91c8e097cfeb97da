// Package memstore is a store in the worker's own memory: for the embedded default, for tests, and
// for simulations. It keeps the contract of storage.Store and has no clock: the worker's is the
// fleet's time, and what a batch says is now is what expiry goes by.
//
// It can misbehave on request as a real store does: lose everything, or come back as it once was.
package memstore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
)

// Store is the store. Its methods are safe for concurrent use; batches of different shards do not
// wait for each other. The zero value is an empty store.
type Store struct {
	mu       sync.RWMutex // held for reading while shards are used
	recorded int          // shards on record, 0 before the first Join
	offset   time.Duration
	shards   []*shard // as many as have been used
}

var _ storage.Store = (*Store)(nil)

// New returns an empty store.
func New() *Store { return &Store{} }

// Join records the number of shards, 1 if it is to choose itself. The time it returns is always
// zero.
func (s *Store) Join(_ context.Context, shards int) (storage.Fleet, error) {
	if shards < 0 || shards > storage.MaxShards {
		return storage.Fleet{}, fmt.Errorf("join: %d shards: want 1 to %d, or 0", shards, storage.MaxShards)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.recorded == 0 {
		s.recorded = max(shards, 1)
	}
	if shards != 0 && shards != s.recorded {
		return storage.Fleet{}, fmt.Errorf("join: %w: %d asked for, %d recorded", storage.ErrShards, shards, s.recorded)
	}
	return storage.Fleet{Shards: s.recorded, Offset: s.offset}, nil
}

// KeepOffset puts another offset on record. It returns no error.
func (s *Store) KeepOffset(_ context.Context, was, offset time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.offset == was {
		s.offset = offset
	}
	return nil
}

// Apply adds a batch. It returns no error but for a shard beyond storage.MaxShards.
func (s *Store) Apply(_ context.Context, batch *storage.Batch) (storage.Applied, error) {
	if batch.Shard >= storage.MaxShards {
		return storage.Applied{}, fmt.Errorf("apply: shard %d", batch.Shard)
	}
	defer s.mu.RUnlock()
	return s.lockShard(batch.Shard).apply(batch), nil
}

// Lease carries out a lease batch. It returns no error but for a shard beyond storage.MaxShards.
func (s *Store) Lease(_ context.Context, batch *storage.LeaseBatch) (storage.Leased, error) {
	if batch.Shard >= storage.MaxShards {
		return storage.Leased{}, fmt.Errorf("lease: shard %d", batch.Shard)
	}
	defer s.mu.RUnlock()
	return s.lockShard(batch.Shard).lease(batch), nil
}

// lockShard returns a shard, with mu held for reading.
func (s *Store) lockShard(number uint32) *shard {
	s.mu.RLock()
	for int(number) >= len(s.shards) {
		s.mu.RUnlock()
		s.grow(int(number) + 1)
		s.mu.RLock()
	}
	return s.shards[number]
}

func (s *Store) grow(shards int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.shards) < shards {
		s.shards = append(s.shards, newShard())
	}
}

// Ledger returns the sum of all shards' ledgers.
func (s *Store) Ledger(context.Context) (storage.Ledger, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	sum := make(storage.Ledger)
	for _, shard := range s.shards {
		shard.addLedger(sum)
	}
	return sum, nil
}

// Lose drops all data, the number of shards included.
func (s *Store) Lose() { s.Restore(&Snapshot{}) }

// Snapshot is a copy of a store's data.
type Snapshot struct {
	recorded int
	offset   time.Duration
	shards   []*shard
}

// Snapshot returns a copy of all data.
func (s *Store) Snapshot() *Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Snapshot{s.recorded, s.offset, clone(s.shards)}
}

// Restore puts everything back as it was at the time of the snapshot.
func (s *Store) Restore(from *Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recorded, s.offset, s.shards = from.recorded, from.offset, clone(from.shards)
}

func clone(shards []*shard) []*shard {
	copies := make([]*shard, len(shards))
	for i := range shards {
		copies[i] = shards[i].clone()
	}
	return copies
}
