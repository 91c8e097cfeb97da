package check

import (
	"context"
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/evaluation"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

// Wait is [Checker.Do] for callers that can wait.
//
// In mode Charge it waits for permits, under rules of strict enforcement: if nothing denies the
// request except that a permit is lacking, it waits for the store's answer, and decides then. While
// it is known that there is no room, it denies at once. Waiters of a key are served in the order in
// which they came. If the rules change meanwhile, it decides by the new ones.
//
// In mode Reserve it waits until the request passes, and for permits too. Under a token or leaky
// bucket that is the request's turn. Under other algorithms the caller that waits first at this
// checker for a key, and by the same limit, passes first: it asks again when RetryAfter is over or
// the rules change. By attributes, it waits where the rule that denies lets callers wait (on_limit:
// queue). It denies at once what would wait for longer than that rule's OnLimit.MaxWait or than ctx
// lasts, and what never fits; and what comes when OnLimit.MaxDepth callers (by default
// rules.DefaultDepth) of the key wait already. By attributes, each attempt that is denied counts as
// a denial, and rules of `count: all` charge it.
//
// The other modes and Inline limits have nothing to wait for. When Options.MaxWaiting callers wait,
// nobody else does. The error is ctx's if that ended first, or Result.Err. The result is a denial
// then, and the hit is given back if that can be, see [Result.Cancel]; otherwise its receipt, if
// one was asked for, is there to be settled. When Run ends, what waits is denied.
func (c *Checker) Wait(ctx context.Context, r Request) (Result, error) {
	if _, err := c.deciderOf(&r); err != nil {
		return Result{Err: err}, err
	}
	switch {
	case r.Inline != nil || r.Mode != Charge && r.Mode != Reserve:
		res := c.Do(r)
		return res, res.Err
	case r.Mode == Charge:
		return c.acquire(ctx, r)
	case r.Limiter != nil:
		return c.waitForLimiter(ctx, &r)
	}
	return c.waitForTurn(ctx, &r)
}

// acquire is Do for a request that waits for permits if nothing else denies it.
func (c *Checker) acquire(ctx context.Context, r Request) (res Result, err error) {
	by, _ := c.deciderOf(&r) // Wait has seen that it does not fail
	charged, ok, err := c.waiting.Acquire(ctx, by, r.Attributes, r.Key, max(r.Cost, 1), r.Receipt)
	if !ok {
		return c.Do(r), nil
	}
	if res.Decision = Decision(charged.Decision); r.Receipt && res.Allowed {
		res.Receipt = c.receipt(charged.Charges, c.host.ExactTime())
	}
	return res, err
}

// waitForLimiter waits until its limiter alone lets a request pass.
func (c *Checker) waitForLimiter(ctx context.Context, r *Request) (Result, error) {
	l, w := &r.Limiter.core, c.newCaller()
	defer w.leave()
	for {
		swap := c.swaps.next() // first, so that none goes unnoticed
		res, err := Result{}, error(nil)
		at := evaluation.LineAlone(l, r.Key)
		others := w.place == nil && !l.Group.Shape.Drains() && c.lines.Cost(at) > 0
		if others {
			res.Decision = c.behindOthers(at, nil, r.Cost)
			others = res.RetryAfter != Never // or it has nothing to wait for
		}
		if !others {
			res, err = c.attempt(ctx, *r)
		}
		wait := res.Delay
		if !res.Allowed {
			wait = res.RetryAfter
		}
		if err != nil || wait == 0 || wait == Never || !res.Allowed && l.Group.Shape.Drains() {
			return res, err
		}
		most := l.Current.Load().Rule.OnLimit.MaxWait
		late := most > 0 && time.Since(w.begun)+wait > most || !fitsDeadline(ctx, wait) || !w.enter(at, r.Cost)
		switch {
		case late:
			err = errLate
		case res.Allowed: // it has its turn, which stays
			err = c.pause(ctx, wait, nil)
		default:
			err = w.pause(ctx, wait, most, swap)
		}
		switch {
		case err != nil:
			return giveUp(res, r, wait, others, err)
		case res.Allowed:
			res.Delay = 0
			return res, nil
		}
	}
}

// giveUp denies a request that has not had its turn. wait is how long it would still have had to
// wait.
func giveUp(
	res Result, r *Request, wait time.Duration, others bool, err error,
) (Result, error) {
	l := &r.Limiter.core
	if res.Cancel() {
		res.Receipt = ""
	}
	switch {
	case l.CountsDenied():
		r.Limiter.Check(r.Key, r.Cost) // now it counts, and if it would just fit, all the same
	case others:
		denyUnasked(l, r.Key)
	}
	res.Allowed, res.RetryAfter, res.Delay = false, wait, 0
	if err == evaluation.ErrEnded || err == errLate {
		err = nil
	}
	return res, err
}

// attempt decides once.
func (c *Checker) attempt(ctx context.Context, r Request) (Result, error) {
	l := &r.Limiter.core
	if l.Group.Strict != nil {
		return c.acquire(ctx, r)
	}
	if l.CountsDenied() { // a hit that waits is not denied yet
		r.Mode = Peek
		if res := c.Do(r); !res.Allowed && res.RetryAfter != Never {
			return res, nil
		}
		r.Mode = Reserve
	}
	return c.Do(r), nil
}

// waitForTurn waits until all rules that match let a request pass.
func (c *Checker) waitForTurn(ctx context.Context, r *Request) (Result, error) {
	attrs, cost := r.Attributes, r.Cost
	if l, key, ok := c.inLine(attrs); ok {
		return c.waitForLimiter(ctx, &Request{Limiter: l, Key: key, Cost: cost, Mode: Reserve, Receipt: r.Receipt})
	}
	r.Mode = Charge // each attempt decides for now: a turn of several rules is none to wait for
	w := c.newCaller()
	defer w.leave()
	for {
		swap := c.swaps.next() // first, so that none goes unnoticed
		var res Result
		at, others := c.othersWait(w, attrs, cost)
		if others {
			res.Decision = c.behindOthers(at.LineID, attrs, at.Cost)
		} else {
			var err error
			if res, err = c.acquire(ctx, *r); err != nil || res.Allowed {
				return res, err
			}
			at, _ = c.findLine(attrs, cost, func(at evaluation.Queued) bool { return at.Rule == res.Rule })
		}
		if at.Limiter == nil || !res.Queue || res.RetryAfter == Never || time.Since(w.begun)+res.RetryAfter > res.MaxWait ||
			!fitsDeadline(ctx, res.RetryAfter) || !w.enter(at.LineID, at.Cost) {
			if others {
				denyUnasked(at.Limiter, at.Key)
			}
			return res, nil
		}
		switch err := w.pause(ctx, res.RetryAfter, res.MaxWait, swap); {
		case err == evaluation.ErrEnded || err == errLate:
			return res, nil
		case err != nil:
			return res, err
		}
	}
}

// othersWait finds a line of the request in which others wait already; none if w is in a line, or
// if the request has nothing to wait for.
func (c *Checker) othersWait(w *caller, attrs identity.Attributes, cost int64) (evaluation.Queued, bool) {
	if w.place != nil || c.waiting.Now.Load() == 0 {
		return evaluation.Queued{}, false
	}
	d := c.Do(Request{Attributes: attrs, Cost: cost, Mode: Peek})
	if !d.Allowed && (!d.Queue || d.RetryAfter == Never) {
		return evaluation.Queued{}, false
	}
	return c.findLine(attrs, cost, func(at evaluation.Queued) bool {
		return !at.Limiter.Group.Shape.Drains() && c.lines.Cost(at.LineID) > 0
	})
}

// findLine returns the first line of the request for which isIt returns true, of rules that limit
// the request and let callers wait.
func (c *Checker) findLine(
	attrs identity.Attributes, cost int64, isIt func(evaluation.Queued) bool,
) (found evaluation.Queued, ok bool) {
	p := c.ruleset.Load()
	evaluation.EachQueued(&c.host, p, c.host.Time(p.Strict), attrs, max(cost, 1), func(at evaluation.Queued) bool {
		if ok = isIt(at); ok {
			found = at
		}
		return !ok
	})
	return found, ok
}

// inLine returns the only limiter of a request, if its callers wait for turns: a token or leaky
// bucket, of a rule that treats all requests alike, except for their keys.
func (c *Checker) inLine(attrs identity.Attributes) (l *Limiter, key string, ok bool) {
	p := c.ruleset.Load()
	var room [8]*rules.Rule
	found := p.Rules.Find(room[:0], attrs)
	if len(found) != 1 {
		return nil, "", false
	}
	e := &p.Entries[found[0].Place()]
	if !e.Bare || e.Limits.Clauses != nil || !e.Limiter.Group.Shape.Drains() || !e.Rule.OnLimit.Queue {
		return nil, "", false
	}
	text, ok := e.Rule.AppendKey(nil, attrs)
	return limiterOf(e.Limiter), string(text), ok
}

// fitsDeadline returns whether ctx has no deadline within this time.
func fitsDeadline(ctx context.Context, wait time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return !ok || time.Until(deadline) >= wait
}
