package fleet

import (
	"sync"
	"time"

	"github.com/offpath-io/offpath/pkg/events"
)

const (
	// maxCheckers bounds how many checkers are told apart; beyond it, new ones are not counted.
	maxCheckers = 1 << 16
	// Every checker says hello within forget/helloShare, which is at least leastListening: by
	// default a checker says hello every 2 s, and counts for 8 s.
	helloShare     = 6
	leastListening = int64(2500 * time.Millisecond)
	// deaf is after how long without a hello, or a message of its own, an aggregator hears nobody.
	deaf = int64(time.Second)
)

// Checkers counts the checkers that have said hello lately. Every aggregator receives every hello,
// as long as it receives anything: time during which it heard neither a hello nor itself counts
// neither for listening nor for forgetting. Its methods are safe for concurrent use.
type Checkers struct {
	forget int64 // how long a checker counts after its last hello, in ns
	most   int   // of one credential

	mu          sync.Mutex
	heard       int64            // own time at which this aggregator last heard anything; 0 before
	listened    int64            // for how long it had been listening then, in ns
	seen        map[uint64]int64 // by epoch, the time of the last hello, as listening time
	credentials map[uint32]int   // by credential, the number of its checkers
	pruned      int64            // listening time
}

// NewCheckers returns an empty count. A checker is live for forget nanoseconds after its last
// hello; of one credential at most most are counted.
func NewCheckers(forget int64, most int) *Checkers {
	return &Checkers{
		forget: forget, most: most, seen: make(map[uint64]int64), credentials: make(map[uint32]int),
	}
}

// Listen takes in that the aggregator hears itself at own time now.
func (c *Checkers) Listen(now int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listenLocked(now)
}

func (c *Checkers) listenLocked(now int64) {
	c.listened = c.listenedLocked(now)
	c.heard = max(c.heard, now)
}

func (c *Checkers) listenedLocked(now int64) int64 {
	if c.heard == 0 {
		return 0
	}
	return c.listened + min(max(now-c.heard, 0), deaf)
}

// Count is the number of live checkers at own time now, or 0 if that is not known; told is the
// largest number that another aggregator counts, or 0. Before this one has listened for as long as
// a checker counts after its last hello, it may have missed some, which others have heard.
func (c *Checkers) Count(now int64, told uint32) uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pruneLocked(now)
	switch listened, live := c.listenedLocked(now), uint32(len(c.seen)); {
	case listened >= c.forget:
		return live
	case listened >= max(c.forget/helloShare, leastListening):
		return max(live, told)
	}
	return told
}

// Observe takes in a hello at own time now.
func (c *Checkers) Observe(h *events.Hello, now int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listenLocked(now) // where aggregators may not hear each other, they hear checkers
	at := c.pruneLocked(now)
	epoch, credential := h.GetEpoch(), events.CredentialOf(h.GetEpoch())
	_, known := c.seen[epoch]
	full := len(c.seen) >= maxCheckers || c.credentials[credential] >= c.most
	switch {
	case known && h.GetLeaving():
		c.dropLocked(epoch)
	case known:
		c.seen[epoch] = at
	case !full && !h.GetLeaving():
		c.seen[epoch] = at
		c.credentials[credential]++
	}
}

func (c *Checkers) dropLocked(epoch uint64) {
	delete(c.seen, epoch)
	credential := events.CredentialOf(epoch)
	if c.credentials[credential]--; c.credentials[credential] == 0 {
		delete(c.credentials, credential)
	}
}

// Live is the number of checkers at own time now, of those that it has heard.
func (c *Checkers) Live(now int64) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pruneLocked(now)
	return len(c.seen)
}

// pruneLocked drops checkers that have gone, but only now and then, so that a thousand hellos do
// not each walk a thousand checkers. It returns the listening time.
func (c *Checkers) pruneLocked(now int64) (at int64) {
	at = c.listenedLocked(now)
	if at-c.pruned < c.forget/16 {
		return at
	}
	c.pruned = at
	for epoch, seen := range c.seen {
		if at-seen > c.forget {
			c.dropLocked(epoch)
		}
	}
	return at
}
