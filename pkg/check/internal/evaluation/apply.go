package evaluation

import (
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/ruleset"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

// How a rule's clauses apply to one request, before any counter is locked: whether the rule applies
// to the caller, with which limits, and at what cost.

// apply fills in the limits and the cost, which depend on the request's attributes.
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

// decideBy sets the limits that decide: those of a limiter, for a request with these attributes.
func (q *ruleDecision) decideBy(t *ruleset.Limits, attrs identity.Attributes) {
	q.origin = t
	q.matched = t.Class(attrs)
	q.limits = q.matched
}

// decideBarred makes the decision of a rule that bars the request.
func (q *ruleDecision) decideBarred(d *Decision, now int64) {
	fill(d, q.limiter, q.limits, 0, q.limiter.Group.Host.Freshness())
	d.FillDenial(q.limits.Rule)
	d.RetryAfter, d.Reset = q.retry, q.limiter.Reset(q.limits, now)
}

// noteCost counts a hit whose cost attribute is no cost.
func (q *ruleDecision) noteCost() {
	if q.badCost {
		q.limiter.BadCosts.Add(1)
	}
}

func (q *ruleDecision) isShadow() bool { return q.limits.Clauses != nil && q.limits.Clauses.Shadow }

// stops returns whether this rule, maybe with others, keeps the request from passing.
func (q *ruleDecision) stops() bool { return q.denies && !q.isShadow() }

// includeDenied makes RetryAfter include the denied hit itself, under rules that charge denied
// hits. Otherwise a caller that retries after RetryAfter would be denied, and charged, each time.
// Every counter is locked.
func (a *evaluation) includeDenied(d *Decision, now int64) {
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

// noteBarred calls NoteDenied for a request that a rule bars, whose key has not been made yet.
func (a *evaluation) noteBarred(attrs identity.Attributes) {
	l, r := a.bar.limiter, a.bar.limits.Rule
	if l.Group.Host.Config.OnDenied == nil {
		return
	}
	if text, ok := l.Group.Host.AppendKey(a.text, r, attrs); ok {
		l.Group.NoteDenied(textAt(text, len(a.text), len(text)), 1)
		a.text = text[:len(a.text)] // keep the memory if it has grown
	}
}

// denyBarred denies a request that a rule bars, independently of its counts.
func (a *evaluation) denyBarred(d *Decision, attrs identity.Attributes, now int64) {
	a.bar.limiter.Group.Tallies[0].Denied.Add(1)
	a.noteBarred(attrs)
	a.bar.decideBarred(d, now)
}
