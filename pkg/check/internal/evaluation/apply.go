package evaluation

import (
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/check/internal/ruleset"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

// What a rule's clauses make of one request, before any counter is locked: whether the rule applies
// to its caller, by which limits, and at what cost.

// apply fills in what depends on the request's attributes beside the key.
func (q *ruleDecision) apply(e *ruleset.Entry, attrs identity.Attributes, now int64) applicability {
	if v := q.applyTo(e, attrs, now); v != applies {
		return v
	}
	cost, err := e.Rule.CostOf(attrs, q.Cost)
	if err == nil {
		q.Cost = cost
	}
	q.badCost = err != nil
	return applies
}

// applyTo finds the limits for the caller.
func (q *ruleDecision) applyTo(e *ruleset.Entry, attrs identity.Attributes, now int64) applicability {
	r := e.Rule
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
	t := e.Limits
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
			q.limiter, t = e.Overrides[i].Limiter, e.Overrides[i].Limits
		}
	}
	q.decideBy(t, attrs)
	return applies
}

// decideBy lets a rule be decided by a limiter's limits, for a request of these attributes.
func (q *ruleDecision) decideBy(t *ruleset.Limits, attrs identity.Attributes) {
	q.origin = t
	q.matched = t.Class(attrs)
	q.limits = q.matched
}

// decideBarred makes the decision of a rule that bars the request.
func (q *ruleDecision) decideBarred(d *Decision, now int64) {
	fill(d, q.limiter, q.limits, 0)
	d.Deny(q.limits.Rule)
	d.RetryAfter, d.Reset = q.retry, q.limiter.Reset(q.limits, now)
}

// noteCost counts a hit whose own cost was none.
func (q *ruleDecision) noteCost() {
	if q.badCost {
		q.limiter.BadCosts.Add(1)
	}
}

func (q *ruleDecision) isShadow() bool { return q.limits.Clauses != nil && q.limits.Clauses.Shadow }

// stops says whether it is this rule, maybe among others, that keeps the request from passing.
func (q *ruleDecision) stops() bool { return q.denies && !q.isShadow() }

// reckonDenied lets a denial reckon with its own hit, where denied hits count: who comes again when
// there would have been room without that would be denied, and charged, for ever. Every counter is
// locked.
func (a *evaluation) reckonDenied(d *Decision, now int64) {
	for i := range a.decisions {
		q := &a.decisions[i]
		if !q.stops() || q.barred || !q.HasCounter() || d.RetryAfter == Never || q.limits.Clauses == nil || !q.limits.Clauses.All {
			continue
		}
		if after := q.FitsIn(now); after != Never {
			d.RetryAfter = max(d.RetryAfter, after)
		}
	}
}

// noteBarred is that of a request that a rule bars, before its key was made.
func (a *evaluation) noteBarred(attrs identity.Attributes) {
	l, r := a.bar.limiter, a.bar.limits.Rule
	if l.Group.Host.Config.OnDenied == nil {
		return
	}
	if text, ok := l.Group.Host.AppendKey(a.text, r, attrs); ok {
		l.Group.NoteDenied(textAt(text, len(a.text), len(text)), 1)
		a.text = text[:len(a.text)] // what it has grown to is of use
	}
}

// allowUnmatched lets a request pass that no rule matches.
func allowUnmatched(d *Decision, h *counter.Host) {
	d.Allowed, d.Freshness = true, h.Freshness()
}

// denyBarred denies a request that a rule bars, whatever its counts are.
func (a *evaluation) denyBarred(d *Decision, attrs identity.Attributes, now int64) {
	a.bar.limiter.Group.Tallies[0].Denied.Add(1)
	a.noteBarred(attrs)
	a.bar.decideBarred(d, now)
}
