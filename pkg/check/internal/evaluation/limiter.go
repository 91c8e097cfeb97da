package evaluation

import (
	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/check/internal/ruleset"
	"github.com/offpath-io/offpath/pkg/identity"
)

// CheckKeyNow decides by one limiter, about a key as the caller gives it, and writes the decision
// to d, which must be zero.
func CheckKeyNow(d *Decision, l *ruleset.Limiter, key string, cost int64) {
	if t, now := l.Current.Load(), l.Group.Now(); t.IsPlain(key) {
		CheckPlain(d, l, t, now, key, cost)
	} else {
		CheckKey(d, l, t, now, key, cost)
	}
}

// CheckKey is CheckKeyNow under these limits, at this time.
func CheckKey(d *Decision, l *ruleset.Limiter, t *ruleset.Limits, now int64, key string, cost int64) {
	if t.Blocks != nil && checkBlocked(d, l, t, now, key, cost) {
		return
	}
	switch {
	case t.Clauses != nil:
		checkClauses(d, l, t, now, key, cost)
	case l.Hashes:
		checkHashed(d, l, t, now, key, cost)
	default:
		CheckPlain(d, l, t, now, identity.Bound(key), cost)
	}
}

// CheckPlain decides under these limits, about a key as counters have it, and writes the decision
// to d, which must be zero.
func CheckPlain(d *Decision, l *ruleset.Limiter, t *ruleset.Limits, now int64, key string, cost int64) {
	f := l.Group.Host.FreshnessOf(l.Group.Name, key)
	c := l.Group.Host.Table.Load(&l.Group, key)
	if c != nil && cost <= 1 && l.InTouch(f) && checkUnlocked(d, l, t, c, now, f) {
		return
	}
	checkLocked(d, l, t, c, now, key, max(cost, 1))
}

// checkLocked decides with the counter's lock, and leaves an allowance or a block for the next
// checks. c is the key's counter if it has been found.
func checkLocked(d *Decision, l *ruleset.Limiter, t *ruleset.Limits, c *counter.Counter, now int64, key string, cost int64) {
	for ; ; c = nil {
		if c == nil {
			c = l.Group.FindOrMake(now, key)
		}
		if c == nil {
			checkOverflow(d, l, t, now, key, cost)
			return
		}
		locked := c.Lock()
		if locked.Is(counter.Dead) { // it left the table after FindOrMake; the next call will not find it
			locked.Unlock()
			continue
		}
		decide(d, l, t, locked, now, cost)
		locked.Unlock()
		return
	}
}

// decide decides by one counter. It sets the fields one by one: a literal would be built elsewhere
// and copied.
func decide(d *Decision, l *ruleset.Limiter, t *ruleset.Limits, c counter.Locked, now, cost int64) {
	var q ruleDecision
	q.limiter, q.limits, q.matched = l, t, t
	q.Counter, q.Cost = c, cost
	q.decide(d, now)
	q.conclude(q.Passes, false, now)
}

// checkHashed is CheckPlain for a key that has to be hashed.
func checkHashed(d *Decision, l *ruleset.Limiter, t *ruleset.Limits, now int64, key string, cost int64) {
	a := newEvaluation(l.Group.Host)
	defer a.free()
	a.text = l.Group.Host.AppendText(a.text[:0], key)
	CheckPlain(d, l, t, now, textAt(a.text, 0, len(a.text)), cost)
}

// checkClauses is CheckPlain for limits with clauses.
func checkClauses(d *Decision, l *ruleset.Limiter, t *ruleset.Limits, now int64, key string, cost int64) {
	a := newEvaluation(l.Group.Host)
	defer a.free()
	a.askAlone(l, t, now, key, max(cost, 1), Charging)
	a.decideOne(d, nil, now)
	d.ownShadow()
}

// checkBlocked denies a hit of a blocked key. It returns false if the key is not blocked.
func checkBlocked(d *Decision, l *ruleset.Limiter, t *ruleset.Limits, now int64, key string, cost int64) bool {
	a := newEvaluation(l.Group.Host)
	defer a.free()
	a.askAlone(l, t, now, key, max(cost, 1), Charging)
	if !a.decisions[0].barred {
		return false
	}
	a.decideAll(d, nil, now)
	d.ownShadow()
	return true
}

// decideOne is decideAll for one rule with clauses.
func (a *evaluation) decideOne(d *Decision, attrs identity.Attributes, now int64) {
	q := &a.decisions[0]
	f := q.limiter.Group.Host.FreshnessOf(q.limiter.Group.Name, a.key(0))
	if l := q.limiter; q.Cost == 1 && q.limits.Full == nil && !q.isShadow() && l.InTouch(f) {
		if c := l.Group.Host.Table.Load(&l.Group, a.key(0)); c != nil && checkUnlocked(d, l, q.limits, c, now, f) {
			q.noteCost()
			if x := q.limits.Clauses.Elastic; x != nil && c.Beyond.Load()&counter.Raised != 0 { // as lookForRoom found when the lock was last taken
				d.Limit = x.Roomy.Shown
			}
			return
		}
	}
	a.decideAll(d, attrs, now)
}
