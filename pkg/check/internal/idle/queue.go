// Package idle keeps what has nothing to do at present: a [Queue] of items that wait until somebody
// considers to give them up, and a [Cache] that remembers some of those that were.
package idle

import (
	"math"
	"math/bits"
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/queue"
)

const (
	// FirstLook is how long after it was added an item is considered first, and LaterLook the least
	// time until it is considered again.
	FirstLook = 5 * time.Second
	LaterLook = 30 * time.Second
	// laterLooks is enough for the longest window.
	laterLooks = 21
)

// Queue has items in the order in which they are to be considered. Those that were kept when they
// were considered wait for LaterLook·2^i more, in known[i]. So an item that is of use for days is
// considered a few times only. It is not safe for concurrent use; the zero value is empty.
type Queue[T any] struct {
	fresh queue.FIFO[waiting[T]]
	known [laterLooks]queue.FIFO[waiting[T]]
}

// waiting is an item, and when to consider it.
type waiting[T any] struct {
	item T
	due  int64
}

// isDue says whether to consider the item, which was to wait for this long at most. If it is due
// later than that, the clock has been set back since.
func (w waiting[T]) isDue(now int64, wait time.Duration) bool {
	return w.due <= now || w.due-now > int64(wait)
}

// Add lets an item wait that has never been considered.
func (q *Queue[T]) Add(item T, now int64) {
	q.fresh.Push(waiting[T]{item, now + int64(FirstLook)})
}

// Keep lets an item wait on that has been considered: about as long as it is certainly of use, and
// for LaterLook at least.
func (q *Queue[T]) Keep(item T, now int64, use time.Duration) {
	i := min(max(bits.Len64(uint64(max(use, 0)/LaterLook))-1, 0), laterLooks-1)
	q.known[i].Push(waiting[T]{item, now + int64(LaterLook)<<i})
}

// Len returns how many items have never been considered, and how many have.
func (q *Queue[T]) Len() (fresh, known int) {
	for i := range q.known {
		known += q.known[i].Len()
	}
	return q.fresh.Len(), known
}

// PopFresh takes the first item that has never been considered, if it is due. All are if there is
// hurry.
func (q *Queue[T]) PopFresh(now int64, hurry bool) (item T, ok bool) {
	if q.fresh.Len() == 0 || !hurry && !q.fresh.Peek().isDue(now, FirstLook) {
		return item, false
	}
	return q.fresh.Pop().item, true
}

// PopKnown takes an item that is due to be considered again. If there is hurry, it takes that which
// has waited longest.
func (q *Queue[T]) PopKnown(now int64, hurry bool) (item T, ok bool) {
	longest, next := int64(math.MaxInt64), -1
	for i := range q.known {
		if q.known[i].Len() == 0 {
			continue
		}
		first := q.known[i].Peek()
		switch since := first.due - int64(LaterLook)<<i; {
		case hurry && since < longest:
			longest, next = since, i
		case !hurry && first.isDue(now, LaterLook<<i):
			return q.known[i].Pop().item, true
		}
	}
	if next < 0 {
		return item, false
	}
	return q.known[next].Pop().item, true
}

// Due returns when the next item is to be considered again; the largest number if there is none.
func (q *Queue[T]) Due() int64 {
	due := int64(math.MaxInt64)
	for i := range q.known {
		if q.known[i].Len() > 0 {
			due = min(due, q.known[i].Peek().due)
		}
	}
	return due
}

// LookSoon has all items considered within LaterLook.
func (q *Queue[T]) LookSoon(now int64) {
	for i := range q.known[1:] {
		for late := &q.known[1+i]; late.Len() > 0; {
			q.known[0].Push(waiting[T]{late.Pop().item, now + int64(LaterLook)})
		}
	}
}
