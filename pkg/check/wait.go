package check

import (
	"context"
	"time"

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
		return c.acquire(ctx, &r)
	case r.Limiter != nil:
		return c.waitForLimiter(ctx, &r)
	}
	return c.waitForTurn(ctx, &r)
}

// waitForLimiter waits until its limiter alone lets a request pass.
func (c *Checker) waitForLimiter(ctx context.Context, r *Request) (Result, error) {
	l, w := r.Limiter, c.newCaller()
	defer w.leave()
	for {
		swap := c.swaps.next() // first, so that none goes unnoticed
		res, err := Result{}, error(nil)
		at := l.lineAlone(r.Key, r.Cost)
		others := w.turn == nil && !l.group.Shape.Drains() && at.waiting() > 0
		if others {
			res.Decision = c.behindOthers(at, nil)
			others = res.RetryAfter != Never // or it has nothing to wait for
		}
		if !others {
			res, err = c.attempt(ctx, *r)
		}
		wait := res.Delay
		if !res.Allowed {
			wait = res.RetryAfter
		}
		if err != nil || wait == 0 || wait == Never || !res.Allowed && l.group.Shape.Drains() {
			return res, err
		}
		most := l.Rule().OnLimit.MaxWait
		late := most > 0 && time.Since(w.begun)+wait > most || !fitsDeadline(ctx, wait) || !w.enter(at)
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
			return l.giveUp(res, r, wait, others, err)
		case res.Allowed:
			res.Delay = 0
			return res, nil
		}
	}
}

// giveUp denies a request that has not had its turn after all, and would have had to wait for so
// long.
func (l *Limiter) giveUp(
	res Result, r *Request, wait time.Duration, others bool, err error,
) (Result, error) {
	if res.Cancel() {
		res.Receipt = ""
	}
	switch {
	case l.countsDenied():
		l.Check(r.Key, r.Cost) // now it counts, and if it would just fit, all the same
	case others:
		l.denyUnasked(r.Key)
	}
	res.Allowed, res.RetryAfter, res.Delay = false, wait, 0
	if err == errEnded || err == errLate {
		err = nil
	}
	return res, err
}

// attempt decides once.
func (c *Checker) attempt(ctx context.Context, r Request) (Result, error) {
	l := r.Limiter
	if l.group.Strict != nil {
		return c.acquire(ctx, &r)
	}
	if l.countsDenied() { // a hit that waits is not denied yet
		r.Mode = Peek
		if res := c.Do(r); !res.Allowed && res.RetryAfter != Never {
			return res, nil
		}
		r.Mode = Reserve
	}
	return c.Do(r), nil
}

// countsDenied says whether denied hits count, and callers ask again rather than wait for their
// turn.
func (l *Limiter) countsDenied() bool {
	c := l.limits.Load().clauses
	return c != nil && c.all && !c.shadow && !l.group.Shape.Drains()
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
			res.Decision = c.behindOthers(at, attrs)
		} else {
			var err error
			if res, err = c.acquire(ctx, r); err != nil || res.Allowed {
				return res, err
			}
			at, _ = c.findLine(attrs, cost, func(rule string, _ waitingLine) bool { return rule == res.Rule })
		}
		if at.limiter == nil || !res.Queue || res.RetryAfter == Never || time.Since(w.begun)+res.RetryAfter > res.MaxWait ||
			!fitsDeadline(ctx, res.RetryAfter) || !w.enter(at) {
			if others {
				at.limiter.denyUnasked(at.key)
			}
			return res, nil
		}
		switch err := w.pause(ctx, res.RetryAfter, res.MaxWait, swap); {
		case err == errEnded || err == errLate:
			return res, nil
		case err != nil:
			return res, err
		}
	}
}

// othersWait finds a line of the request in which others wait already; none if w is in a
// line, or if the request has nothing to wait for.
func (c *Checker) othersWait(w *caller, attrs identity.Attributes, cost int64) (waitingLine, bool) {
	if w.turn != nil || c.waiting.Load() == 0 {
		return waitingLine{}, false
	}
	d := c.Do(Request{Attributes: attrs, Cost: cost, Mode: Peek})
	if !d.Allowed && (!d.Queue || d.RetryAfter == Never) {
		return waitingLine{}, false
	}
	return c.findLine(attrs, cost, func(_ string, at waitingLine) bool {
		return !at.limiter.group.Shape.Drains() && at.waiting() > 0
	})
}

// findLine returns the first line of the request that is the one, of those under rules that let
// callers wait and limit this one.
func (c *Checker) findLine(
	attrs identity.Attributes, cost int64, isIt func(rule string, at waitingLine) bool,
) (waitingLine, bool) {
	p := c.ruleset.Load()
	a := newEvaluation(&c.host)
	defer a.free()
	if !a.match(p, attrs, c.host.Time(p.strict), max(cost, 1), peeking) {
		return waitingLine{}, false
	}
	for i := range a.decisions {
		q := &a.decisions[i]
		if q.barred || !q.limits.rule.OnLimit.Queue {
			continue
		}
		if key, ok := q.limits.rule.AppendKey(nil, attrs); ok {
			at := waitingLine{q.limiter, lineID{string(key), q.matched.Capacity}, q.Cost}
			if isIt(q.limits.name, at) {
				return at, true
			}
		}
	}
	return waitingLine{}, false
}

// inLine finds the one limiter that a request is limited by, if callers wait there in turn: a
// bucket that drains, of a rule that is the same to all requests but for their keys.
func (c *Checker) inLine(attrs identity.Attributes) (l *Limiter, key string, ok bool) {
	p := c.ruleset.Load()
	var room [8]*rules.Rule
	found := p.set.Find(room[:0], attrs)
	if len(found) != 1 {
		return nil, "", false
	}
	e := &p.entries[found[0].Place()]
	if !e.bare || e.limits.clauses != nil || !e.limiter.group.Shape.Drains() || !e.rule.OnLimit.Queue {
		return nil, "", false
	}
	text, ok := e.rule.AppendKey(nil, attrs)
	return e.limiter, string(text), ok
}

// fitsDeadline says whether ctx lasts so long, as far as it says.
func fitsDeadline(ctx context.Context, wait time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return !ok || time.Until(deadline) >= wait
}
