package check

import (
	"context"
	"time"

	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

// Wait is Check for one request by all rules that match its attributes, which waits where the rule that denies lets callers wait
// (on_limit: queue), for as long as it lets them in all. Who waits first at this checker for a key passes first: the first one asks again whenever RetryAfter
// is over or the rules change. A request
// that only a token or leaky bucket limits waits in its turn, as by [Limiter.Wait]. Permits are waited for as by
// Acquire. It denies at once what would have to wait for longer than that rule's MaxWait or than ctx lasts, and if
// as many wait already as that rule or Options.MaxWaiting allows. If ctx ends first the error is ctx's; when Run ends, the
// request is denied. Each time that it is asked and denied counts as a denial, and is charged by rules
// of `count: all`.
func (c *Checker) Wait(ctx context.Context, attrs identity.Attributes, cost int64) (Decision, error) {
	if l, key, cost, ok := c.inLine(attrs, cost); ok {
		return l.Wait(ctx, key, cost)
	}
	w := c.newCaller()
	defer w.leave()
	for {
		swap := c.swaps.next() // first, so that none goes unnoticed
		var d Decision
		l, key := c.othersWait(w, attrs, cost)
		others := l != nil
		if others {
			d = l.behindOthers(key, cost)
		} else {
			var err error
			if d, err = c.Acquire(ctx, attrs, cost); err != nil || d.Allowed {
				return d, err
			}
			if l, _ = c.Limiter(d.Rule); l != nil {
				key = string(identity.AppendKey(nil, l.Rule().Key, attrs))
			}
		}
		if l == nil || !d.Queue || d.RetryAfter == Never || time.Since(w.begun)+d.RetryAfter > d.MaxWait ||
			!l.mayWait(ctx, d.RetryAfter) || !w.enter(l, key, cost) {
			if others {
				l.denyUnasked(key)
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

// othersWait finds a limiter of the request, and its key there, for which others wait in line already; nil if there is none, if w is in a
// line, or if the request has nothing to wait for.
func (c *Checker) othersWait(w *caller, attrs identity.Attributes, cost int64) (*Limiter, string) {
	if w.turn != nil || c.behind.leases.waiting.Load() == 0 {
		return nil, ""
	}
	if d := c.Peek(attrs, cost); !d.Allowed && (!d.Queue || d.RetryAfter == Never) {
		return nil, ""
	}
	p := c.program.Load()
	var room [8]*rules.Rule
	for _, r := range p.set.Find(room[:0], attrs) {
		l := p.entries[r.Place()].limiter
		if !r.OnLimit.Queue || l.shape.Drains() {
			continue
		}
		if key, ok := r.AppendKey(nil, attrs); ok && l.queues.cost(string(key)) > 0 {
			return l, string(key)
		}
	}
	return nil, ""
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
