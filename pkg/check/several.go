package check

import "github.com/offpath-io/offpath/pkg/identity"

// Check decides for one request by all rules that match its attributes: it may pass only if every
// one of them lets it, and it is charged to all or to none. A cost below 1 counts as 1. If no rule
// matches, it may pass, and the decision names no rule. It allocates nothing for keys that have
// been seen lately.
func (c *Checker) Check(attrs identity.Attributes, cost int64) (d Decision) {
	p := c.ruleset.Load()
	c.check(&d, p, c.host.Time(p.strict), attrs, max(cost, 1))
	return d
}

// check writes its decision to d, which is zero.
func (c *Checker) check(d *Decision, p *ruleset, now int64, attrs identity.Attributes, cost int64) {
	a := newEvaluation(&c.host)
	defer a.free()
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
		q.limiter.checkAt(d, q.limits, now, a.key(0), q.Cost)
	default:
		a.decideOne(d, attrs, now)
	}
}
