package check

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

// Callers who wait for one key under a window stand in line, in the order in which they came to
// this checker. Only the first asks again; it keeps its place until it has been decided, and the
// next one is told. Under buckets, where each has its turn when it comes, a line only counts who
// waits.

// queues are the lines of a limiter.
type queues struct {
	mu    sync.Mutex
	byKey map[lineID]*turns
}

// lineID is a key, and the limit that those who wait are decided by: a class with all of the limit
// may pass when one with a share of it may not, and does not stand behind it.
type lineID struct {
	key      string
	capacity int64
}

// waitingLine is one that a hit of this cost may have to wait in.
type waitingLine struct {
	limiter *Limiter
	lineID
	cost int64
}

// lineAlone is that of a hit against a key, whatever else is known of its caller.
func (l *Limiter) lineAlone(key string, cost int64) waitingLine {
	return waitingLine{l, lineID{key, l.limits.Load().class(nil).capacity}, max(cost, 1)}
}

// turns are a line of *turn, first come first.
type turns struct {
	list.List
	cost int64 // of all
}

// turn is a caller's place in a line.
type turn struct {
	number uint64 // of the wait
	cost   int64
	comes  chan struct{} // closed when it is the first
}

// waiting is the cost of all who wait in the line.
func (l waitingLine) waiting() int64 {
	q := &l.limiter.queues
	q.mu.Lock()
	defer q.mu.Unlock()
	if all := q.byKey[l.lineID]; all != nil {
		return all.cost
	}
	return 0
}

// caller is one call of Wait that waits for its turn. It stands in one line at a time, so that
// nobody waits in a circle.
type caller struct {
	begun  time.Time
	number uint64 // grows from one to the next
	waitingLine
	turn *list.Element // nil if it is in no line
}

func (c *Checker) newCaller() *caller { return &caller{begun: time.Now(), number: c.waits.Add(1)} }

// enter gets in line, unless too many wait, before those who came later. Who is there already
// stays.
func (w *caller) enter(at waitingLine) bool {
	if w.turn != nil && w.limiter == at.limiter && w.lineID == at.lineID {
		return true
	}
	w.leave()
	l := at.limiter
	most := l.Rule().OnLimit.MaxDepth
	if most == 0 {
		most = rules.DefaultDepth
	}
	if l.Rule().Algorithm == rules.LeakyBucket { // who has a place in the queue waits
		most = l.checker.o.MaxWaiting
	}
	waiting, q := &l.checker.reporter.leases.waiting, &l.queues
	q.mu.Lock()
	defer q.mu.Unlock()
	in := q.byKey[at.lineID]
	if in != nil && in.Len() >= most || most < 1 {
		return false
	}
	if waiting.Add(1) > int64(l.checker.o.MaxWaiting) {
		waiting.Add(-1)
		return false
	}
	if in == nil {
		in = new(turns)
		if q.byKey == nil {
			q.byKey = make(map[lineID]*turns)
		}
		q.byKey[at.lineID] = in
	}
	w.waitingLine, w.turn = at, in.add(&turn{w.number, at.cost, make(chan struct{})})
	return true
}

func (l *turns) add(t *turn) (e *list.Element) {
	before := l.Back()
	for before != nil && before.Value.(*turn).number > t.number {
		before = before.Prev()
	}
	if before == nil {
		e = l.PushFront(t)
		close(t.comes)
	} else {
		e = l.InsertAfter(t, before)
	}
	l.cost += t.cost
	return e
}

// leave gives up the place in line, if there is one.
func (w *caller) leave() {
	if w.turn == nil {
		return
	}
	w.limiter.checker.reporter.leases.waiting.Add(-1)
	q := &w.limiter.queues
	q.mu.Lock()
	defer q.mu.Unlock()
	line := q.byKey[w.lineID]
	line.cost -= line.Remove(w.turn).(*turn).cost
	w.turn = nil
	if line.Len() == 0 {
		delete(q.byKey, w.lineID)
		return
	}
	first := line.Front().Value.(*turn)
	select {
	case <-first.comes: // it was before
	default:
		close(first.comes)
	}
}

// pause lets the first in line wait for so long, or until the rules change; others until they are
// the first, or have waited for most, unless that is 0: then the error is errLate.
func (w *caller) pause(ctx context.Context, wait, most time.Duration, swap <-chan struct{}) error {
	comes := w.turn.Value.(*turn).comes
	select {
	case <-comes:
		return w.limiter.pause(ctx, wait, swap)
	default:
	}
	if most == 0 {
		most = Never
	}
	err := w.limiter.pause(ctx, most-time.Since(w.begun), comes)
	select {
	case <-comes:
		return err
	default:
		return cmp.Or(err, errLate)
	}
}

// errLate ends a wait that may not last until its turn.
var errLate = errors.New("check: the turn has not come in time")

// denyUnasked counts a denial of a hit that others were before.
func (l *Limiter) denyUnasked(key string) {
	l.tallies[0].denied.Add(1)
	l.noteDenied(string(l.checker.appendText(nil, key)), 1)
}

// behindOthers is the denial of a hit in whose line others wait. It may pass when all of them have:
// not before as many hits fit, or all that can fit at once.
func (l waitingLine) behindOthers(attrs identity.Attributes) Decision {
	t := l.limiter.limits.Load()
	cost := max(l.cost, min(l.waiting()+l.cost, l.capacity))
	by := decider{limiter: l.limiter, limits: t}
	d := l.limiter.checker.peek(by, l.limiter.now(), attrs, l.key, cost)
	if d.Allowed { // the first of them is about to pass
		d.Allowed = false
		d.deny(t.rule)
		d.RetryAfter = time.Duration(refusalTime)
	}
	return d
}
