package counter

import (
	"strings"
	"time"
	"unsafe"

	"github.com/offpath-io/offpath/pkg/check/internal/level"
	"github.com/offpath-io/offpath/pkg/check/internal/permit"
	"github.com/offpath-io/offpath/pkg/window"
)

// A counter's states, a bit each.
const (
	queued      uint8 = 1 << iota // in a dirty stack or waiting for its report
	InFlight                      // in the report that is not answered yet
	ageing                        // in the queue of counters that may leave
	Dead                          // has left the table; nothing may be charged to it
	deferred                      // queued, but its hits wait for a later report
	notDeferred                   // its hits may not wait any longer
	Viewed                        // a copy to look at, see View
	Informed                      // a message has said what others have admitted
)

// New returns a counter without hits for a key, whose text it copies.
func New(g *Group, key string, now int64) Locked {
	c := Locked{g.blankCounter()}
	c.Group, c.Newest = g, g.Shape.Bucket(now)
	if len(key) > len(c.short) {
		key = strings.Clone(key)
	}
	c.setKey(key)
	if n := 2 * g.Live; n > len(c.inline) {
		c.more = &more{counts: make([]int64, n)}
	}
	if g.Shape.Drains() { // its counts are too many to be inline
		c.more.level = new(level.State)
		c.level().Reset(c.Newest - int64(g.Live))
	}
	return c
}

// bucketsOf is the number of buckets whose counts a counter keeps.
func bucketsOf(s window.Shape) int {
	live := s.Live()
	if !s.Drains() {
		return live
	}
	size := s.BucketSize()
	return live + min(int((spareTime+size-1)/size), live)
}

// blankCounter returns the memory for a counter of the group.
func (g *Group) blankCounter() *Counter {
	if g.Strict == nil {
		return new(Counter)
	}
	s := new(strictCounter)
	s.permits.Forget(g.Strict.Forgotten.Load())
	return &s.Counter
}

// ofStrict returns the memory of a strict group's counter.
func (counter *Counter) ofStrict() *strictCounter { return (*strictCounter)(unsafe.Pointer(counter)) } // see blankCounter

// Permits returns the counter's permits; nil if its group is not strict.
func (counter *Counter) Permits() *permit.Account {
	if counter.Group.Strict == nil {
		return nil
	}
	return &counter.ofStrict().permits
}

// setKey gives a new counter its key's text, which it keeps if it is long.
func (counter *Counter) setKey(key string) {
	counter.length, counter.long = uint16(len(key)), nil
	if copy(counter.short[:], key) < len(key) {
		counter.long = unsafe.StringData(key)
	}
}

// Key returns the key's text. It lies inside the counter if it is short, so that finding a counter
// and comparing its key is one access to memory.
func (counter *Counter) Key() string {
	if counter.long != nil {
		return unsafe.String(counter.long, counter.length)
	}
	return unsafe.String(&counter.short[0], counter.length)
}

// hasKey returns whether this is the key's counter. Most keys are two words long, which may
// overlap: to compare these takes 4 ns less than a call.
func (counter *Counter) hasKey(key string) bool {
	n := uintptr(len(key))
	if n-8 > 8 || n != uintptr(counter.length) {
		return counter.Key() == key
	}
	a, b := unsafe.Pointer(unsafe.StringData(key)), unsafe.Pointer(&counter.short)
	return *(*uint64)(a) == *(*uint64)(b) && *(*uint64)(unsafe.Add(a, n-8)) == *(*uint64)(unsafe.Add(b, n-8))
}

// counts returns the totals per bucket, newest first, followed by the pending part of each.
func (c Locked) counts() []int64 {
	if c.more != nil && c.more.counts != nil {
		return c.more.counts
	}
	return c.inline[:2*c.Group.Live]
}

// Totals returns the totals per bucket, newest first.
func (c Locked) Totals() []int64 { return c.counts()[:c.Group.Live] }

// Pending returns the pending part of each total.
func (c Locked) Pending() []int64 { return c.counts()[c.Group.Live:] }

// Is returns whether any of these bits of the state is set.
func (c Locked) Is(state uint8) bool { return c.State&state != 0 }

// add adds own hits to the newest bucket.
func (c Locked) add(hits int64) {
	counts := c.counts()
	counts[0] += hits
	counts[c.Group.Live] += hits
}

// End is when the newest bucket ends.
func (c Locked) End() int64 { return c.Group.Shape.End(c.Newest) }

