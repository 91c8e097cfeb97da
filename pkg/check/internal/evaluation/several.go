package evaluation

import (
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/check/internal/fleetstate"
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
		if !a.takeAll(d, now) {
			a.decideAll(d, attrs, now)
		}
	case a.decisions[0].limits.Clauses == nil:
		q := &a.decisions[0]
		q.noteCost()
		CheckPlain(d, q.limiter, q.limits, now, a.key(0), q.Cost)
	default:
		a.decideOne(d, attrs, now)
	}
}

// takeAll decides by the allowances of all rules, without a lock: most requests pass so, and a
// counter that many of them share, such as that of a whole service, is no bottleneck. It returns
// false, and has charged nothing, if an allowance is lacking.
func (a *evaluation) takeAll(d *Decision, now int64) bool {
	var tightest *ruleDecision
	var least, end int64
	fresh := d.Freshness
	for i := range a.decisions {
		q := &a.decisions[i]
		f := q.limiter.Group.Host.FreshnessOf(q.limiter.Group.Name, a.key(i))
		left, until := q.takeOne(a.key(i), now, f)
		if left < 0 {
			for _, taken := range a.decisions[:i] {
				taken.unlocked.GiveBack(taken.limits.Stamp, now)
			}
			return false
		}
		fresh = max(fresh, f)
		if tightest == nil || left < least || left == least && q.place < tightest.place {
			tightest, least, end = q, left, until-now
		}
	}
	allow(d, tightest.limiter, tightest.limits, time.Duration(end), least, fresh)
	return true
}

// takeOne takes a hit off one rule's allowance. left is negative if it cannot, or if the rule's hits
// cannot be given back: permits are spent, and the hits of a bucket that drains are dated.
func (q *ruleDecision) takeOne(key string, now int64, f fleetstate.Freshness) (left, until int64) {
	g := &q.limiter.Group
	if q.Cost > 1 || q.barred || q.limits.Clauses != nil || g.Strict != nil || g.Shape.Drains() || !q.limiter.InTouch(f) {
		return -1, 0
	}
	if q.unlocked = g.Host.Table.Load(g, key); q.unlocked == nil {
		return -1, 0
	}
	return q.unlocked.TakeOne(q.limits.Stamp, now)
}
