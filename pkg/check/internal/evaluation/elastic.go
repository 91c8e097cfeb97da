package evaluation

import (
	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/check/internal/ruleset"
	"github.com/offpath-io/offpath/pkg/identity"
)

// lookForRoom finds out which elastic rules have room beyond their limits. No counter may be
// locked: it locks others.
func (a *evaluation) lookForRoom(attrs identity.Attributes, now int64) {
	for i := range a.decisions {
		q := &a.decisions[i]
		t := q.matched.Whole()
		if t.Clauses == nil || t.Clauses.Elastic == nil || q.barred {
			continue
		}
		q.limits = q.matched
		x := t.Clauses.Elastic
		if use, ok := a.use(x.While, attrs, now); ok && use < x.Below {
			q.limits = x.Roomy.Class(attrs)
		}
	}
}

// use returns which part of a rule's limit is used up, for the request's key under that rule,
// including hits that others are expected to have admitted. ok is false if the rule does not apply
// to the request.
func (a *evaluation) use(e *ruleset.Entry, attrs identity.Attributes, now int64) (use float64, ok bool) {
	if !e.Rule.Matches(attrs) {
		return 0, false
	}
	var q ruleDecision
	q.limiter = e.Limiter
	if q.applyTo(e, attrs, now) != applies {
		return 0, false
	}
	from := len(a.text)
	text, ok := e.Limiter.Group.Host.AppendKey(a.text, e.Rule, attrs)
	if !ok {
		return 0, false
	}
	q.from, q.to, a.text = from, len(text), text
	defer func() { a.text = a.text[:from] }()
	if a.view == nil {
		a.view = new(counter.View)
	}
	c := a.view.Of(&q.limiter.Group, textAt(text, q.from, q.to), now)
	return c.Used(&q.limits.Whole().Limits, now) / float64(q.limits.Rule.Capacity()), true
}
