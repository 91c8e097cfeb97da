package check

import (
	"context"
	"time"

	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

// Wait is Check for one request by all rules that match its attributes, which waits where the rule that denies lets callers wait
// (on_limit: queue), for as long as it lets them in all: it asks again whenever RetryAfter is over or the rules change, in no order with others who wait. A request
// that only a token or leaky bucket limits waits in its turn, as by [Limiter.Wait]. Permits are waited for as by
// Acquire. It denies at once what would have to wait for longer than that rule's MaxWait or than ctx lasts, and if
// as many wait already as that rule or Options.MaxWaiting allows. If ctx ends first the error is ctx's; when Run ends, the
// request is denied. Each time that it is asked and denied counts as a denial, and is charged by rules
// of `count: all`.
func (c *Checker) Wait(ctx context.Context, attrs identity.Attributes, cost int64) (Decision, error) {
	if l, key, cost, ok := c.inLine(attrs, cost); ok {
		return l.Wait(ctx, key, cost)
	}
	begun := time.Now()
	for {
		swap := c.swaps.next() // first, so that none goes unnoticed
		d, err := c.Acquire(ctx, attrs, cost)
		if err != nil || d.Allowed || !d.Queue || d.RetryAfter == Never || time.Since(begun)+d.RetryAfter > d.MaxWait {
			return d, err
		}
		l, ok := c.Limiter(d.Rule)
		if !ok || !l.mayWait(ctx, d.RetryAfter) {
			return d, nil
		}
		key := string(identity.AppendKey(nil, l.Rule().Key, attrs))
		if !l.queues.enter(l, key) {
			return d, nil
		}
		err = l.pause(ctx, d.RetryAfter, swap)
		l.queues.leave(l, key)
		switch {
		case err == errEnded:
			return d, nil
		case err != nil:
			return d, err
		}
	}
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
