package check

import (
	"context"
	"sync/atomic"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/check/internal/permit"
	"github.com/offpath-io/offpath/pkg/identity"
)

// acquire is Do for a request that waits for permits if nothing else denies it.
func (c *Checker) acquire(ctx context.Context, r *Request) (res Result, err error) {
	by, _ := c.deciderOf(r) // Wait has seen that it does not fail
	if by.limiter == nil && !by.program.strict || by.limiter != nil && by.limiter.group.Strict == nil {
		return c.Do(*r), nil
	}
	a := newEvaluation(&c.host)
	defer a.free()
	cost := max(r.Cost, 1)
	if !a.fill(by, by.now(c), r.Attributes, r.Key, cost, charging) || len(a.decisions) == 0 {
		return c.Do(*r), nil
	}
	if r.Receipt {
		a.exact = true
		defer func() { a.exact = false }()
		a.mayBeSettled()
	}
	res.Decision, err = a.acquire(ctx, c, r.Attributes, cost)
	if r.Receipt && res.Allowed {
		res.Receipt = a.receipt(c, c.host.ExactTime())
	}
	if by.limiter != nil {
		res.ownShadow()
	}
	return res, err
}

// waiter is one caller who waits, at one counter or several.
type waiter struct {
	ready   chan struct{} // holds one
	places  []waiterPlace
	pending atomic.Int32 // places that have not been woken
}

// waiterPlace is a waiter's place at one counter.
type waiterPlace struct {
	counter *counter.Counter
	place   *permit.Place
}

// acquire decides, and waits and decides again while only permits are lacking.
func (a *evaluation) acquire(ctx context.Context, k *Checker, attrs identity.Attributes, cost int64) (d Decision, err error) {
	if q := &a.decisions[0]; len(a.decisions) == 1 && q.Cost == 1 && !q.barred && q.limits.clauses == nil && !a.exact {
		c, f := k.host.Table.Load(&q.limiter.group, a.key(0)), k.host.Freshness()
		if c != nil && q.limiter.checkUnlocked(&d, q.limits, c, k.host.ExactTime(), f) {
			q.noteCost()
			return d, nil
		}
	}
	var w *waiter
	defer func() {
		if w != nil {
			k.waiting.Add(-1)
		}
	}()
	for a.attempt(&d, k, attrs, &w, cost, err == nil) {
		select {
		case <-w.ready:
		case <-ctx.Done():
			err = ctx.Err()
		case <-k.ended:
			err = errEnded
		}
	}
	if d.Allowed || err == errEnded {
		err = nil
	}
	return d, err
}

// attempt decides once, and writes the decision to d. If mayWait, and that makes sense, nothing is
// decided yet and it returns true: the waiter has its place then, and is made if there is none.
func (a *evaluation) attempt(d *Decision, k *Checker, attrs identity.Attributes, w **waiter, cost int64, mayWait bool) (waits bool) {
	now := k.host.ExactTime()
	a.lookForRoom(attrs, now)
	for !a.lock(now) {
	}
	if *w != nil {
		(*w).leave()
		if !a.inForce(k) {
			a.endTurn()
			a.unlock()
			if *d = (Decision{}); !a.renew(k, attrs, now, cost) {
				k.check(d, a.program, now, attrs, cost)
				return false
			}
			a.lookForRoom(attrs, now)
			for !a.lock(now) {
			}
		}
	}
	defer a.unlock()
	*d = Decision{}
	a.ask(d, now)
	waits = mayWait && !d.Allowed && a.lacksPermits()
	if waits && *w == nil {
		*w = k.newWaiter()
		waits = *w != nil
	}
	if waits { // before permits are left behind for others to take
		a.join(*w)
	}
	a.conclude(d.Allowed, waits, now)
	a.reckonDenied(d, now)
	a.endTurn()
	return waits
}

// inForce says whether what is asked is what the rules in force ask.
func (a *evaluation) inForce(k *Checker) bool {
	if a.program == nil { // one limiter is asked, whatever rules there are
		return a.decisions[0].origin == a.decisions[0].limiter.limits.Load()
	}
	return a.program == k.ruleset.Load()
}

// renew asks what the rules in force ask; false if nobody has to be waited for then.
func (a *evaluation) renew(k *Checker, attrs identity.Attributes, now, cost int64) bool {
	if a.program == nil {
		a.decisions[0].decideBy(a.decisions[0].limiter.limits.Load(), nil)
		a.blockAlone(now)
		return true
	}
	return a.match(k.ruleset.Load(), attrs, now, cost, charging) && len(a.decisions) > 0
}

// lacksPermits says whether only permits are lacking, and asking for them is not known to be in
// vain. The counters are locked.
func (a *evaluation) lacksPermits() bool {
	for i := range a.decisions {
		q := &a.decisions[i]
		if !q.stops() {
			continue
		}
		if !q.HasCounter() || q.limiter.group.Strict == nil || q.Short || q.Cost > q.limits.Limit || q.At < q.Counter.Permits().InVainUntil() {
			return false
		}
	}
	return true
}

// join lets a waiter wait at every counter that lacks permits. The counters are locked.
func (a *evaluation) join(w *waiter) {
	for i := range a.decisions {
		q := &a.decisions[i]
		if !q.stops() {
			continue
		}
		p := q.Counter.Permits()
		w.places = append(w.places, waiterPlace{q.Counter.Counter, p.Join(w, q.Cost)})
		w.pending.Add(1)
		q.Counter.Ask(p)
	}
}

// leave takes a waiter out of all counters it waits at, which are locked.
func (w *waiter) leave() {
	for _, p := range w.places {
		p.counter.Permits().Leave(p.place)
	}
	w.places = w.places[:0]
	w.pending.Store(0)
	select {
	case <-w.ready: // from before
	default:
	}
}

// Wake lets a waiter decide: when permits are kept for it wherever it waits, or when there is no
// room somewhere.
func (w *waiter) Wake(reserved bool) {
	if w.pending.Add(-1) > 0 && reserved {
		return
	}
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

// endTurn notes that the decision has been made, and serves the next who wait with what it has
// left. The counters are locked.
func (a *evaluation) endTurn() {
	for i := range a.decisions {
		if q := &a.decisions[i]; q.HasCounter() && q.limiter.group.Strict != nil {
			q.Counter.Permits().EndTurn(q.Counter.Moment(q.At))
		}
	}
}

// newWaiter returns a waiter, unless there are too many; who has got one counts as waiting.
func (c *Checker) newWaiter() *waiter {
	if c.waiting.Add(1) > int64(c.o.MaxWaiting) {
		c.waiting.Add(-1)
		return nil
	}
	return &waiter{ready: make(chan struct{}, 1)}
}
