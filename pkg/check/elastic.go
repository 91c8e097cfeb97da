package check

import (
	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/identity"
)

// lookForRoom finds out which elastic rules have room beyond their limits. No counter is locked: it
// looks at others.
func (a *evaluation) lookForRoom(attrs identity.Attributes, now int64) {
	for i := range a.decisions {
		q := &a.decisions[i]
		t := q.matched.whole()
		if t.clauses == nil || t.clauses.elastic == nil || q.barred {
			continue
		}
		q.limits = q.matched
		x := t.clauses.elastic
		if use, ok := a.use(x.while, attrs, now); ok && use < x.below {
			q.limits = x.roomy.class(attrs)
		}
	}
}

// use is which part of its limit is used up under a rule, for the key that a request has there;
// with what others are expected to have taken. It is false if the rule does not apply to the
// request.
func (a *evaluation) use(e *entry, attrs identity.Attributes, now int64) (use float64, ok bool) {
	if !e.rule.Matches(attrs) {
		return 0, false
	}
	var q ruleDecision
	q.limiter = e.limiter
	if q.applyTo(e, attrs, now) != applies {
		return 0, false
	}
	from := len(a.text)
	text, ok := e.limiter.group.Host.AppendKey(a.text, e.rule, attrs)
	if !ok {
		return 0, false
	}
	q.from, q.to, a.text = from, len(text), text
	defer func() { a.text = a.text[:from] }()
	if a.view == nil {
		a.view = new(counter.View)
	}
	c := a.view.Of(&q.limiter.group, textAt(text, q.from, q.to), now)
	return c.Used(&q.limits.whole().Limits, now) / float64(q.limits.rule.Capacity()), true
}