// hasPending returns whether any hit is pending. The allowance is withdrawn.
func (c Locked) hasPending() bool { return anyNonZero(c.Pending()) }

// isEmpty returns whether the counter knows of no hit in its window. The counter is current.
func (c Locked) isEmpty() bool {
	return !anyNonZero(c.Totals()) && c.level().IsEmpty()
}

func anyNonZero(counts []int64) bool {
	for _, n := range counts {
		if n != 0 {
			return true
		}
	}
	return false
}

// Forecast returns the counter's forecast, nil if it has none.
func (c Locked) Forecast() *Forecast {
	if c.more == nil {
		return nil
	}
	return c.more.forecast
}

// forgetTraffic drops what decisions near the limit know of the key's traffic. A key that comes
// again learns it again.
func (c Locked) forgetTraffic() {
	if a := c.Forecast(); a != nil && !a.ageing { // otherwise the queue holds its memory
		c.Group.Host.forecastCount.Add(-1)
	}
	if c.more != nil {
		c.more.forecast, c.more.thinning = nil, nil
	}
}

// needMore returns the fields that few counters need, and makes them.
func (c Locked) needMore() *more {
	if c.more == nil {
		c.more = &more{}
	}
	return c.more
}

// level returns the state of the counter's level; nil if it has none.
func (c Locked) level() *level.State {
	if c.more == nil {
		return nil
	}
	return c.more.level
}

// net returns the hits of each bucket that count, newest first: the totals less the refunds. The
// slice is valid until the counter changes, and must not be written.
func (c Locked) net() []int64 {
	if c.more == nil || c.more.refunded == nil {
		return c.Totals()
	}
	net := c.more.net[:0]
	for i, n := range c.Totals() {
		net = append(net, max(n-c.more.refunded[i], 0))
	}
	return net
}

// refunded returns the refunds per bucket; nil if there are none.
func (c Locked) refunded() []int64 {
	if c.more == nil {
		return nil
	}
	return c.more.refunded
}

// mayRefund allocates the counter's refunds, if it has none yet.
func (c Locked) mayRefund() {
	if m := c.needMore(); m.refunded == nil {
		live := c.Group.Live
		both := make([]int64, 2*live)
		m.refunded, m.net = both[:live:live], both[live:]
	}
}

// leave records the newest bucket of a counter that leaves the table.
func (s *strict) leave(p *permit.Account) {
	newest := p.Newest()
	for {
		old := s.Forgotten.Load()
		if newest <= old || s.Forgotten.CompareAndSwap(old, newest) {
			return
		}
	}
}

// spareTime is how much longer than for its live buckets a counter keeps counts, so that a settled
// level that it receives is newer than the one that it has computed itself.
const spareTime = 100 * time.Millisecond

// A counter's activity is measured in *activity units* of 268 ms, so that it fits 32 bits (for 36
// years; only differences are used) and is seldom written.
const activityBits = 28

func activityUnit(now int64) uint32 { return uint32(now >> activityBits) }

func activityUnits(d time.Duration) uint32 { return uint32(int64(d) >> activityBits) }

// Touch records that the key is in use.
func (counter *Counter) Touch(now int64) {
	if t := activityUnit(now); counter.active.Load() != t {
		counter.active.Store(t)
	}
}

// silent returns for how many activity units the key has not been in use.
func (counter *Counter) silent(now int64) uint32 {
	// A difference that is negative, because clocks were read in another order, counts as none.
	if d := activityUnit(now) - counter.active.Load(); d < 1<<31 {
		return d
	}
	return 0
}

// queue makes the next flush see the counter.
func (c Locked) queue() {
	if !c.Is(queued) {
		c.State |= queued
		c.Group.Host.dirty[c.Stripe].push(c.Counter)
	}
}

// endDeferral ends the deferral of a counter whose hits should be reported soon, and keeps the next
// flush from deferring them.
func (c Locked) endDeferral() {
	c.State |= notDeferred
	if c.Is(deferred) {
		c.State &^= deferred | queued
		c.queue()
	}
}

// Locked is a counter whose lock is held, or that no other goroutine can reach. Methods that need
// the lock are methods of it.
type Locked struct{ *Counter }

// Lock takes the counter's lock.
func (counter *Counter) Lock() Locked {
	counter.mu.Lock()
	return Locked{counter}
}

// Unlock releases the lock. The Locked must not be used after that.
func (c Locked) Unlock() { c.mu.Unlock() }
