package evaluation

import (
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
)

// Reservation is a place in the queue of one key, or in the queues of several rules: its hits have
// been charged, and may pass after a delay.
type Reservation struct {
	host   *counter.Host
	Delay  time.Duration
	places []counter.ReservedHits // in the order in which counters are locked; none if there is nothing to give back
	due    int64                  // fleet time
	given  bool                   // back; the lock of the first place's counter guards it
}

// Cancel is check.Result.Cancel.
func (r *Reservation) Cancel() bool {
	if len(r.places) == 0 {
		return false
	}
	now := r.host.ExactTime()
	counters := make([]counter.Locked, len(r.places))
	for i := range r.places {
		counters[i] = r.places[i].Counter.Lock()
		defer counters[i].Unlock()
	}
	if r.given || now >= r.due {
		return false
	}
	for i := range r.places {
		if !r.places[i].IsOpen(counters[i], now) {
			return false
		}
	}
	for i := range r.places {
		r.places[i].GiveBack(counters[i])
	}
	r.given = true
	return true
}

// reservation returns the reservation of the hits that have just been charged. Every counter is
// locked.
func (a *evaluation) reservation(now int64) *Reservation {
	r := &Reservation{host: a.decisions[0].limiter.Group.Host}
	for i := range a.decisions {
		q := &a.decisions[i]
		r.Delay = max(r.Delay, q.wait)
		if q.HasCounter() && q.Charged != 0 {
			r.places = append(r.places, q.Reserved())
		}
	}
	r.due = now + int64(r.Delay)
	return r
}

// mayQueue returns whether a hit may have its turn later: with a key always, with attributes if the
// rule lets callers wait.
func (a *evaluation) mayQueue(q *ruleDecision) bool {
	return q.HasCounter() && !q.barred && !q.isShadow() && q.limiter.Group.Shape.Drains() &&
		(a.Rules == nil || q.limits.Rule.OnLimit.Queue)
}

// queue turns a denial into a later turn, if there is one. The counter is locked and current.
func (q *ruleDecision) queue(d *Decision, now int64) {
	if d.Allowed {
		return
	}
	wait, ok := q.Turn(d.RetryAfter, q.limits.Rule.OnLimit.MaxWait, now)
	if !ok {
		return
	}
	q.wait, q.Exceeds = wait, false
	*d = Decision{}
	allow(d, q.limiter, q.limits, 0, 0, q.Fresh)
}
