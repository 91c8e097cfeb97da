package evaluation

import (
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/check/internal/fleetstate"
	"github.com/offpath-io/offpath/pkg/check/internal/ruleset"
	"github.com/offpath-io/offpath/pkg/rules"
)

// What a limiter answers by one counter without its lock, and without a counter; and what every
// decision says.

// checkUnlocked decides for a hit of cost 1 by the counter's allowance or block; false if it
// cannot.
func checkUnlocked(d *Decision, l *ruleset.Limiter, t *ruleset.Limits, c *counter.Counter, now int64, f fleetstate.Freshness) bool {
	v, left, until := c.Take(t.Stamp, now)
	switch v {
	case counter.Allowed:
		d.Allowed = true
		// An allowance ends with its bucket; the bucket leaves the window later.
		d.Reset = l.ResetAfter(t, time.Duration(until-now))
	case counter.Denied, counter.Refused:
		c.Touch(now)
		l.Group.Tallies[c.Stripe].Denied.Add(1)
		if v == counter.Denied {
			l.Group.NoteDenied(c.Key(), 1)
		}
		d.RetryAfter = time.Duration(until - now)
		d.Reset = l.Reset(t, now)
		d.Deny(t.Rule)
		if l.Group.Strict != nil {
			d.RetryAfter = max(d.RetryAfter, c.DenyUnlocked(now))
		}
	default:
		return false
	}
	fillAt(d, l, t, left, f)
	return true
}

// denyFull writes what every denial for lack of room says.
func denyFull(d *Decision, l *ruleset.Limiter, t *ruleset.Limits, now, room int64) {
	fill(d, l, t, room)
	d.Reset = l.Reset(t, now)
	d.Deny(t.Rule)
}

// allow makes the decision for a hit that has been charged to a bucket which ends after so long.
func allow(d *Decision, l *ruleset.Limiter, t *ruleset.Limits, end time.Duration, left int64) {
	fill(d, l, t, left)
	d.Allowed = true
	d.Reset = l.ResetAfter(t, end)
}

// checkOverflow decides for a key for which there is no room: the table is full of keys that may
// not be forgotten. Hits that pass are counted as overflow, and against no key.
func checkOverflow(d *Decision, l *ruleset.Limiter, t *ruleset.Limits, now int64, key string, cost int64) {
	peekOverflow(d, l, t, now, key, cost)
	if !d.Allowed {
		l.Group.Tallies[0].Denied.Add(1)
		l.Group.NoteDenied(key, 1)
		return
	}
	l.AdmitOverflow(1, cost)
}

// peekOverflow is that decision without the charge: what is remembered of the key counts against
// it, otherwise the rule's OnOutage decides.
func peekOverflow(d *Decision, l *ruleset.Limiter, t *ruleset.Limits, now int64, key string, cost int64) {
	if old := l.Group.Recall(key); old.Counter != nil && l.Group.Strict == nil {
		c := counter.New(&l.Group, key, now)
		c.Learn(old)
		h := counter.Hit{Counter: c, By: &t.Limits, Cost: cost}
		if room := h.MeasureRoom(now); cost > room {
			denyFull(d, l, t, now, room)
			d.RetryAfter = h.FitsIn(now)
			return
		}
	}
	fill(d, l, t, 0)
	d.Reset = l.Reset(t, now)
	d.Deny(t.Rule)
	switch {
	case cost > t.Capacity:
		d.RetryAfter = Never
	case t.Rule.OnOutage == rules.Closed:
		d.RetryAfter = l.Group.Host.Config.FlushEvery
	default:
		d.allow()
	}
}

// fill writes what every decision of this rule says. Field by field: a copy of a whole decision
// waits for the stores of its parts, and on the common path that took half of the time.
func fill(d *Decision, l *ruleset.Limiter, t *ruleset.Limits, left int64) {
	fillAt(d, l, t, left, l.Group.Freshness(&t.Limits))
}

func fillAt(d *Decision, l *ruleset.Limiter, t *ruleset.Limits, left int64, f fleetstate.Freshness) {
	d.Freshness = f
	d.Rule = t.Name
	d.Limit = t.Shown
	d.Remaining = left
}
