package check

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/dgraph-io/ristretto/v2"

	"github.com/offpath-io/offpath/pkg/events"
)

// A counter lives in its limiter's live map for as long as it is the only copy of something:
// pending hits, hits in flight, a block. When it is none of these any more it may leave
// (eviction.go): to nowhere once its window is empty, or, if room is needed sooner, to the idle
// cache. The cache may drop what it holds at any time; that costs exactness until the key's next
// report is answered, never a hit.

// find returns the counter of key, making it if need be; nil if there is no room for another one.
func (l *Limiter) find(now int64, key string) *counter {
	k := l.checker
	if c := k.table.load(l, key); c != nil {
		return c
	}
	if k.liveKeys.Load() >= int64(k.o.MaxLiveKeys) {
		return nil
	}
	return l.make(now, key)
}

// make adds a counter for key, with what the idle cache remembers of it, unless another goroutine
// was faster.
func (l *Limiter) make(now int64, key string) *counter {
	k := l.checker
	old := l.recall(key)
	c, loaded := k.table.loadOrMake(l, key, func() *counter {
		if k.liveKeys.Add(1) > int64(k.o.MaxLiveKeys) {
			k.liveKeys.Add(-1)
			return nil
		}
		l.cells.Add(1)
		c := newCell(l, key, now)
		if old != nil {
			c.learn(old)
		}
		// Every new counter passes through the dirty queue once: from there it gets into the
		// queue of counters that may leave, even if all its checks are denied.
		c.state, c.stripe = c.state|queued, uint8(k.stripe.Add(1)%stripes)
		c.touch(now)
		return c
	})
	if c != nil && !loaded {
		k.dirty[c.stripe].push(c)
		l.noteRevived()
	}
	if k.reporter.crowded() {
		k.wakeUp()
	}
	return c
}

// learn takes over the counts of a counter that has left the live map, and so does not change.
func (c *counter) learn(old *counter) {
	c.newest, c.generation, c.state, c.overflow = old.newest, old.generation, c.state|old.state&informed, old.overflow
	copy(c.totals(), old.totals())
	if r := old.refunded(); r != nil {
		c.mayRefund()
		copy(c.more.refunded, r)
	}
	if d := old.levelState(); d != nil {
		c.levelState().copy(d)
	}
}

// drop takes a counter out of the live map; it is remembered in the idle cache if it knows a count.
// The counter's lock is held, and nothing of it is pending or in flight.
func (l *Limiter) drop(c *counter) {
	c.state |= dead
	c.setForecast(nil)
	p := c.permits()
	if p != nil { // before another counter can be made for the key
		l.strict.leave(p)
	}
	l.checker.table.remove(c)
	l.checker.liveKeys.Add(-1)
	if p == nil && !c.isEmpty() && !l.retired.Load() {
		l.remember(c)
	}
	l.cells.Add(-1)
}

// idleCounters holds counters that have left the live map, by the hash of rule and key; a reader
// makes sure that it got the right one. It is there while Run is at work. The lock is for its end:
// a check that comes just then does not wait for it, and does without.
type idleCounters struct {
	mu    sync.RWMutex
	cache *ristretto.Cache[uint64, *counter]
}

func (i *idleCounters) open(keys int) error {
	cache, err := ristretto.NewCache(&ristretto.Config[uint64, *counter]{
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
	i.cache = cache
	return nil
}

func (i *idleCounters) close() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.cache != nil {
		i.cache.Close()
		i.cache = nil
	}
}

// use calls f with the cache, if there is one.
func (i *idleCounters) use(f func(*ristretto.Cache[uint64, *counter])) {
	if !i.mu.TryRLock() {
		return
	}
	defer i.mu.RUnlock()
	if i.cache != nil {
		f(i.cache)
	}
}

// count returns roughly how many counters there are.
func (i *idleCounters) count() (n int) {
	i.use(func(cache *ristretto.Cache[uint64, *counter]) { n = int(cache.MaxCost() - cache.RemainingCost()) })
	return n
}

// remember puts a dead counter into the idle cache, if there is one.
func (l *Limiter) remember(c *counter) {
	l.checker.idle.use(func(cache *ristretto.Cache[uint64, *counter]) {
		cache.Set(events.KeyHash(l.name, c.key()), c, 1)
	})
}

// recall returns the dead counter that the idle cache remembers for key, or nil.
func (l *Limiter) recall(key string) (c *counter) {
	l.checker.idle.use(func(cache *ristretto.Cache[uint64, *counter]) {
		c, _ = cache.Get(events.KeyHash(l.name, key))
	})
	if c == nil || c.limiter != l || c.key() != key {
		return nil
	}
	return c
}

// stripes is the number of dirty stacks, and of copies of each limiter's counters: enough that
// cores seldom meet on one.
const stripes = 16

// stack holds counters that have become dirty, newest first. Any goroutine pushes; a flush takes
// all.
type stack struct {
	head atomic.Pointer[counter]
	_    [56]byte // keep the next stack on another cache line
}

func (s *stack) push(c *counter) {
	for {
		head := s.head.Load()
		c.next = head
		if s.head.CompareAndSwap(head, c) {
			return
		}
	}
}

// takeAll empties the stack and returns the counters, linked by next.
func (s *stack) takeAll() *counter {
	if s.head.Load() == nil {
		return nil
	}
	return s.head.Swap(nil)
}
