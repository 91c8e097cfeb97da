package counter

import (
	"fmt"

	"github.com/dgraph-io/ristretto/v2"

	"github.com/offpath-io/offpath/pkg/events"
)

func (i *idleCounters) Open(keys int) error {
	cache, err := ristretto.NewCache(&ristretto.Config[uint64, *Counter]{
		NumCounters:        10 * int64(keys),
		MaxCost:            int64(keys), // each costs 1
		BufferItems:        64,
		IgnoreInternalCost: true,
	})
	if err != nil {
		return fmt.Errorf("check: idle cache: %w", err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.Cache = cache
	return nil
}

func (i *idleCounters) Close() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.Cache != nil {
		i.Cache.Close()
		i.Cache = nil
	}
}

// use calls f with the cache, if there is one.
func (i *idleCounters) use(f func(*ristretto.Cache[uint64, *Counter])) {
	if !i.mu.TryRLock() {
		return
	}
	defer i.mu.RUnlock()
	if i.Cache != nil {
		f(i.Cache)
	}
}

func (i *idleCounters) isOpen() (open bool) {
	i.use(func(*ristretto.Cache[uint64, *Counter]) { open = true })
	return open
}

// Count returns roughly how many counters there are.
func (i *idleCounters) Count() (n int) {
	i.use(func(cache *ristretto.Cache[uint64, *Counter]) { n = int(cache.MaxCost() - cache.RemainingCost()) })
	return n
}

// remember puts a dead counter into the idle cache, if there is one.
func (g *Group) remember(c Locked) {
	g.Host.Idle.use(func(cache *ristretto.Cache[uint64, *Counter]) {
		cache.Set(events.KeyHash(g.Name, c.Key()), c.Counter, 1)
	})
}

// Recall returns the dead counter that the idle cache remembers for key; its Counter is nil if it
// remembers none. Nobody changes a dead counter, so it needs no lock.
func (g *Group) Recall(key string) (dead Locked) {
	var c *Counter
	g.Host.Idle.use(func(cache *ristretto.Cache[uint64, *Counter]) {
		c, _ = cache.Get(events.KeyHash(g.Name, key))
	})
	if c == nil || c.Group != g || c.Key() != key {
		return Locked{}
	}
	return Locked{c}
}
