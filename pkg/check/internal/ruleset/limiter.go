package ruleset

import (
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/check/internal/fleetstate"
	"github.com/offpath-io/offpath/pkg/rules"
)

// Init initializes the limiter of a rule. It is called once, before anything else. order is
// Limiter.Order.
func (l *Limiter) Init(h *counter.Host, order uint64, r *rules.Rule) {
	l.Hashes, l.Order = h.Config.KeyHash != nil, order
	l.after = time.Duration(r.Window.Live()-1) * r.Window.BucketSize()
	l.Group.Init(h, r.Name, r.Window, isStrict(r, h))
}

// SetLimits makes the limiter decide by these limits from now on.
func (l *Limiter) SetLimits(t *Limits) {
	l.Group.Limits.Store(&t.Limits)
	l.Current.Store(t)
}

// InTouch returns whether allowances and blocks are valid. From the degradation level LocalShare on
// they are not, since other numbers decide there. Permits are valid at all levels.
func (l *Limiter) InTouch(f fleetstate.Freshness) bool {
	return f < fleetstate.LocalShare || l.Group.Strict != nil
}

// Reset returns how long after now the bucket of now has left every window, or a full token or
// leaky bucket has drained.
func (l *Limiter) Reset(t *Limits, now int64) time.Duration {
	return l.ResetAfter(t, time.Duration(l.Group.Shape.End(l.Group.Shape.Bucket(now))-now))
}

// ResetAfter is Reset for a bucket that ends after this time.
func (l *Limiter) ResetAfter(t *Limits, end time.Duration) time.Duration {
	if t.fill > 0 {
		return t.fill
	}
	return end + l.after
}

// AdmitOverflow counts decisions that allowed, and hits that pass without a counter.
func (l *Limiter) AdmitOverflow(decisions, hits int64) {
	if decisions == 0 {
		l.Group.Tallies[0].Further.Add(hits)
	} else {
		l.Group.Tallies[0].Admit(decisions, hits)
	}
	l.Overflow.Add(hits)
	l.Group.NoteRevived()
}

// CountsDenied returns whether denied hits count, and callers ask again instead of waiting for a
// turn.
func (l *Limiter) CountsDenied() bool {
	c := l.Current.Load().Clauses
	return c != nil && c.All && !c.Shadow && !l.Group.Shape.Drains()
}

// ReleaseLocked marks a limiter as released, and returns true, if it holds nothing. The reporter is
// locked.
func (l *Limiter) ReleaseLocked() bool {
	holds := func() bool {
		return l.Group.Counters.Load() != 0 || l.Group.Late.Load() != 0 || l.Group.Reports.InFlight != 0 || l.Group.Reports.QueuedLate
	}
	if holds() {
		return false
	}
	l.Group.Released.Store(true) // from now on, NoteRevived lists it when a counter is made
	if holds() {
		l.Group.Released.Store(false)
		return false
	}
	return true
}
