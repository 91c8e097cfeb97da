// Package settlement keeps the settlements of one checker until the store has answered them.
//
// A settlement corrects the cost of a hit after it was charged, by the receipt of the hit. The
// store applies each one once, however often it is sent. The [Queue] refuses receipts that were
// settled here before, holds settlements that are in no report, and decides when to send again
// those that the store could not apply yet.
//
// Times are the checker's own, in nanoseconds, except those of receipts: waits would be wrong when
// the fleet's clock steps.
package settlement

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/offpath-io/offpath/pkg/events"
)

// The errors of [Queue.Take].
var (
	ErrSettled = errors.New("check: the receipt has been settled")
	ErrFull    = errors.New("check: too many settlements wait")
)

// Settlement is one that waits to be reported and answered.
type Settlement struct {
	*events.Settlement
	// uncovered is when the store first did not take it, as checkers of this one's credential had
	// not reported as many hits. due is when to send it again. Own times; 0: that has not happened.
	uncovered, due int64
}

// IsTooOld says whether no aggregator would take the settlement any more, at this time of the
// fleet.
func (s *Settlement) IsTooOld(fleet int64) bool {
	return fleet-s.GetMade() > int64(events.MaxReceiptAge)
}

// The store does not take a settlement while hits that it gives back may be pending at another
// checker. Such a settlement waits so long at least and at most, twice as long each time, and is
// given up after so long.
const (
	uncoveredLeast = 50 * time.Millisecond
	uncoveredMost  = 5 * time.Second
	uncoveredFor   = time.Minute
)

// Queue holds settlements that are in no report, and knows how many are. The zero value is empty.
// Its methods may be called concurrently.
type Queue struct {
	mu    sync.Mutex
	used  used
	queue []Settlement
	// Settlements taken in, answered, and given up, ever.
	taken, answered, lost int64
}

// Take uses a receipt up, and queues its settlements. If they need not be reported, they count as
// answered. The error wraps ErrSettled if the receipt has been used, or ErrFull if more than most
// settlements would wait; the receipt is not used up then.
func (q *Queue) Take(
	r *events.Receipt, list []*events.Settlement, most int, reported bool,
) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	waiting := q.taken - q.answered - q.lost
	switch {
	case q.used.has(r.Epoch, r.Number):
		return ErrSettled
	case reported && waiting+int64(len(list)) > int64(most):
		return fmt.Errorf("%w: %d", ErrFull, waiting)
	}
	q.used.add(r.Epoch, r.Number)
	q.taken += int64(len(list))
	if !reported {
		q.answered += int64(len(list))
		return nil
	}
	for _, s := range list {
		q.queue = append(q.queue, Settlement{Settlement: s})
	}
	return nil
}

// PopDue removes the settlements that are due, and calls f with each. f must not call the queue.
func (q *Queue) PopDue(now int64, f func(Settlement)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	kept := q.queue[:0]
	for _, s := range q.queue {
		if s.due > now {
			kept = append(kept, s)
			continue
		}
		f(s)
	}
	clear(q.queue[len(kept):])
	q.queue = kept
}

// Return puts settlements back whose report was not answered.
func (q *Queue) Return(list ...Settlement) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue = append(q.queue, list...)
}

// Answered takes in that the store has dealt with a report's settlements, but for those at the
// indices of uncovered. These are queued again, or given up after a while. It changes list.
func (q *Queue) Answered(list []Settlement, uncovered []uint32, now int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.answered += int64(len(list))
	for _, i := range uncovered {
		if int64(i) >= int64(len(list)) || list[i].Settlement == nil {
			continue
		}
		s := list[i]
		list[i] = Settlement{} // it is named once
		q.answered--
		if s.uncovered == 0 {
			s.uncovered = now
		}
		waited := now - s.uncovered
		s.due = now + min(max(waited, int64(uncoveredLeast)), int64(uncoveredMost))
		if waited > int64(uncoveredFor) {
			q.lost++
			continue
		}
		q.queue = append(q.queue, s)
	}
}

// GiveUp takes in that so many settlements will not be reported any more.
func (q *Queue) GiveUp(settlements int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lost += int64(settlements)
}

// Counts returns how many settlements were ever taken in, answered and given up.
func (q *Queue) Counts() (taken, answered, lost int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.taken, q.answered, q.lost
}
