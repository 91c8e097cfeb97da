package memstore

import (
	"context"
	"slices"
	"sync"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
)

// Memory keeps states of shards for the workers of one process, as [aggregate.Memory] says. The
// zero value keeps none yet. It is safe for concurrent use.
type Memory struct {
	mu     sync.Mutex
	states []storage.State
}

// Merge raises the states that are kept, and returns them; it never fails.
func (m *Memory) Merge(_ context.Context, states []storage.State) ([]storage.State, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.states = storage.Latest(m.states, states)
	return slices.Clone(m.states), nil
}
