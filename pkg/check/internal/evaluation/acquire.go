package evaluation

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/check/internal/permit"
	"github.com/offpath-io/offpath/pkg/check/internal/ruleset"
	"github.com/offpath-io/offpath/pkg/identity"
)

// Waiting is how callers of a checker wait. It may be used by any goroutine.
type Waiting struct {
	host  *counter.Host
	rules func() *ruleset.Compiled // in force
	ended <-chan struct{}
	most  int64
	Now   atomic.Int64 // how many wait
}

// Init makes it ready, for so many callers at a time.
func (k *Waiting) Init(h *counter.Host, inForce func() *ruleset.Compiled, ended <-chan struct{}, most int64) {
	k.host, k.rules, k.ended, k.most = h, inForce, ended, most
}

// Enter counts a caller who waits, unless there are too many.
func (k *Waiting) Enter() bool {
	if k.Now.Add(1) > k.most {
		k.Now.Add(-1)
		return false
	}
	return true
}

// Leave counts one less.
func (k *Waiting) Leave() { k.Now.Add(-1) }

// ErrEnded ends a wait when Run has: nobody will bring permits.
var ErrEnded = errors.New("check: Run has ended")

// Acquire decides for a request that waits for permits if nothing else denies it. It returns false
// if there are none to wait for; nothing is decided then.
func (k *Waiting) Acquire(
	ctx context.Context, by Decider, attrs identity.Attributes, key string, cost int64, receipt bool,
) (c Charged, ok bool, err error) {
	if by.Limiter == nil && !by.Rules.Strict || by.Limiter != nil && by.Limiter.Group.Strict == nil {
		return c, false, nil
	}
	a := newEvaluation(k.host)
	defer a.free()
	if !a.fill(by, by.Now(k.host), attrs, key, cost, Charging) || len(a.decisions) == 0 {
		return c, false, nil
	}
	if receipt {
		a.exact = true
		defer func() { a.exact = false }()
		a.mayBeSettled()
	}
	c.Decision, err = a.acquire(ctx, k, attrs, cost)
	if receipt && c.Decision.Allowed {
		c.Charges = a.charges(k.host.ExactTime())
	}
	if by.Limiter != nil {
		c.Decision.ownShadow()
	}
	return c, true, err
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
func (a *evaluation) acquire(ctx context.Context, k *Waiting, attrs identity.Attributes, cost int64) (d Decision, err error) {
	if q := &a.decisions[0]; len(a.decisions) == 1 && q.Cost == 1 && !q.barred && q.limits.Clauses == nil && !a.exact {
		c, f := k.host.Table.Load(&q.limiter.Group, a.key(0)), k.host.Freshness()
		if c != nil && checkUnlocked(&d, q.limiter, q.limits, c, k.host.ExactTime(), f) {
			q.noteCost()
			return d, nil
		}
	}
	var w *waiter
	defer func() {
		if w != nil {
			k.Leave()
		}
	}()
	for a.attempt(&d, k, attrs, &w, cost, err == nil) {
		select {
		case <-w.ready:
		case <-ctx.Done():
			err = ctx.Err()
		case <-k.ended:
			err = ErrEnded
		}
	}
	if d.Allowed || err == ErrEnded {
		err = nil
	}
	return d, err
}

// attempt decides once, and writes the decision to d. If mayWait, and that makes sense, nothing is
// decided yet and it returns true: the waiter has its place then, and is made if there is none.
func (a *evaluation) attempt(d *Decision, k *Waiting, attrs identity.Attributes, w **waiter, cost int64, mayWait bool) (waits bool) {
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
				Check(d, k.host, a.Rules, now, attrs, cost)
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
func (a *evaluation) inForce(k *Waiting) bool {
	if a.Rules == nil { // one limiter is asked, whatever rules there are
		return a.decisions[0].origin == a.decisions[0].limiter.Current.Load()
	}
	return a.Rules == k.rules()
}

// renew asks what the rules in force ask; false if nobody has to be waited for then.
func (a *evaluation) renew(k *Waiting, attrs identity.Attributes, now, cost int64) bool {
	if a.Rules == nil {
		a.decisions[0].decideBy(a.decisions[0].limiter.Current.Load(), nil)
		a.blockAlone(now)
		return true
	}
	return a.match(k.rules(), attrs, now, cost, Charging) && len(a.decisions) > 0
}

// lacksPermits says whether only permits are lacking, and asking for them is not known to be in
// vain. The counters are locked.
func (a *evaluation) lacksPermits() bool {
	for i := range a.decisions {
		q := &a.decisions[i]
		if !q.stops() {
			continue
		}
		if !q.HasCounter() || q.limiter.Group.Strict == nil || q.Short || q.Cost > q.limits.Limit || q.At < q.Counter.Permits().InVainUntil() {
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
		if q := &a.decisions[i]; q.HasCounter() && q.limiter.Group.Strict != nil {
			q.Counter.Permits().EndTurn(q.Counter.Moment(q.At))
		}
	}
}

// newWaiter returns a waiter, unless there are too many; who has got one counts as waiting.
func (k *Waiting) newWaiter() *waiter {
	if !k.Enter() {
		return nil
	}
	return &waiter{ready: make(chan struct{}, 1)}
}
