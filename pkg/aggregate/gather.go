package aggregate

import (
	"sync"

	"github.com/offpath-io/offpath/pkg/events"
)

// request is a report that waits for its answer.
type request struct {
	report  *events.Report
	reply   func([]byte) error
	arrived int64 // own time
	weight  int

	// What a fold knows of it.
	repeated bool // counted before: only its totals are asked for
	rules    []int32
	keys     []int32 // by key of the report, its index in the fold
}

// gather holds the requests of one shard until they are folded, at most one per checker: so many
// checkers, so much memory, however long the store is away.
type gather struct {
	every  int64 // how long a request waits for others to fold with, in ns
	budget int   // weight of a full fold

	mu       sync.Mutex
	queue    []*request // in order of arrival
	byEpoch  map[uint64]*request
	underWay map[uint64]struct{} // epochs that have a request in a fold
	weight   int                 // of the queue
	armed    int64               // when the next hand that sleeps will look, own time
	wake     chan struct{}       // tells a sleeping hand to look sooner than that
}

func newGather(every int64, budget int) *gather {
	return &gather{
		every:    every,
		budget:   budget,
		byEpoch:  make(map[uint64]*request),
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
func (g *gather) add(r *request) fate {
	g.mu.Lock()
	defer g.mu.Unlock()
	if old := g.byEpoch[r.report.GetEpoch()]; old != nil {
		if r.report.GetSequence() < old.report.GetSequence() {
			return fateStale
		}
		g.weight += r.weight - old.weight
		old.report, old.reply, old.weight = r.report, r.reply, r.weight
		return fateReplaced
	}
	if g.weight > maxGathered {
		return fateFull
	}
	g.byEpoch[r.report.GetEpoch()] = r
	g.queue = append(g.queue, r)
	before := g.weight
	g.weight += r.weight
	if r.arrived+g.every < g.armed || before < g.budget && g.weight >= g.budget {
		select {
		case g.wake <- struct{}{}:
		default:
		}
	}
	return fateQueued
}

// due is when the next fold should be taken, in own time, 0 if at once; never if nothing can be
// taken until a fold under way is done. Whoever goes to sleep asks it last.
func (g *gather) due() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.armed = g.dueLocked()
	return g.armed
}

func (g *gather) dueLocked() int64 {
	at, weight := never, 0
	for _, r := range g.queue {
		if g.isUnderWay(r) {
			continue
		}
		if at == never {
			at = r.arrived + g.every
		}
		if weight += r.weight; weight >= g.budget {
			return 0
		}
	}
	return at
}

// take moves the oldest requests, up to the budget but at least one, from the queue to dst. Their
// checkers' further requests stay in the queue until done: no two folds under way hold the same
// report.
func (g *gather) take(dst []*request) []*request {
	g.mu.Lock()
	defer g.mu.Unlock()
	weight, kept := 0, 0
	for i, r := range g.queue {
		if weight > 0 && weight+r.weight > g.budget {
			kept += copy(g.queue[kept:], g.queue[i:])
			break
		}
		if g.isUnderWay(r) {
			g.queue[kept] = r
			kept++
			continue
		}
		weight += r.weight
		dst = append(dst, r)
		delete(g.byEpoch, r.report.GetEpoch())
		g.underWay[r.report.GetEpoch()] = struct{}{}
	}
	clear(g.queue[kept:])
	g.queue = g.queue[:kept]
	g.weight -= weight
	g.armed = never
	return dst
}

// done says that the fold of these requests is no longer under way.
func (g *gather) done(requests []*request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range requests {
		delete(g.underWay, r.report.GetEpoch())
	}
}

func (g *gather) isUnderWay(r *request) bool {
	_, ok := g.underWay[r.report.GetEpoch()]
	return ok
}

// waiting is how many requests are in the queue.
func (g *gather) waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.queue)
}
