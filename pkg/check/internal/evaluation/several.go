package evaluation

import (
	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/check/internal/ruleset"
	"github.com/offpath-io/offpath/pkg/identity"
)

// CheckNow decides by all rules that match a request's attributes, and writes the decision to d,
// which must be zero.
func CheckNow(d *Decision, h *counter.Host, p *ruleset.Compiled, attrs identity.Attributes, cost int64) {
	Check(d, h, p, h.Time(p.Strict), attrs, max(cost, 1))
}

// Check is CheckNow at this time, of a cost of at least 1.
func Check(d *Decision, h *counter.Host, p *ruleset.Compiled, now int64, attrs identity.Attributes, cost int64) {
	a := newEvaluation(h)
	defer a.free()
	if !a.match(p, attrs, now, cost, Charging) {
		a.denyBarred(d, attrs, now)
		return
	}
	switch {
	case len(a.decisions) == 0:
		allowUnmatched(d, h)
	case len(a.decisions) > 1:
		a.decideAll(d, attrs, now)
	case a.decisions[0].limits.Clauses == nil:
		q := &a.decisions[0]
		q.noteCost()
		CheckPlain(d, q.limiter, q.limits, now, a.key(0), q.Cost)
	default:
		a.decideOne(d, attrs, now)
	}
}
