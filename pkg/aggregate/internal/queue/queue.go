// Package queue holds the requests of one shard until they are applied together: at most one per
// checker, so that memory is bounded by the number of checkers, however long the store is away.
package queue

import (
	"math"
	"sync"
	"time"
)

// Never is a time that does not come.
const Never = int64(math.MaxInt64)

// Header is what all kinds of requests have in common while they wait.
type Header struct {
	Epoch, Sequence uint64
	Reply           func([]byte) error
	Arrived         int64 // own time
	Weight          int   // share of a batch's budget
	Size            int   // in bytes
}

// Head returns the header; types that embed one are requests.
func (h *Header) Head() *Header { return h }

// Request waits in a queue.
type Request interface{ Head() *Header }

// Queue holds requests of one kind and shard. Its methods are safe for concurrent use.
type Queue[R Request] struct {
	// Wake tells a goroutine that sleeps until Due to ask again.
	Wake chan struct{}

	delay  int64 // how long a request waits for others, in ns
	budget int   // weight of a full batch

	mu       sync.Mutex
	requests []*entry[R] // in order of arrival
	byEpoch  map[uint64]*entry[R]
	inFlight map[uint64]struct{} // epochs that have a request in a batch
	weight   int                 // of all requests
	armed    int64               // when the next sleeping goroutine wakes, own time
}

// entry is the place of one checker's request.
type entry[R Request] struct{ request R }

// New returns an empty queue. A request waits for delay, or until the requests weigh as much as the
// budget.
func New[R Request](delay time.Duration, budget int) *Queue[R] {
	return &Queue[R]{
		Wake:     make(chan struct{}, 1),
		delay:    int64(delay),
		budget:   budget,
		byEpoch:  make(map[uint64]*entry[R]),
		inFlight: make(map[uint64]struct{}),
		armed:    Never,
	}
}

// Outcome is what Add did with a request.
type Outcome uint8

// The outcomes of Add.
const (
	Queued Outcome = iota
	// Replaced: it took the place of an earlier request of its checker.
	Replaced
	// Stale: its checker has sent a later one, and so has received the answer to this one.
	Stale
	// Full: there was no room.
	Full
)

// maxWeight bounds the weight of a queue. It takes a thousand checkers that all wait for a dead
// store node to reach it.
const maxWeight = 1 << 20

// Add queues r, in the place of an earlier request of the same checker if there is one.
func (q *Queue[R]) Add(r R) Outcome {
	q.mu.Lock()
	defer q.mu.Unlock()
	h := r.Head()
	if e, ok := q.byEpoch[h.Epoch]; ok {
		old := e.request.Head()
		if h.Sequence < old.Sequence {
			return Stale
		}
		h.Arrived = old.Arrived
		q.weight += h.Weight - old.Weight
		e.request = r
		return Replaced
	}
	if q.weight > maxWeight {
		return Full
	}
	e := &entry[R]{r}
	q.byEpoch[h.Epoch] = e
	q.requests = append(q.requests, e)
	before := q.weight
	q.weight += h.Weight
	if h.Arrived+q.delay < q.armed || before < q.budget && q.weight >= q.budget {
		q.WakeUp()
	}
	return Queued
}

// Repeats returns whether this request of a checker waits already. A repeat of it changes nothing
// but where the answer goes.
func (q *Queue[R]) Repeats(epoch, sequence uint64, size int, reply func([]byte) error) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	e, ok := q.byEpoch[epoch]
	if !ok {
		return false
	}
	h := e.request.Head()
	if h.Sequence != sequence || h.Size != size {
		return false
	}
	h.Reply = reply
	return true
}

// WakeUp has a sleeping goroutine ask again whether anything is due.
func (q *Queue[R]) WakeUp() {
	select {
	case q.Wake <- struct{}{}:
	default:
	}
}

// Due is when the next batch should be taken, in own time, 0 if at once; [Never] if nothing can be
// taken until a batch in flight is done. A goroutine asks it last before it sleeps.
func (q *Queue[R]) Due() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.armed = q.dueLocked()
	return q.armed
}

func (q *Queue[R]) dueLocked() int64 {
	at, weight := Never, 0
	for _, e := range q.requests {
		if q.isInFlightLocked(e.request) {
			continue
		}
		h := e.request.Head()
		if at == Never {
			at = h.Arrived + q.delay
		}
		if weight += h.Weight; weight >= q.budget {
			return 0
		}
	}
	return at
}

// Take moves the oldest requests, up to the budget but at least one, from the queue to dst. Their
// checkers' further requests stay in the queue until Done: no two batches in flight hold the same
// report.
func (q *Queue[R]) Take(dst []R) []R {
	q.mu.Lock()
	defer q.mu.Unlock()
	weight, kept := 0, 0
	for i, e := range q.requests {
		h := e.request.Head()
		if weight > 0 && weight+h.Weight > q.budget {
			kept += copy(q.requests[kept:], q.requests[i:])
			break
		}
		if q.isInFlightLocked(e.request) {
			q.requests[kept] = e
			kept++
			continue
		}
		weight += h.Weight
		dst = append(dst, e.request)
		delete(q.byEpoch, h.Epoch)
		q.inFlight[h.Epoch] = struct{}{}
	}
	clear(q.requests[kept:])
	q.requests = q.requests[:kept]
	q.weight -= weight
	q.armed = Never
	if q.dueLocked() != Never { // another goroutine may take the rest
		q.WakeUp()
	}
	return dst
}

// Done says that the batch of these requests is no longer in flight.
func (q *Queue[R]) Done(requests []R) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range requests {
		delete(q.inFlight, r.Head().Epoch)
	}
}

func (q *Queue[R]) isInFlightLocked(r R) bool {
	_, ok := q.inFlight[r.Head().Epoch]
	return ok
}

// Oldest is when the oldest request in the queue arrived, own time; [Never] if there is none.
func (q *Queue[R]) Oldest() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.requests) == 0 {
		return Never
	}
	return q.requests[0].request.Head().Arrived
}

// Len is the number of requests in the queue.
func (q *Queue[R]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.requests)
}
