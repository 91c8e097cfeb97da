package check

import (
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/rules"
)

// What a limiter answers by one counter without its lock, and without a counter; and what every
// decision says.

// inTouch says whether allowances and blocks hold: not at the degradation levels from LocalShare
// on, which decide by other numbers. Permits hold at all levels.
func (l *Limiter) inTouch(f counter.Freshness) bool {
	return f < counter.LocalShare || l.group.Strict != nil
}

// checkUnlocked decides for a hit of cost 1 by the counter's allowance or block; false if it
// cannot.
func (l *Limiter) checkUnlocked(d *Decision, t *limits, c *counter.Counter, now int64, f counter.Freshness) bool {
	v, left, until := c.Take(t.Stamp, now)
	switch v {
	case counter.Allowed:
		d.Allowed = true
		// An allowance ends with its bucket; the bucket leaves the window later.
		d.Reset = l.resetAfter(t, time.Duration(until-now))
	case counter.Denied, counter.Refused:
		c.Touch(now)
		l.group.Tallies[c.Stripe].Denied.Add(1)
		if v == counter.Denied {
			l.group.NoteDenied(c.Key(), 1)
		}
		d.RetryAfter = time.Duration(until - now)
		d.Reset = l.reset(t, now)
		d.deny(t.rule)
		if l.group.Strict != nil {
			d.RetryAfter = max(d.RetryAfter, c.DenyUnlocked(now))
		}
	default:
		return false
	}
	l.fillAt(d, t, left, f)
	return true
}

// denyFull writes what every denial for lack of room says.
func (l *Limiter) denyFull(d *Decision, t *limits, now, room int64) {
	l.fill(d, t, room)
	d.Reset = l.reset(t, now)
	d.deny(t.rule)
}

// allow makes the decision for a hit that has been charged to a bucket which ends after so long.
func (l *Limiter) allow(d *Decision, t *limits, end time.Duration, left int64) {
	l.fill(d, t, left)
	d.Allowed = true
	d.Reset = l.resetAfter(t, end)
}

// checkOverflow decides for a key for which there is no room: the table is full of keys that may
// not be forgotten. Hits that pass are counted as overflow, and against no key.
func (l *Limiter) checkOverflow(d *Decision, t *limits, now int64, key string, cost int64) {
	l.peekOverflow(d, t, now, key, cost)
	if !d.Allowed {
		l.group.Tallies[0].Denied.Add(1)
		l.group.NoteDenied(key, 1)
		return
	}
	l.admitOverflow(1, cost)
}

// peekOverflow is that decision without the charge: what is remembered of the key counts against
// it, otherwise the rule's OnOutage decides.
func (l *Limiter) peekOverflow(d *Decision, t *limits, now int64, key string, cost int64) {
	if old := l.group.Recall(key); old.Counter != nil && l.group.Strict == nil {
		c := counter.New(&l.group, key, now)
		c.Learn(old)
		h := counter.Hit{Counter: c, By: &t.Limits, Cost: cost}
		if room := h.MeasureRoom(now); cost > room {
			l.denyFull(d, t, now, room)
			d.RetryAfter = h.FitsIn(now)
			return
		}
	}
	l.fill(d, t, 0)
	d.Reset = l.reset(t, now)
	d.deny(t.rule)
	switch {
	case cost > t.Capacity:
		d.RetryAfter = Never
	case t.rule.OnOutage == rules.Closed:
		d.RetryAfter = l.group.Host.Config.FlushEvery
	default:
		d.allow()
	}
}

// fill writes what every decision of this rule says. Field by field: a copy of a whole Decision
// waits for the stores of its parts, and on the common path that took half of the time.
func (l *Limiter) fill(d *Decision, t *limits, left int64) {
	l.fillAt(d, t, left, l.group.Freshness(&t.Limits))
}

func (l *Limiter) fillAt(d *Decision, t *limits, left int64, f counter.Freshness) {
	d.Freshness = Freshness(f)
	d.Rule = t.name
	d.Limit = t.says
	d.Remaining = left
}

// reset returns how long after now the bucket of now has left every window, or a full one that
// drains is empty.
func (l *Limiter) reset(t *limits, now int64) time.Duration {
	return l.resetAfter(t, time.Duration(l.group.Shape.End(l.group.Shape.Bucket(now))-now))
}

// resetAfter is reset, when the bucket ends after so long.
func (l *Limiter) resetAfter(t *limits, end time.Duration) time.Duration {
	if t.fill > 0 {
		return t.fill
	}
	return end + l.after
}

// admitOverflow counts hits that pass without a counter.
func (l *Limiter) admitOverflow(decisions, hits int64) {
	if decisions == 0 {
		l.group.Tallies[0].Further.Add(hits)
	} else {
		l.group.Tallies[0].Admit(decisions, hits)
	}
	l.overflow.Add(hits)
	l.group.NoteRevived()
}
