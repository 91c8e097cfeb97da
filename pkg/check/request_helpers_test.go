package check

import (
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/identity"
)

// testTime is the time of all checkers of tests, but for those in a bubble of virtual time: theirs
// is the bubble's.
var testTime atomic.Int64

func testNow() time.Time { return time.Unix(0, testTime.Load()) }

// atTime makes it this time for a checker or limiter, and returns it.
func atTime[T any](now int64, of T) T {
	testTime.Store(now)
	return of
}

// inVirtualTime says whether a test runs in a bubble, where time begins with this century.
func inVirtualTime() bool { return time.Now().Year() < 2020 }

// The modes of Do and Wait, each as one call.

func (c *Checker) try(mode Mode, attrs identity.Attributes, cost int64) Result {
	return c.Do(Request{Attributes: attrs, Cost: cost, Mode: mode})
}

func (l *Limiter) try(mode Mode, key string, cost int64) Result {
	return l.checker().Do(Request{Limiter: l, Key: key, Cost: cost, Mode: mode})
}

func (c *Checker) tryReserve(attrs identity.Attributes, cost int64) (Result, Decision) {
	r := c.try(Reserve, attrs, cost)
	return r, r.Decision
}

func (l *Limiter) tryReserve(key string, cost int64) (Result, Decision) {
	r := l.try(Reserve, key, cost)
	return r, r.Decision
}

func (c *Checker) tryReceipt(attrs identity.Attributes, cost int64) (Decision, string) {
	r := c.Do(Request{Attributes: attrs, Cost: cost, Receipt: true})
	return r.Decision, r.Receipt
}

func (l *Limiter) tryReceipt(key string, cost int64) (Decision, string) {
	r := l.checker().Do(Request{Limiter: l, Key: key, Cost: cost, Receipt: true})
	return r.Decision, r.Receipt
}

func (c *Checker) tryReserveReceipt(attrs identity.Attributes, cost int64) (Result, Decision, string) {
	r := c.Do(Request{Attributes: attrs, Cost: cost, Mode: Reserve, Receipt: true})
	return r, r.Decision, r.Receipt
}

func (l *Limiter) tryReserveReceipt(key string, cost int64) (Result, Decision, string) {
	r := l.checker().Do(Request{Limiter: l, Key: key, Cost: cost, Mode: Reserve, Receipt: true})
	return r, r.Decision, r.Receipt
}

func (c *Checker) tryExplain(attrs identity.Attributes, cost int64) (Decision, []Explanation) {
	r := c.try(Explain, attrs, cost)
	return r.Decision, r.Explanations
}

func (c *Checker) tryInline(mode Mode, l InlineLimit, key string, cost int64) (Decision, error) {
	r := c.Do(Request{Inline: &l, Key: key, Cost: cost, Mode: mode})
	return r.Decision, r.Err
}

// checker returns the checker whose host the limiter's counters have.
func (l *Limiter) checker() *Checker {
	return (*Checker)(unsafe.Add(unsafe.Pointer(l.core.Group.Host), -int(unsafe.Offsetof(Checker{}.host))))
}

// counterOf returns a key's counter, which no other goroutine may use.
func counterOf(l *Limiter, key string) counter.Locked {
	return counter.Locked{Counter: l.core.Group.Lookup([]byte(key))}
}
