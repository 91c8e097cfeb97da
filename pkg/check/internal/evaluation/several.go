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
		a.passUnlimited(d)
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

// takeAll decides by the allowances of all rules, without renewing them: most requests pass here.
// It returns false, and has charged nothing, if an allowance is lacking.
//
// A hit that has been taken can be given back as long as no flush moves it into a report, so all
// counters are locked but one. That is the one with the fewest key attributes, which the most
// requests share, and it is the last one to be asked.
func (a *evaluation) takeAll(d *Decision, now int64) bool {
	shared := 0
	for i := range a.decisions {
		q := &a.decisions[i]
		q.Fresh = q.limiter.Group.Host.FreshnessOf(q.limiter.Group.Name, a.key(i))
		if q.Cost > 1 || q.barred || q.limits.Clauses != nil || !q.limiter.InTouch(q.Fresh) {
			return false
		}
		if len(q.limits.Rule.Key) < len(a.decisions[shared].limits.Rule.Key) {
			shared = i
		}
	}
	var t tightest
	for i := range a.decisions {
		if i != shared && !a.take(i, true, &t, now) {
			a.giveBack()
			return false
		}
	}
	if !a.take(shared, false, &t, now) {
		a.giveBack()
		return false
	}
	a.unlock()
	allow(d, t.limiter, t.limits, time.Duration(t.until-now), t.left, max(d.Freshness, t.fresh))
	return true
}

// tightest is the decision with the fewest hits left.
type tightest struct {
	*ruleDecision
	left, until int64
	fresh       fleetstate.Freshness // the worst of all decisions
}

// take takes a hit off one rule's allowance, under the counter's lock or without it.
func (a *evaluation) take(i int, lock bool, t *tightest, now int64) bool {
	q := &a.decisions[i]
	c := q.limiter.Group.Host.Table.Load(&q.limiter.Group, a.key(i))
	if c == nil {
		return false
	}
	if lock {
		q.Counter = c.Lock()
	}
	left, until := c.TakeOne(q.limits.Stamp, now)
	if left < 0 {
		if lock {
			q.Counter.Unlock()
			q.Counter = counter.Locked{}
		}
		return false
	}
	if t.ruleDecision == nil || left < t.left || left == t.left && q.place < t.place {
		t.ruleDecision, t.left, t.until = q, left, until
	}
	t.fresh = max(t.fresh, q.Fresh)
	return true
}

// giveBack gives the hits that have been taken back to the locked counters, and unlocks these.
func (a *evaluation) giveBack() {
	for i := range a.decisions {
		if q := &a.decisions[i]; q.HasCounter() {
			q.Counter.GiveBack()
		}
	}
	a.unlock()
}
