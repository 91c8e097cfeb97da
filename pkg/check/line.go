package check

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

// Callers who wait for one key under a window stand in line, in the order in which they came to
// this checker. Only the first asks again; it keeps its place until it has been decided, and the
// next one is told. Under buckets, where each has its turn when it comes, a line only counts who
// waits.

// waitingLine is one that a hit of this cost may have to wait in.
type waitingLine struct {
	limiter *Limiter
	lineID
	cost int64
}

// lineAlone is that of a hit against a key, whatever else is known of its caller.
func (l *Limiter) lineAlone(key string, cost int64) waitingLine {
	return waitingLine{l, lineID{key, l.limits.Load().class(nil).Capacity}, max(cost, 1)}
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
	checker *Checker
	begun   time.Time
	number  uint64 // grows from one to the next
	waitingLine
	turn *list.Element // nil if it is in no line
}

func (c *Checker) newCaller() *caller {
	return &caller{checker: c, begun: time.Now(), number: c.waits.Add(1)}
}

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
		most = w.checker.o.MaxWaiting
	}
	waiting, q := &w.checker.waiting, &l.queues
	q.mu.Lock()
	defer q.mu.Unlock()
	in := q.byKey[at.lineID]
	if in != nil && in.Len() >= most || most < 1 {
		return false
	}
	if waiting.Add(1) > int64(w.checker.o.MaxWaiting) {
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

// leave gives up the place in line, if there is one.
func (w *caller) leave() {
	if w.turn == nil {
		return
	}
	w.checker.waiting.Add(-1)
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
		return w.checker.pause(ctx, wait, swap)
	default:
	}
	if most == 0 {
		most = Never
	}
	err := w.checker.pause(ctx, most-time.Since(w.begun), comes)
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
	l.group.Tallies[0].Denied.Add(1)
	l.group.NoteDenied(string(l.group.Host.AppendText(nil, key)), 1)
}

// behindOthers is the denial of a hit in whose line others wait. It may pass when all of them have:
// not before as many hits fit, or all that can fit at once.
func (c *Checker) behindOthers(l waitingLine, attrs identity.Attributes) Decision {
	t := l.limiter.limits.Load()
	cost := max(l.cost, min(l.waiting()+l.cost, l.capacity))
	by := decider{limiter: l.limiter, limits: t}
	d := c.peek(by, l.limiter.group.Now(), attrs, l.key, cost)
	if d.Allowed { // the first of them is about to pass
		d.Allowed = false
		d.deny(t.rule)
		d.RetryAfter = time.Duration(counter.RefusalTime)
	}
	return d
}

// pause waits for so long, or until the rules change.
func (c *Checker) pause(ctx context.Context, wait time.Duration, swap <-chan struct{}) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-swap:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.ended:
		return errEnded
	}
}

// errEnded ends a wait when Run has: nobody will bring permits.
var errEnded = errors.New("check: Run has ended")
