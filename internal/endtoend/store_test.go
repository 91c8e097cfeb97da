package endtoend

import (
	"context"
	"errors"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
)

// flakyStore is a store that can be out of reach, or be cut off just after it has done its work.
type flakyStore struct {
	*memstore.Store
	mode  storeMode
	clock func() time.Time // nil: the store has none
}

type storeMode uint8

const (
	storeWorks storeMode = iota
	storeDown
	storeCutOff // applies, but the caller hears nothing of it
)

var errDown = errors.New("the store is down")

func (s *flakyStore) Join(ctx context.Context, shards int) (aggregate.Fleet, error) {
	if s.mode == storeDown {
		return aggregate.Fleet{}, errDown
	}
	fleet, err := s.Store.Join(ctx, shards)
	if s.clock != nil {
		fleet.Time = s.clock()
	}
	return fleet, err
}

func (s *flakyStore) Apply(ctx context.Context, f *aggregate.Fold) (aggregate.Applied, error) {
	return flaky(s, func() (aggregate.Applied, error) { return s.Store.Apply(ctx, f) })
}

func (s *flakyStore) Lease(ctx context.Context, f *aggregate.LeaseFold) (aggregate.Leased, error) {
	return flaky(s, func() (aggregate.Leased, error) { return s.Store.Lease(ctx, f) })
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
