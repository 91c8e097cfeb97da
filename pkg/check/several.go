package check

import (
	"time"

	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// Check decides for one request by all rules that match its attributes: it may pass only if every
// one of them lets it, and it is charged to all or to none. A cost below 1 counts as 1. If no rule
// matches, it may pass, and the decision names no rule. It allocates nothing for keys that have
// been seen lately.
func (c *Checker) Check(attrs identity.Attributes, cost int64) (d Decision) {
	p := c.ruleset.Load()
	c.check(&d, p, c.now(p), attrs, max(cost, 1))
	return d
}

// check writes its decision to d, which is zero.
func (c *Checker) check(d *Decision, p *ruleset, now int64, attrs identity.Attributes, cost int64) {
	a := c.scratch.Get().(*evaluation)
	defer c.scratch.Put(a)
	if !a.match(p, attrs, now, cost, charging) {
		a.denyBarred(d, attrs, now)
		return
	}
	switch {
	case len(a.decisions) == 0:
		a.allowUnmatched(d, c)
	case len(a.decisions) > 1:
		a.decide(d, attrs, now)
	case a.decisions[0].limits.clauses == nil:
		q := &a.decisions[0]
		q.noteCost()
		q.limiter.checkAt(d, q.limits, now, a.key(0), q.cost)
	default:
		a.decideOne(d, attrs, now)
	}
}

// decide decides by all rules that are asked, and charges all or none. If the purpose is reserving
// and the hit was charged, it returns the reservation.
func (a *evaluation) decide(d *Decision, attrs identity.Attributes, now int64) (r *reservation) {
	a.lookForRoom(attrs, now)
	for !a.lock(now) {
	}
	a.ask(d, now)
	a.conclude(d.Allowed, false, now)
	a.reckonDenied(d, now)
	if a.purpose == reserving && d.Allowed {
		r = a.reservation(now)
	}
	a.unlock()
	return r
}

// ask asks all, and writes the decision of the one that restricts the caller most to d, which is
// zero. Every counter is locked.
func (a *evaluation) ask(d *Decision, now int64) {
	// The worst one so far is in one place and the next goes into the other: a decision that is
	// copied just when it has been made waits for the stores of its parts.
	worst, next := d, &a.answer
	// The places of its rule, of those that can deny, and of the rest; of equal ones the first
	// decides.
	by, observed := -1, -1
	exceeded, shadow := false, -1
	for i := range a.decisions {
		q := &a.decisions[i]
		*next = Decision{}
		q.ask(next, now, a.key(i))
		if a.purpose == reserving && a.mayLine(q) {
			q.line(next, now)
		}
		q.denies = !next.Allowed
		place := &by
		if q.isShadow() {
			if q.denies && (shadow < 0 || q.place < a.decisions[shadow].place) {
				shadow = i
			}
			if place = &observed; by >= 0 {
				continue
			}
		} else {
			exceeded = exceeded || q.exceeds
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
	d.Exceeded = exceeded && d.Allowed
	if shadow >= 0 {
		d.Shadow = a.decisions[shadow].limits.name
	}
}

// conclude charges all or none. If the caller waits, the hit is not denied yet. Every counter is
// locked.
func (a *evaluation) conclude(agreed, waits bool, now int64) {
	for i := range a.decisions {
		if q := &a.decisions[i]; q.cell == nil && (!agreed || q.denies) { // else its counter knows the key
			q.limiter.noteDenied(a.key(i), 1)
		}
		a.decisions[i].conclude(agreed, waits, now)
	}
}

// ask makes one rule's decision without charging anything.
func (q *ruleDecision) ask(d *Decision, now int64, key string) {
	switch {
	case q.barred:
		q.decideBarred(d, now)
	case q.cell == nil:
		q.limiter.peekOverflow(d, q.limits, now, key, q.cost)
	default:
		q.decide(d, now)
	}
}

// decide makes the decision of a rule whose counter is locked.
func (q *ruleDecision) decide(d *Decision, now int64) {
	l, c := q.limiter, q.cell
	if q.consider(now) {
		left := q.left
		if c.is(viewed) { // nothing will be charged
			left += q.cost
		}
		l.allow(d, q.limits, time.Duration(c.end()-now), left)
		return
	}
	if q.short { // more permits would not help
		c.refuseByCounts(d, q.limits, now, q.at, q.cost, q.left)
	} else {
		c.refuse(d, q.limits, now, q.at, q.cost, q.left)
	}
	if d.RetryAfter == 0 { // it would fit, by what is known
		d.RetryAfter = c.retryAfter(q.limits.whole(), q.at, q.cost)
	}
	if c.overflow && q.limits.rule.OnOutage == rules.Closed && d.RetryAfter != Never {
		d.RetryAfter = max(d.RetryAfter, time.Duration(l.sliceEnd(c.newest)-now))
	}
}

// consider finds out whether a hit may pass.
func (q *ruleDecision) consider(now int64) bool {
	l, c, cost := q.limiter, q.cell, q.cost
	q.room, q.at = c.room(q.limits, now)
	q.shared = l.isShared()
	if q.limits.clauses != nil {
		q.measure()
	}
	if l.strict == nil {
		switch c.freshness(q.limits) {
		case LocalShare:
			q.room = c.localRoom(q.limits, q.at, q.room)
		case Outage:
			q.exceeds = false
			return q.inOutage(cost)
		}
	}
	switch {
	case !q.shared || !q.foresees():
		q.passes, q.left = cost <= q.room, q.room
		switch {
		case q.passes && l.shape.Kind == window.Leaky: // one at a time
			q.left = 0
		case q.passes:
			q.left -= cost
		}
	case q.limits.full != nil:
		q.passes, q.left = c.foreseeShare(q.limits, q.at, q.room, cost)
	default:
		q.passes, q.left = c.foresee(q.limits, q.at, q.room, cost)
	}
	return q.passes
}

// foresees says whether a forecast decides: there is one, and the hit fits by what is known.
func (q *ruleDecision) foresees() bool {
	room := q.room
	if q.limits.full != nil {
		room = q.wholeRoom
	}
	return q.cell.ensureForecast(q.limits.whole(), q.at, room) != nil && q.cost <= q.room
}

// conclude charges one rule if all agreed, and leaves its counter ready for the next check.
func (q *ruleDecision) conclude(agreed, waits bool, now int64) {
	l, c, cost := q.limiter, q.cell, q.cost
	if !waits {
		q.noteCost()
	}
	agreed = agreed && !q.denies // a rule that never denies may not have agreed
	switch {
	case agreed && c == nil:
		l.tallies[0].admit(1, cost)
		l.overflow.Add(cost)
		l.noteRevived()
	case agreed && q.wait > 0:
		q.chargeWaiting(now)
	case agreed:
		c.charge(cost)
		q.charged, q.bucket = cost, c.newest
		c.took(q.limits, q.at, cost, 0)
		q.admitted(cost)
	case c == nil:
		l.tallies[0].denied.Add(1)
	default:
		q.denied(waits || q.wait > 0, cost, now)
	}
}

// admitted leaves the counter of a hit that was charged ready for the next check.
func (q *ruleDecision) admitted(cost int64) {
	l, c := q.limiter, q.cell
	switch a := c.keyForecast(); {
	case a != nil:
		a.note(q.at, cost, 0)
		q.ease()
	case q.left > q.room: // let pass in an outage, although it is too much
	case !q.shared:
		q.arm(q.left, q.left)
	default:
		if q.left <= q.limits.capacity/2 { // others should hear of it soon
			l.checker.want(nextFast)
		}
		q.arm(min(q.left, c.unforeseen(q.limits, q.left)), q.left)
	}
}

// denied leaves the counter of a hit that was not charged ready for the next check. If its caller
// waits, it is not denied yet.
func (q *ruleDecision) denied(waits bool, cost, now int64) {
	l, c := q.limiter, q.cell
	if !q.passes && !waits {
		l.tallies[c.stripe].denied.Add(1)
		l.noteDenied(c.key(), 1)
		c.touch(now)
		if q.chargesDenied(cost) {
			return
		}
	}
	switch a := c.keyForecast(); {
	case a != nil && q.limits.full != nil:
		// Pass has not been asked; and who has only a share of the limit does not ask for what the
		// others divide.
	case a != nil && q.passes: // by another rule
		a.Return(a.part, cost)
		q.ease()
	case a != nil:
		// Nobody lets pass what does not fit by what is known; it would look as if there were
		// others' hits to expect.
		if cost <= max(q.room, 1) {
			a.note(q.at, 0, cost)
			c.doubt(q.limits, q.at, cost, 1)
		}
		if q.mayBlock() {
			c.refuseMore(q.limits, q.at)
		}
		c.awaitFullRound(q.at)
	case q.room > 0 && q.shared:
		q.arm(min(q.room, c.unforeseen(q.limits, q.room)), q.room)
	case q.room > 0:
		q.arm(q.room, q.room)
	case q.mayBlock():
		c.block(q.limits, q.at)
	}
}

// isWorse says whether d restricts the caller more than e: a denial more than none, a longer wait
// more than a shorter, less left more than more.
func isWorse(d, e *Decision) bool {
	if d.Allowed != e.Allowed {
		return !d.Allowed
	}
	if d.RetryAfter != e.RetryAfter {
		return d.RetryAfter > e.RetryAfter
	}
	return d.Remaining < e.Remaining
}
