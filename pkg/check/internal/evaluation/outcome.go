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
	Status           int
	Rule             string
	Limit, Remaining int64
	RetryAfter       time.Duration
	Reset            time.Duration
	MaxWait          time.Duration
	Shadow           string
	Observed         string
}

// Never is check.Never.
const Never = time.Duration(1<<63 - 1)

// Deny writes what a denial by this rule says, beside its numbers.
func (d *Decision) Deny(r *rules.Rule) {
	d.Status, d.Queue, d.MaxWait = r.Status, r.OnLimit.Queue, r.OnLimit.MaxWait
}

// allow takes a denial back.
func (d *Decision) allow() {
	d.Allowed, d.RetryAfter = true, 0
	d.Status, d.Queue, d.MaxWait = 0, false, 0
}

// ownShadow names the limiter that was asked alone, although it can deny nothing.
func (d *Decision) ownShadow() {
	if d.Observed != "" {
		d.Rule, d.Observed = d.Observed, ""
	}
}

// isWorse says whether d restricts the caller more than e: a denial more than none, a longer wait
// more than a shorter, less left more than more.
func isWorse(d, e *Decision) bool {
	if d.Allowed != e.Allowed {
		return !d.Allowed
	}
	if d.RetryAfter != e.RetryAfter {
		return d.RetryAfter > e.RetryAfter
	}
	return d.Remaining < e.Remaining
}
