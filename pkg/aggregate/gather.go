package aggregate

import (
	"sync"

	"github.com/offpath-io/offpath/pkg/events"
)

// waiting is what a request has in common with all others while it waits for its fold.
type waiting struct {
	epoch, sequence uint64
	reply           func([]byte) error
	arrived         int64 // own time
	weight          int
}

func (h *waiting) head() *waiting { return h }

// request is a report that waits for its answer.
type request struct {
	waiting
	report *events.Report   // its settlements are nil where they made no sense
	own    bool             // it is this worker's own
	follow func(TraceEvent) // nil: it is not traced

	// What a fold knows of it.
	repeated bool // counted before: only its totals are asked for
	rules    []int32
	// uncovered are the settlements, by their index in the report, that give back more than its checker may.
	uncovered []uint32
	overflow  int64   // settlements for which the store has no room
	keys      []int32 // by key of the report, its index in the fold
}

// gather holds the requests of one kind and shard until they are folded, at most one per checker: so
// many checkers, so much memory, however long the store is away.
type gather[R interface{ head() *waiting }] struct {
	every  int64 // how long a request waits for others to fold with, in ns
	budget int   // weight of a full fold

	mu       sync.Mutex
	queue    []R // in order of arrival
	byEpoch  map[uint64]R
	underWay map[uint64]struct{} // epochs that have a request in a fold
	weight   int                 // of the queue
	armed    int64               // when the next hand that sleeps will look, own time
	wake     chan struct{}       // tells a sleeping hand to look sooner than that
}

func newGather[R interface{ head() *waiting }](every int64, budget int) *gather[R] {
	return &gather[R]{
		every:    every,
		budget:   budget,
		byEpoch:  make(map[uint64]R),
		underWay: make(map[uint64]struct{}),
		armed:    never,
		wake:     make(chan struct{}, 1),
	}
}

// fate says what became of a request that was added.
type fate uint8

const (
	fateQueued fate = iota
	fateReplaced
	fateStale // its checker has sent a later one, and so had this one's answer
	fateFull
)

// maxGathered bounds the weight of a shard's queue. It takes a thousand checkers that all wait for a
// dead store node to get there.
const maxGathered = 1 << 20

// add puts r in the queue. If a request of the same checker waits there, r takes its place, unless
// it is an older one.
func (g *gather[R]) add(r R) fate {
	g.mu.Lock()
	defer g.mu.Unlock()
	h := r.head()
	if old, ok := g.byEpoch[h.epoch]; ok {
		return g.replace(old, r)
	}
	if g.weight > maxGathered {
		return fateFull
	}
	g.byEpoch[h.epoch] = r
	g.queue = append(g.queue, r)
	before := g.weight
	g.weight += h.weight
	if h.arrived+g.every < g.armed || before < g.budget && g.weight >= g.budget {
		g.wakeUp()
	}
	return fateQueued
}

// wakeUp lets a hand look soon what is due.
func (g *gather[R]) wakeUp() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// replace puts r in the place of an older request of its checker; it is due when that was.
func (g *gather[R]) replace(old, r R) fate {
	from, to := old.head(), r.head()
	if to.sequence < from.sequence {
		return fateStale
	}
	to.arrived = from.arrived
	g.weight += to.weight - from.weight
	g.byEpoch[to.epoch] = r
	for i := range g.queue {
		if g.queue[i].head() == from {
			g.queue[i] = r
		}
	}
	return fateReplaced
}

// due is when the next fold should be taken, in own time, 0 if at once; never if nothing can be
// taken until a fold under way is done. Whoever goes to sleep asks it last.
func (g *gather[R]) due() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.armed = g.dueLocked()
	return g.armed
}

func (g *gather[R]) dueLocked() int64 {
	at, weight := never, 0
	for _, r := range g.queue {
		if g.isUnderWay(r) {
			continue
		}
		if at == never {
			at = r.head().arrived + g.every
		}
		if weight += r.head().weight; weight >= g.budget {
			return 0
		}
	}
	return at
}

// take moves the oldest requests, up to the budget but at least one, from the queue to dst. Their
// checkers' further requests stay in the queue until done: no two folds under way hold the same
// report.
func (g *gather[R]) take(dst []R) []R {
	g.mu.Lock()
	defer g.mu.Unlock()
	weight, kept := 0, 0
	for i, r := range g.queue {
		if weight > 0 && weight+r.head().weight > g.budget {
			kept += copy(g.queue[kept:], g.queue[i:])
			break
		}
		if g.isUnderWay(r) {
			g.queue[kept] = r
			kept++
			continue
		}
		weight += r.head().weight
		dst = append(dst, r)
		delete(g.byEpoch, r.head().epoch)
		g.underWay[r.head().epoch] = struct{}{}
	}
	clear(g.queue[kept:])
	g.queue = g.queue[:kept]
	g.weight -= weight
	g.armed = never
	return dst
}

// done says that the fold of these requests is no longer under way.
func (g *gather[R]) done(requests []R) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range requests {
		delete(g.underWay, r.head().epoch)
	}
}

func (g *gather[R]) isUnderWay(r R) bool {
	_, ok := g.underWay[r.head().epoch]
	return ok
}

// waiting is how many requests are in the queue.
func (g *gather[R]) waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.queue)
}
