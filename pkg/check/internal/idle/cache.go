package idle

import (
	"sync"

	"github.com/dgraph-io/ristretto/v2"
)

// Cache remembers values by a hash of what they are of; readers compare that. It may forget any of
// them at any time. The zero value is closed: it remembers nothing. The lock is for closing it:
// whoever comes just then does not wait, and goes without the cache.
type Cache[T any] struct {
	mu    sync.RWMutex
	cache *ristretto.Cache[uint64, T]
}

// Open makes room for so many values.
func (c *Cache[T]) Open(most int) error {
	cache, err := ristretto.NewCache(&ristretto.Config[uint64, T]{
		NumCounters:        10 * int64(most),
		MaxCost:            int64(most), // each costs 1
		BufferItems:        64,
		IgnoreInternalCost: true,
	})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cache = cache
	return nil
}

// Close forgets everything.
func (c *Cache[T]) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cache != nil {
		c.cache.Close()
		c.cache = nil
	}
}

// use calls f with the cache, if it is open.
func (c *Cache[T]) use(f func(*ristretto.Cache[uint64, T])) {
	if !c.mu.TryRLock() {
		return
	}
	defer c.mu.RUnlock()
	if c.cache != nil {
		f(c.cache)
	}
}

// IsOpen says whether it may remember anything.
func (c *Cache[T]) IsOpen() (open bool) {
	c.use(func(*ristretto.Cache[uint64, T]) { open = true })
	return open
}

// Len returns roughly how many values there are.
func (c *Cache[T]) Len() (n int) {
	c.use(func(cache *ristretto.Cache[uint64, T]) { n = int(cache.MaxCost() - cache.RemainingCost()) })
	return n
}

// Put remembers a value, soon.
func (c *Cache[T]) Put(hash uint64, value T) {
	c.use(func(cache *ristretto.Cache[uint64, T]) { cache.Set(hash, value, 1) })
}

// Get returns the value of a hash, if it is remembered.
func (c *Cache[T]) Get(hash uint64) (value T, ok bool) {
	c.use(func(cache *ristretto.Cache[uint64, T]) { value, ok = cache.Get(hash) })
	return value, ok
}

// Wait returns when all that was put has been remembered or refused.
func (c *Cache[T]) Wait() { c.use(func(cache *ristretto.Cache[uint64, T]) { cache.Wait() }) }
