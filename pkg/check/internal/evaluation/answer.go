package evaluation

import (
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/check/internal/fleetstate"
	"github.com/offpath-io/offpath/pkg/check/internal/ruleset"
	"github.com/offpath-io/offpath/pkg/rules"
)

// Decisions of a limiter without the counter's lock, or without a counter, and the fields that all
// decisions have.

// checkUnlocked decides for a hit of cost 1 by the counter's allowance or block. It returns false
// if it cannot.
func checkUnlocked(d *Decision, l *ruleset.Limiter, t *ruleset.Limits, c *counter.Counter, now int64, f fleetstate.Freshness) bool {
	v := counter.Allowed
	left, until := c.TakeOne(t.Stamp, now)
	if left < 0 {
		v, left, until = c.Take(t.Stamp, now)
	}
	switch v {
	case counter.Allowed:
		d.Allowed = true
		// An allowance ends at the latest with its bucket; the bucket leaves the window later.
		d.Reset = l.ResetAfter(t, time.Duration(until-now))
	case counter.Denied, counter.DeniedCounted:
		c.Touch(now)
		l.Group.Tallies[c.Stripe].Denied.Add(1)
		if v == counter.Denied {
			l.Group.NoteDenied(c.Key(), 1)
		}
		d.RetryAfter = time.Duration(until - now)
		d.Reset = l.Reset(t, now)
		d.FillDenial(t.Rule)
		if l.Group.Strict != nil {
			d.RetryAfter = max(d.RetryAfter, c.DenyUnlocked(now))
		}
	default:
		return false
	}
	fill(d, l, t, left, f)
	return true
}

// denyFull writes the fields that all denials for lack of room have.
func denyFull(d *Decision, l *ruleset.Limiter, t *ruleset.Limits, now, room int64, f fleetstate.Freshness) {
	fill(d, l, t, room, f)
	d.Reset = l.Reset(t, now)
	d.FillDenial(t.Rule)
}

// allow makes the decision for a hit that is charged to a bucket; end is how long until the bucket
// ends.
func allow(d *Decision, l *ruleset.Limiter, t *ruleset.Limits, end time.Duration, left int64, f fleetstate.Freshness) {
	fill(d, l, t, left, f)
	d.Allowed = true
	d.Reset = l.ResetAfter(t, end)
}

// checkOverflow decides for a key for which the table has no room, because it is full of keys that
// may not be forgotten. Hits that pass are counted as overflow, and against no key.
func checkOverflow(d *Decision, l *ruleset.Limiter, t *ruleset.Limits, now int64, key string, cost int64) {
	peekOverflow(d, l, t, now, key, cost)
	if !d.Allowed {
		l.Group.Tallies[0].Denied.Add(1)
		l.Group.NoteDenied(key, 1)
		return
	}
	l.AdmitOverflow(1, cost)
}

// peekOverflow makes that decision without charging. If the idle cache remembers counts of the key,
// they decide; otherwise the rule's OnOutage does.
func peekOverflow(d *Decision, l *ruleset.Limiter, t *ruleset.Limits, now int64, key string, cost int64) {
	f := l.Group.Freshness(&t.Limits, key)
	if old := l.Group.Recall(key); old.Counter != nil && l.Group.Strict == nil {
		c := counter.New(&l.Group, key, now)
		c.Learn(old)
		h := counter.Hit{Counter: c, By: &t.Limits, Cost: cost}
		if room := h.MeasureRoom(now); cost > room {
			denyFull(d, l, t, now, room, f)
			d.RetryAfter = h.FitsIn(now)
			return
		}
	}
	fill(d, l, t, 0, f)
	d.Reset = l.Reset(t, now)
	d.FillDenial(t.Rule)
	switch {
	case cost > t.Capacity:
		d.RetryAfter = Never
	case t.Rule.OnOutage == rules.Closed:
		d.RetryAfter = l.Group.Host.Config.FlushEvery
	default:
		d.allow()
	}
}

// fill writes the fields that all decisions of a rule have. It sets them one by one: copying a
// whole decision that has just been written causes a store-to-load forwarding stall, which took
// half of the time of a common check.
func fill(d *Decision, l *ruleset.Limiter, t *ruleset.Limits, left int64, f fleetstate.Freshness) {
	d.Freshness = f
	d.Rule = t.Name
	d.Limit = t.Shown
	d.Remaining = left
}
