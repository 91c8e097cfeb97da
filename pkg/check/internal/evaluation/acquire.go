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

// Waiting lets callers of a checker wait. Any goroutine may use it.
type Waiting struct {
	host  *counter.Host
	rules func() *ruleset.Compiled // in force
	ended <-chan struct{}
	most  int64
	Now   atomic.Int64 // callers that wait
}

// Init initializes it, for at most most callers at a time.
func (k *Waiting) Init(h *counter.Host, inForce func() *ruleset.Compiled, ended <-chan struct{}, most int64) {
	k.host, k.rules, k.ended, k.most = h, inForce, ended, most
}

// Enter counts a caller that waits. It returns false if there are too many.
func (k *Waiting) Enter() bool {
	if k.Now.Add(1) > k.most {
		k.Now.Add(-1)
		return false
	}
	return true
}

// Leave ends the wait of a caller that Enter has counted.
func (k *Waiting) Leave() { k.Now.Add(-1) }

// ErrEnded ends a wait when Run has ended: no permits will come.
var ErrEnded = errors.New("check: Run has ended")

// Acquire decides for a request that waits for permits if nothing else denies it. ok is false, and
// nothing decided, if there are no permits to wait for.
func (k *Waiting) Acquire(
	ctx context.Context, by Decider, attrs identity.Attributes, key string, cost int64, receipt bool,
) (c ChargeResult, ok bool, err error) {
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

// waiter is one caller that waits, at one counter or several.
type waiter struct {
	ready   chan struct{} // of capacity 1
	places  []waiterPlace
	pending atomic.Int32 // places where it has not been woken
}

// waiterPlace is a waiter's place in the queue of one counter.
type waiterPlace struct {
	counter *counter.Counter
	place   *permit.Place
}

// acquire decides. While only permits are lacking, it waits and decides again.
func (a *evaluation) acquire(ctx context.Context, k *Waiting, attrs identity.Attributes, cost int64) (d Decision, err error) {
	if q := &a.decisions[0]; len(a.decisions) == 1 && q.Cost == 1 && !q.barred && q.limits.Clauses == nil && !a.exact {
		g := &q.limiter.Group
		c, f := k.host.Table.Load(g, a.key(0)), k.host.FreshnessOf(g.Name, a.key(0))
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

// attempt decides once, and writes the decision to d. If mayWait, and only permits are lacking, it
// decides nothing and returns true: the waiter, which it makes if there is none, has its places
// then.
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
	a.askAll(d, now)
	waits = mayWait && !d.Allowed && a.lacksPermits()
	if waits && *w == nil {
		*w = k.newWaiter()
		waits = *w != nil
	}
	if waits { // before an allowance makes permits available to other checks
		a.join(*w)
	}
	a.concludeAll(d.Allowed, waits, now)
	a.includeDenied(d, now)
	a.endTurn()
	return waits
}

// inForce returns whether the decisions are by the rules in force.
func (a *evaluation) inForce(k *Waiting) bool {
	if a.Rules == nil { // one limiter decides, independently of the rules
		return a.decisions[0].origin == a.decisions[0].limiter.Current.Load()
	}
	return a.Rules == k.rules()
}

// renew makes the decisions those by the rules in force. It returns false if there is nothing to
// wait for then.
func (a *evaluation) renew(k *Waiting, attrs identity.Attributes, now, cost int64) bool {
	if a.Rules == nil {
		a.decisions[0].decideBy(a.decisions[0].limiter.Current.Load(), nil)
		a.blockAlone(now)
		return true
	}
	return a.match(k.rules(), attrs, now, cost, Charging) && len(a.decisions) > 0
}

// lacksPermits returns whether only permits are lacking, and asking for them is not known to be in
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

// join gives a waiter a place at every counter that lacks permits. The counters are locked.
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

// leave gives up a waiter's places. Their counters are locked.
func (w *waiter) leave() {
	for _, p := range w.places {
		p.counter.Permits().Leave(p.place)
	}
	w.places = w.places[:0]
	w.pending.Store(0)
	select {
	case <-w.ready: // left from an earlier wait
	default:
	}
}

// Wake makes a waiter decide, when permits are reserved for it at all its places, or when one of
// them has no room.
func (w *waiter) Wake(reserved bool) {
	if w.pending.Add(-1) > 0 && reserved {
		return
	}
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

// endTurn ends the turn of a caller that has decided, and serves the next waiters with the permits
// that it has left. The counters are locked.
func (a *evaluation) endTurn() {
	for i := range a.decisions {
		if q := &a.decisions[i]; q.HasCounter() && q.limiter.Group.Strict != nil {
			q.Counter.Permits().EndTurn(q.Counter.Moment(q.At))
		}
	}
}

// newWaiter returns a waiter, which counts as waiting; nil if there are too many.
func (k *Waiting) newWaiter() *waiter {
	if !k.Enter() {
		return nil
	}
	return &waiter{ready: make(chan struct{}, 1)}
}
