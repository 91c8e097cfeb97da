package check

import (
	"context"
	"time"

	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

// Wait is Check for one request by all rules that match its attributes, which waits where the rule
// that denies lets callers wait (on_limit: queue), for as long as it lets them in all. Who waits
// first at this checker for a key, and by the same limit, passes first: the first one asks again
// whenever RetryAfter is over or the rules change. A request that only a token or leaky bucket
// limits waits in its turn, as by [Limiter.Wait]. Permits are waited for as by Acquire. It denies
// at once what would have to wait for longer than that rule's MaxWait or than ctx lasts, and if as
// many wait already as that rule or Options.MaxWaiting allows. If ctx ends first the error is
// ctx's; when Run ends, the request is denied. Each time that it is asked and denied counts as a
// denial, and is charged by rules of `count: all`.
func (c *Checker) Wait(ctx context.Context, attrs identity.Attributes, cost int64) (Decision, error) {
	if l, key, cost, ok := c.inLine(attrs, cost); ok {
		return l.Wait(ctx, key, cost)
	}
	w := c.newCaller()
	defer w.leave()
	for {
		swap := c.swaps.next() // first, so that none goes unnoticed
		var d Decision
		at, others := c.othersWait(w, attrs, cost)
		if others {
			d = at.behindOthers(attrs)
		} else {
			var err error
			if d, err = c.Acquire(ctx, attrs, cost); err != nil || d.Allowed {
				return d, err
			}
			at, _ = c.findLine(attrs, cost, func(rule string, _ waitingLine) bool { return rule == d.Rule })
		}
		if at.limiter == nil || !d.Queue || d.RetryAfter == Never || time.Since(w.begun)+d.RetryAfter > d.MaxWait ||
			!at.limiter.mayWait(ctx, d.RetryAfter) || !w.enter(at) {
			if others {
				at.limiter.denyUnasked(at.key)
			}
			return d, nil
		}
		switch err := w.pause(ctx, d.RetryAfter, d.MaxWait, swap); {
		case err == errEnded || err == errLate:
			return d, nil
		case err != nil:
			return d, err
		}
	}
}

// othersWait finds a line of the request in which others wait already; none if w is in a
// line, or if the request has nothing to wait for.
func (c *Checker) othersWait(w *caller, attrs identity.Attributes, cost int64) (waitingLine, bool) {
	if w.turn != nil || c.behind.leases.waiting.Load() == 0 {
		return waitingLine{}, false
	}
	if d := c.Peek(attrs, cost); !d.Allowed && (!d.Queue || d.RetryAfter == Never) {
		return waitingLine{}, false
	}
	return c.findLine(attrs, cost, func(_ string, at waitingLine) bool {
		return !at.limiter.shape.Drains() && at.waiting() > 0
	})
}

// findLine returns the first line of the request that is the one, of those under rules that let
// callers wait and limit this one.
func (c *Checker) findLine(
	attrs identity.Attributes, cost int64, isIt func(rule string, at waitingLine) bool,
) (waitingLine, bool) {
	p := c.program.Load()
	a := c.scratch.Get().(*asking)
	defer c.scratch.Put(a)
	if !a.match(p, attrs, c.now(p), max(cost, 1), peeking) {
		return waitingLine{}, false
	}
	for i := range a.asked {
		q := &a.asked[i]
		if q.barred || !q.terms.rule.OnLimit.Queue {
			continue
		}
		if key, ok := q.terms.rule.AppendKey(nil, attrs); ok {
			if at := (waitingLine{q.limiter, lineID{string(key), q.matched.capacity}, q.cost}); isIt(q.terms.name, at) {
				return at, true
			}
		}
	}
	return waitingLine{}, false
}

// inLine finds the one limiter that a request is limited by, if callers wait there in turn: a bucket that drains, of a rule
// that is the same to all requests but for their keys.
func (c *Checker) inLine(attrs identity.Attributes, cost int64) (l *Limiter, key string, of int64, ok bool) {
	p := c.program.Load()
	var room [8]*rules.Rule
	found := p.set.Find(room[:0], attrs)
	if len(found) != 1 {
		return nil, "", 0, false
	}
	e := &p.entries[found[0].Place()]
	if !e.bare || e.terms.clauses != nil || !e.limiter.shape.Drains() || !e.rule.OnLimit.Queue {
		return nil, "", 0, false
	}
	text, ok := e.rule.AppendKey(nil, attrs)
	return e.limiter, string(text), cost, ok
}
