package check

import (
	"github.com/offpath-io/offpath/pkg/identity"
)

// Peek is what Check would decide now, without charging anything, counting anything, or changing what comes next. Remaining is what
// is left now. It is not as quick as Check.
func (c *Checker) Peek(attrs identity.Attributes, cost int64) Decision {
	p := c.program.Load()
	return c.peek(p, c.now(p), attrs, max(cost, 1))
}

// PeekAt is Peek at a given time of this checker's own clock, in Unix nanoseconds.
func (c *Checker) PeekAt(now int64, attrs identity.Attributes, cost int64) Decision {
	return c.peek(c.program.Load(), c.clock.Fleet(now), attrs, max(cost, 1))
}

func (c *Checker) peek(p *program, now int64, attrs identity.Attributes, cost int64) (d Decision) {
	a := c.scratch.Get().(*asking)
	defer c.scratch.Put(a)
	switch {
	case !a.match(p, attrs, now, cost, peeking):
		a.bar.decideBarred(&d, now)
		return d
	case len(a.asked) == 0:
		d.Allowed, d.Freshness = true, Freshness(c.freshness.Load())
		return d
	}
	a.lookForRoom(attrs, now)
	return a.askViews(now)
}

// Peek is what Check would decide now, without charging anything, counting anything, or changing what comes next. Remaining is what
// is left now.
func (l *Limiter) Peek(key string, cost int64) Decision { return l.peek(l.now(), key, cost) }

// PeekAt is Peek at a given time of this checker's own clock, in Unix nanoseconds.
func (l *Limiter) PeekAt(now int64, key string, cost int64) Decision {
	return l.peek(l.checker.clock.Fleet(now), key, cost)
}

func (l *Limiter) peek(now int64, key string, cost int64) Decision {
	return l.peekBy(l.terms.Load(), now, nil, key, cost)
}

// peekBy peeks by these terms, for a request of a class that the attributes tell.
func (l *Limiter) peekBy(t *terms, now int64, attrs identity.Attributes, key string, cost int64) Decision {
	a := l.checker.scratch.Get().(*asking)
	defer l.checker.scratch.Put(a)
	a.askAlone(l, t, now, key, max(cost, 1), peeking)
	a.asked[0].decideBy(t, attrs)
	a.lookForRoom(attrs, now)
	d := a.askViews(now)
	d.ownShadow()
	return d
}

// askViews asks all of views of their cells.
func (a *asking) askViews(now int64) Decision {
	for i := range a.asked {
		if q := &a.asked[i]; !q.barred && q.limiter.hasRoomFor(a.key(i)) {
			q.cell = a.viewAt(i).of(q.limiter, a.key(i), now)
		}
	}
	var d Decision
	a.ask(&d, now)
	for i := range a.asked {
		a.asked[i].cell = nil // nobody has locked it
	}
	return d
}

// viewAt returns memory for a view of the cell of the question at place i.
func (a *asking) viewAt(i int) *view {
	for len(a.views) <= i {
		a.views = append(a.views, new(view))
	}
	return a.views[i]
}

// hasRoomFor says whether a key has a cell, or could get one.
func (l *Limiter) hasRoomFor(key string) bool {
	k := l.checker
	return k.cells.load(l, key) != nil || k.liveKeys.Load() < int64(k.o.MaxLiveKeys)
}

// Record charges a hit to all rules that match its attributes, whether or not there is room: for what is known only afterwards, such as a
// login that has failed. It charges no rule whose lists or overrides allow, deny, or exempt the caller.
// A cost below 1 counts as 1. Before, ask Peek.
func (c *Checker) Record(attrs identity.Attributes, cost int64) {
	p := c.program.Load()
	c.record(p, c.now(p), attrs, max(cost, 1))
}

// RecordAt is Record at a given time of this checker's own clock, in Unix nanoseconds.
func (c *Checker) RecordAt(now int64, attrs identity.Attributes, cost int64) {
	c.record(c.program.Load(), c.clock.Fleet(now), attrs, max(cost, 1))
}

func (c *Checker) record(p *program, now int64, attrs identity.Attributes, cost int64) {
	a := c.scratch.Get().(*asking)
	defer c.scratch.Put(a)
	if a.match(p, attrs, now, cost, recording) {
		a.record(now)
	}
}

// Record charges a hit against key, whether or not there is room. A cost below 1 counts as 1.
func (l *Limiter) Record(key string, cost int64) { l.record(l.now(), key, cost) }

// RecordAt is Record at a given time of this checker's own clock, in Unix nanoseconds.
func (l *Limiter) RecordAt(now int64, key string, cost int64) {
	l.record(l.checker.clock.Fleet(now), key, cost)
}

func (l *Limiter) record(now int64, key string, cost int64) {
	a := l.checker.scratch.Get().(*asking)
	defer l.checker.scratch.Put(a)
	a.askAlone(l, l.terms.Load(), now, key, max(cost, 1), recording)
	a.record(now)
}

func (a *asking) record(now int64) {
	for !a.lock(now) {
	}
	defer a.unlock()
	for i := range a.asked {
		q := &a.asked[i]
		q.noteCost()
		if q.cell == nil { // no room for the key
			q.limiter.counters[0].further.Add(q.cost)
			q.limiter.overflow.Add(q.cost)
			q.limiter.stray()
			continue
		}
		q.room, q.at = q.cell.room(q.terms, now)
		q.shared = q.limiter.isShared()
		q.chargeAnyway(q.cost)
	}
}
