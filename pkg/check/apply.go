package check

import (
	"time"

	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// What a rule's clauses make of one request, before any counter is locked: whether the rule applies
// to its caller, by which limits, and at what cost.

// purpose is what rules are asked for.
type purpose uint8

const (
	charging  purpose = iota // to decide, and charge
	peeking                  // to decide
	recording                // to charge, whatever there is room for
	reserving                // to decide, and charge what passes later, too
)

// verdict of a rule on a request, before its counts are looked at.
type applicability uint8

const (
	applies applicability = iota
	appliesNot
	bars // it denies the request, whatever its counts are
)

// apply fills in what depends on the request's attributes beside the key.
func (q *ruleDecision) apply(e *entry, attrs identity.Attributes, now int64) applicability {
	if v := q.applyTo(e, attrs, now); v != applies {
		return v
	}
	cost, err := e.rule.CostOf(attrs, q.cost)
	if err == nil {
		q.cost = cost
	}
	q.badCost = err != nil
	return applies
}

// applyTo finds the limits for the caller.
func (q *ruleDecision) applyTo(e *entry, attrs identity.Attributes, now int64) applicability {
	r := e.rule
	if r.Unlimited {
		return appliesNot
	}
	allowed, denied := r.Listed(attrs)
	switch {
	case denied:
		q.retry = Never
		return bars
	case allowed:
		return appliesNot
	}
	t := e.limits
	if len(r.Overrides) > 0 {
		at := time.Unix(0, now)
		if i := r.Override(attrs, at); i >= 0 {
			switch o := &r.Overrides[i]; o.Action {
			case rules.Unlimited:
				return appliesNot
			case rules.Blocked:
				q.retry = Never
				if !o.Until.IsZero() {
					q.retry = o.Until.Sub(at)
				}
				return bars
			}
			q.limiter, t = e.over[i].limiter, e.over[i].limits
		}
	}
	q.decideBy(t, attrs)
	return applies
}

// decideBy lets a rule be decided by a limiter's limits, for a request of these attributes.
func (q *ruleDecision) decideBy(t *limits, attrs identity.Attributes) {
	q.origin = t
	q.matched = t.class(attrs)
	q.limits = q.matched
}

// class are the limits for a request's class.
func (t *limits) class(attrs identity.Attributes) *limits {
	if t.clauses == nil || t.clauses.classes == nil {
		return t
	}
	if class, ok := attrs.Get(t.rule.Priority.By); ok {
		if of, ok := t.clauses.classes[class]; ok {
			return of
		}
	}
	return t.clauses.other
}

// whole are the limits of those who have all of the limit.
func (t *limits) whole() *limits {
	if t.full != nil {
		return t.full
	}
	return t
}

// askAlone lets one limiter be asked, about a key.
func (a *evaluation) askAlone(l *Limiter, t *limits, now int64, key string, cost int64, to purpose) {
	a.begin(nil, to)
	a.text = l.checker.appendText(a.text, key)
	a.decisions = append(a.decisions, ruleDecision{limiter: l, cost: cost, to: len(a.text)})
	a.decisions[0].decideBy(t, nil)
	a.blockAlone(now)
	if to == recording && a.decisions[0].barred { // as by attributes
		a.drop()
	}
}

// checkAlone is checkAt for limits with clauses.
func (l *Limiter) checkAlone(d *Decision, t *limits, now int64, key string, cost int64) {
	a := l.checker.scratch.Get().(*evaluation)
	defer l.checker.scratch.Put(a)
	a.askAlone(l, t, now, key, max(cost, 1), charging)
	a.decideOne(d, nil, now)
	d.ownShadow()
}

// ownShadow names the limiter that was asked alone, although it can deny nothing.
func (d *Decision) ownShadow() {
	if d.Observed != "" {
		d.Rule, d.Observed = d.Observed, ""
	}
}

// decideOne is decide for one rule with clauses.
func (a *evaluation) decideOne(d *Decision, attrs identity.Attributes, now int64) {
	q := &a.decisions[0]
	f := Freshness(q.limiter.checker.freshness.Load())
	if l := q.limiter; q.cost == 1 && q.limits.full == nil && !q.isShadow() && l.inTouch(f) {
		if c := l.checker.table.load(l, a.key(0)); c != nil && c.checkUnlocked(d, q.limits, now, f) {
			q.noteCost()
			if x := q.limits.clauses.elastic; x != nil && c.beyond.Load()&raised != 0 { // as the last look has found
				d.Limit = x.roomy.says
			}
			return
		}
	}
	a.decide(d, attrs, now)
}

// decideBarred makes the decision of a rule that bars the request.
func (q *ruleDecision) decideBarred(d *Decision, now int64) {
	q.limiter.fill(d, q.limits, 0)
	d.deny(q.limits.rule)
	d.RetryAfter, d.Reset = q.retry, q.limiter.reset(q.limits, now)
}

// noteCost counts a hit whose own cost was none.
func (q *ruleDecision) noteCost() {
	if q.badCost {
		q.limiter.badCosts.Add(1)
	}
}

func (q *ruleDecision) isShadow() bool { return q.limits.clauses != nil && q.limits.clauses.shadow }

// stops says whether it is this rule, maybe among others, that keeps the request from passing.
func (q *ruleDecision) stops() bool { return q.denies && !q.isShadow() }

// measure looks at the other limits that there are to a hit beside that which it is decided by. The
// counter is locked, current.
func (q *ruleDecision) measure() {
	c, t := q.cell, q.limits
	q.spare = c.remaining(t.clauses.plain, q.at)
	q.exceeds = q.cost > q.spare
	if t.full != nil {
		q.wholeRoom = c.remaining(t.full, q.at)
	}
	if q.limiter.strict != nil && t.limit < t.wire { // permits are for more
		fits := c.remaining(t, q.at)
		q.short = q.cost > fits
		q.room = min(q.room, fits)
	}
}

// mayBlock says whether further hits may be denied without the lock, if this one is denied. Where
// it is denied although there is room elsewhere, the next one may find none, and has to wait for
// longer than the block would say.
func (q *ruleDecision) mayBlock() bool {
	c := q.limits.clauses
	return c == nil || q.limits.full == nil && !c.shadow && q.matched.clauses.elastic == nil
}

// arm leaves an allowance for the next hits: for those within the limit itself, by those whom all
// of it is for.
func (q *ruleDecision) arm(hits, room int64) {
	if q.limits.full == nil {
		q.cell.arm(q.limits, q.at, q.within(hits), room)
	}
}

// ease is arm for a counter with a forecast.
func (q *ruleDecision) ease() {
	if q.limits.full == nil {
		q.cell.ease(q.limits, q.at, q.within(q.left), q.left)
	}
}

// within is how many of so many hits fit the limit itself.
func (q *ruleDecision) within(hits int64) int64 {
	if c := q.limits.clauses; c != nil {
		return min(hits, q.cell.remaining(c.plain, q.at))
	}
	return hits
}

// chargesDenied charges a hit that its rule has denied, if denied hits count.
func (q *ruleDecision) chargesDenied(cost int64) bool {
	if q.limits.clauses == nil || !q.limits.clauses.all {
		return false
	}
	q.chargeAnyway(cost)
	return true
}

// reckonDenied lets a denial reckon with its own hit, where denied hits count: who comes again when
// there would have been room without that would be denied, and charged, for ever. Every counter is
// locked.
func (a *evaluation) reckonDenied(d *Decision, now int64) {
	for i := range a.decisions {
		q := &a.decisions[i]
		if !q.stops() || q.barred || q.cell == nil || d.RetryAfter == Never || q.limits.clauses == nil || !q.limits.clauses.all {
			continue
		}
		if after, ok := q.cell.retryIn(q.limits, q.cost, q.at); ok {
			d.RetryAfter = max(d.RetryAfter, after+time.Duration(q.at-now))
		}
	}
}

// chargeAnyway charges a hit whatever there is room for, as far as can be counted. The counter is
// locked, current.
func (q *ruleDecision) chargeAnyway(cost int64) {
	l, c := q.limiter, q.cell
	cost = min(cost, window.MaxCount-c.totals()[0])
	if cost <= 0 {
		return
	}
	c.add(cost)
	c.date(q.limits, q.at, cost)
	if p := c.permits(); p != nil {
		p.Spend(c.newest, cost)
	}
	l.tallies[c.stripe].further.Add(cost)
	c.queue()
	if a := c.keyForecast(); a != nil {
		a.note(q.at, cost, 0)
	}
	if q.shared && c.remaining(q.limits, q.at) <= q.limits.capacity/2 {
		l.checker.want(nextFast)
	}
}
