package ruleset

import (
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/check/internal/fleetstate"
	"github.com/offpath-io/offpath/pkg/rules"
)

// Init makes the limiter of a rule ready. It is called once, before anything else.
func (l *Limiter) Init(h *counter.Host, id uint64, r *rules.Rule) {
	l.Hashes, l.Order = h.Config.KeyHash != nil, id
	l.after = time.Duration(r.Window.Live()-1) * r.Window.BucketSize()
	l.Group.Init(h, r.Name, r.Window, isStrict(r, h))
}

// SetLimits lets the limiter decide by these limits from now on.
func (l *Limiter) SetLimits(t *Limits) {
	l.Group.Limits.Store(&t.Limits)
	l.Current.Store(t)
}

// InTouch says whether allowances and blocks hold: not at the degradation levels from LocalShare
// on, which decide by other numbers. Permits hold at all levels.
func (l *Limiter) InTouch(f fleetstate.Freshness) bool {
	return f < fleetstate.LocalShare || l.Group.Strict != nil
}

// Reset returns how long after now the bucket of now has left every window, or a full one that
// drains is empty.
func (l *Limiter) Reset(t *Limits, now int64) time.Duration {
	return l.ResetAfter(t, time.Duration(l.Group.Shape.End(l.Group.Shape.Bucket(now))-now))
}

// ResetAfter is reset, when the bucket ends after so long.
func (l *Limiter) ResetAfter(t *Limits, end time.Duration) time.Duration {
	if t.fill > 0 {
		return t.fill
	}
	return end + l.after
}

// AdmitOverflow counts hits that pass without a counter.
func (l *Limiter) AdmitOverflow(decisions, hits int64) {
	if decisions == 0 {
		l.Group.Tallies[0].Further.Add(hits)
	} else {
		l.Group.Tallies[0].Admit(decisions, hits)
	}
	l.Overflow.Add(hits)
	l.Group.NoteRevived()
}

// CountsDenied says whether denied hits count, and callers ask again rather than wait for their
// turn.
func (l *Limiter) CountsDenied() bool {
	c := l.Current.Load().Clauses
	return c != nil && c.All && !c.Shadow && !l.Group.Shape.Drains()
}

// LeaveLocked marks a limiter as let go, if it holds nothing; the reporter is locked.
func (l *Limiter) LeaveLocked() bool {
	holds := func() bool {
		return l.Group.Counters.Load() != 0 || l.Group.Late.Load() != 0 || l.Group.Owed.InFlight != 0 || l.Group.Owed.QueuedLate
	}
	if holds() {
		return false
	}
	l.Group.Away.Store(true) // from now on, whoever makes a counter says so
	if holds() {
		l.Group.Away.Store(false)
		return false
	}
	return true
}
