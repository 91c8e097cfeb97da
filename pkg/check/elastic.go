package check

import "github.com/offpath-io/offpath/pkg/identity"

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
	text, ok := e.limiter.checker.appendKey(a.text, e.rule, attrs)
	if !ok {
		return 0, false
	}
	q.from, q.to, a.text = from, len(text), text
	defer func() { a.text = a.text[:from] }()
	if a.view == nil {
		a.view = new(view)
	}
	c := a.view.of(q.limiter, textAt(text, q.from, q.to), now)
	return c.used(q.limits.whole(), now) / float64(q.limits.rule.Capacity()), true
}

// used is how many hits lie in the window of a viewed counter, with those that others are expected
// to have taken.
func (c *counter) used(t *limits, now int64) float64 {
	at := c.rotate(now)
	if c.keyForecast() == nil {
		return c.count(t, at)
	}
	o, w := c.look(t, at)
	return w.Limit - o.Free
}
