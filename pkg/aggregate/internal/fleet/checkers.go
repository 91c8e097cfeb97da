package fleet

import (
	"sync"

	"github.com/offpath-io/offpath/pkg/events"
)

// maxCheckers bounds how many checkers are told apart; beyond it, new ones are not counted.
const maxCheckers = 1 << 16

// Checkers counts the checkers that have said hello lately. Every aggregator receives every hello.
// Its methods are safe for concurrent use.
type Checkers struct {
	forget int64 // how long a checker counts after its last hello, in ns
	most   int   // of one owner

	mu     sync.Mutex
	seen   map[uint64]int64 // by epoch, own time of the last hello
	owners map[uint32]int   // by owner, the number of its checkers
	pruned int64            // own time
}

// NewCheckers returns an empty count. A checker is live for forget nanoseconds after its last
// hello; of one owner's at most most are counted.
func NewCheckers(forget int64, most int) *Checkers {
	return &Checkers{
		forget: forget, most: most, seen: make(map[uint64]int64), owners: make(map[uint32]int),
	}
}

// Observe takes in a hello at own time now.
func (c *Checkers) Observe(h *events.Hello, now int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pruneLocked(now)
	epoch, owner := h.GetEpoch(), events.OwnerOf(h.GetEpoch())
	_, known := c.seen[epoch]
	full := len(c.seen) >= maxCheckers || c.owners[owner] >= c.most
	switch {
	case known && h.GetLeaving():
		c.dropLocked(epoch)
	case known:
		c.seen[epoch] = now
	case !full && !h.GetLeaving():
		c.seen[epoch] = now
		c.owners[owner]++
	}
}

func (c *Checkers) dropLocked(epoch uint64) {
	delete(c.seen, epoch)
	owner := events.OwnerOf(epoch)
	if c.owners[owner]--; c.owners[owner] == 0 {
		delete(c.owners, owner)
	}
}

// Live is the number of checkers at own time now.
func (c *Checkers) Live(now int64) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pruneLocked(now)
	return len(c.seen)
}

// pruneLocked drops checkers that have gone, but only now and then, so that a thousand hellos do
// not each walk a thousand checkers.
func (c *Checkers) pruneLocked(now int64) {
	if now-c.pruned < c.forget/16 && now >= c.pruned {
		return
	}
	c.pruned = now
	for epoch, at := range c.seen {
		if now-at > c.forget {
			c.dropLocked(epoch)
		}
	}
}
