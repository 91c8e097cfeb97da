package evaluation

import (
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/identity"
)

// The decision by all rules that a request matches, or by one with clauses: ask every counter, then
// charge all or none.

// decideAll decides by all rules that match, and charges all or none. If the purpose is Reserving
// and the hit was charged, it returns the reservation.
func (a *evaluation) decideAll(d *Decision, attrs identity.Attributes, now int64) (r *Reservation) {
	a.lookForRoom(attrs, now)
	for !a.lock(now) {
	}
	a.askAll(d, now)
	a.concludeAll(d.Allowed, false, now)
	a.includeDenied(d, now)
	if a.purpose == Reserving && d.Allowed {
		r = a.reservation(now)
	}
	a.unlock()
	return r
}

// askAll makes the decisions of all rules, and writes the one that restricts the caller most to d,
// which must be zero. Every counter is locked.
func (a *evaluation) askAll(d *Decision, now int64) {
	// The worst one so far is in one variable, and the next one goes into the other: copying a
	// decision that has just been written causes a store-to-load forwarding stall.
	worst, next := d, &a.answer
	// The places of the deciding rule among those that can deny, and among the others. Of equal
	// decisions the first rule's is taken.
	by, observed := -1, -1
	exceeded, shadow, fresh := false, -1, d.Freshness
	for i := range a.decisions {
		q := &a.decisions[i]
		*next = Decision{}
		q.ask(next, now, a.key(i))
		if a.purpose == Reserving && a.mayQueue(q) {
			q.queue(next, now)
		}
		q.denies = !next.Allowed
		fresh = max(fresh, next.Freshness)
		place := &by
		if q.isShadow() {
			if q.denies && (shadow < 0 || q.place < a.decisions[shadow].place) {
				shadow = i
			}
			if place = &observed; by >= 0 {
				continue
			}
		} else {
			exceeded = exceeded || q.Exceeds
		}
		if *place < 0 || isWorse(next, worst) || q.place < *place && !isWorse(worst, next) {
			worst, next, *place = next, worst, q.place
		}
	}
	if by < 0 { // none that could deny
		worst.allow()
		worst.Rule, worst.Observed = "", worst.Rule
	}
	if worst != d {
		*d = *worst
	}
	d.Exceeded, d.Freshness = exceeded && d.Allowed, fresh
	if shadow >= 0 {
		d.Shadow = a.decisions[shadow].limits.Name
	}
}

// concludeAll charges all or none. If the caller waits, the hit is not denied yet. Every counter is
// locked.
func (a *evaluation) concludeAll(agreed, waits bool, now int64) {
	for i := range a.decisions {
		if q := &a.decisions[i]; !q.HasCounter() && (!agreed || q.denies) { // otherwise Hit.Deny calls it
			q.limiter.Group.NoteDenied(a.key(i), 1)
		}
		a.decisions[i].conclude(agreed, waits, now)
	}
}

// ask makes one rule's decision without charging anything.
func (q *ruleDecision) ask(d *Decision, now int64, key string) {
	switch {
	case q.barred:
		q.decideBarred(d, now)
	case !q.HasCounter():
		peekOverflow(d, q.limiter, q.limits, now, key, q.Cost)
	default:
		q.decide(d, now)
	}
}

// decide makes the decision of a rule whose counter is locked.
func (q *ruleDecision) decide(d *Decision, now int64) {
	q.prepare()
	if !q.Consider(now) {
		denyFull(d, q.limiter, q.limits, now, q.Left, q.Fresh)
		d.RetryAfter = q.RetryAfter(now)
		return
	}
	left := q.Left
	if q.Counter.Is(counter.Viewed) { // nothing will be charged
		left += q.Cost
	}
	allow(d, q.limiter, q.limits, time.Duration(q.Counter.End()-now), left, q.Fresh)
}

// conclude charges one rule if all agreed, or counts the denial, and leaves an allowance or a block
// for the next checks.
func (q *ruleDecision) conclude(agreed, waits bool, now int64) {
	l := q.limiter
	if !waits {
		q.noteCost()
	}
	agreed = agreed && !q.denies // a shadow rule may not have agreed
	switch {
	case agreed && !q.HasCounter():
		l.AdmitOverflow(1, q.Cost)
	case agreed && q.wait > 0:
		q.ChargeTurn(q.wait, now)
	case agreed:
		q.Charge()
	case !q.HasCounter():
		l.Group.Tallies[0].Denied.Add(1)
	default:
		q.Deny(waits || q.wait > 0, now)
	}
}
