package sim

import (
	"slices"

	"github.com/offpath-io/offpath/loadtest/scenario"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/rules"
)

// Nobody can wait in virtual time, so what Checker.Wait does is played: a hit under strict
// enforcement that is denied for want of a permit asks again whenever its checker hears a grant, in
// the order of those who wait, until it passes or its time is over. It is judged then.

// waiter is a hit that waits.
type waiter struct {
	hit      scenario.Hit
	checker  *checker
	limiter  *check.Limiter
	text     string
	deadline int64
}

// mayWait says whether a hit that was denied waits for a permit: not if there will be none in time.
func (w *world) mayWait(l *check.Limiter, d check.Decision) bool {
	return l.Rule().Enforcement == rules.Strict && d.RetryAfter < w.o.Acquire
}

// retry lets those who wait at a checker ask again.
func (w *world) retry(c *checker) {
	w.waiting = slices.DeleteFunc(w.waiting, func(x waiter) bool {
		if x.checker != c || !x.limiter.Check(x.text, int64(x.hit.Cost)).Allowed {
			return false
		}
		w.judge(x.hit, true)
		return true
	})
}

// nextDeadline is when the first of those who wait gives up.
func (w *world) nextDeadline() int64 {
	if len(w.waiting) == 0 {
		return never
	}
	return w.waiting[0].deadline
}

// denyUntil denies those whose time is over by then.
func (w *world) denyUntil(time int64) {
	for w.nextDeadline() <= time && len(w.waiting) > 0 {
		w.judge(w.waiting[0].hit, false)
		w.waiting = w.waiting[1:]
	}
}
