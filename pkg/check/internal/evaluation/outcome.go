package evaluation

import (
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/fleetstate"
	"github.com/offpath-io/offpath/pkg/rules"
)

// Decision is check.Decision, which it converts to.
type Decision struct {
	Allowed          bool
	Freshness        fleetstate.Freshness
	Exceeded         bool
	Queue            bool
	Unmatched        bool
	Status           int
	Rule             string
	Limit, Remaining int64
	RetryAfter       time.Duration
	Reset            time.Duration
	MaxWait          time.Duration
	Shadow           string
	Observed         string
}

// forbidden is the HTTP status of a denial because no rule matches.
const forbidden = 403

// Never is check.Never.
const Never = time.Duration(1<<63 - 1)

// FillDenial writes the fields that a denial by this rule has beside its numbers. It does not set
// Allowed.
func (d *Decision) FillDenial(r *rules.Rule) {
	d.Status, d.Queue, d.MaxWait = r.Status, r.OnLimit.Queue, r.OnLimit.MaxWait
}

// decideUnlimited decides a request that no rule limits: no rule matches it, or those that do limit
// other callers.
func (a *evaluation) decideUnlimited(d *Decision) {
	d.Freshness, d.Unmatched = a.host.Freshness(), !a.exempt
	d.Allowed = a.exempt || !a.host.Config.DenyUnmatched
	if !d.Allowed {
		d.Status, d.RetryAfter = forbidden, Never
	}
}

// passUnlimited is decideUnlimited for a request that is charged; it counts those that no rule
// matches.
func (a *evaluation) passUnlimited(d *Decision) {
	if a.decideUnlimited(d); d.Unmatched {
		a.host.Unmatched.Add(1)
	}
}

// allow turns a denial into an allowed decision.
func (d *Decision) allow() {
	d.Allowed, d.RetryAfter = true, 0
	d.Status, d.Queue, d.MaxWait = 0, false, 0
}

// ownShadow names the limiter that decided alone, even if its rule is a shadow rule.
func (d *Decision) ownShadow() {
	if d.Observed != "" {
		d.Rule, d.Observed = d.Observed, ""
	}
}

// isWorse returns whether d restricts the caller more than e does: a denial is worse than none,
// then a longer wait is worse, then less left is worse.
func isWorse(d, e *Decision) bool {
	if d.Allowed != e.Allowed {
		return !d.Allowed
	}
	if d.RetryAfter != e.RetryAfter {
		return d.RetryAfter > e.RetryAfter
	}
	return d.Remaining < e.Remaining
}
