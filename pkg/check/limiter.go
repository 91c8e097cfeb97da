package check

import (
	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/identity"
)

// Check decides for one hit of this cost against key, and charges it if it may pass. A cost below 1
// counts as 1. It allocates nothing for a key that has been seen lately.
func (l *Limiter) Check(key string, cost int64) (d Decision) {
	if t := l.limits.Load(); l.isPlain(t, key) {
		l.checkAt(&d, t, l.group.Now(), key, cost)
	} else {
		l.checkBy(&d, t, l.group.Now(), key, cost)
	}
	return d
}

// isPlain says whether a hit is decided by nothing but a limit, and about the key as it is: by
// checkAt then. It is what checkBy would find, one call earlier.
func (l *Limiter) isPlain(t *limits, key string) bool {
	return t.plain && len(key) <= identity.MaxKey
}

// checkBy decides under these limits, about a key as the caller has it, and writes its decision to
// d, which is zero.
func (l *Limiter) checkBy(d *Decision, t *limits, now int64, key string, cost int64) {
	if t.blocks != nil && l.checkBlocked(d, t, now, key, cost) {
		return
	}
	switch {
	case t.clauses != nil:
		l.checkAlone(d, t, now, key, cost)
	case l.hashes:
		l.checkHashed(d, t, now, key, cost)
	default:
		l.checkAt(d, t, now, identity.Bound(key), cost)
	}
}

// checkAt decides under these limits, about a key as counters have it, and writes its decision to
// d, which is zero.
func (l *Limiter) checkAt(d *Decision, t *limits, now int64, key string, cost int64) {
	f := l.group.Host.Freshness()
	c := l.group.Host.Table.Load(&l.group, key)
	if c != nil && cost <= 1 && l.inTouch(f) && l.checkUnlocked(d, t, c, now, f) {
		return
	}
	l.checkLocked(d, t, c, now, key, max(cost, 1))
}

// checkLocked decides with the counter's lock, and leaves an allowance or a block for the next
// checks. c is the key's counter if it has been found.
func (l *Limiter) checkLocked(d *Decision, t *limits, c *counter.Counter, now int64, key string, cost int64) {
	for ; ; c = nil {
		if c == nil {
			c = l.group.Find(now, key)
		}
		if c == nil {
			l.checkOverflow(d, t, now, key, cost)
			return
		}
		locked := c.Lock()
		if locked.Is(counter.Dead) { // it left between find and here; the next find will not meet it
			locked.Unlock()
			continue
		}
		l.decide(d, t, locked, now, cost)
		locked.Unlock()
		return
	}
}

// decide decides by one counter. The decision is filled in field by field: a literal would be made
// elsewhere and copied.
func (l *Limiter) decide(d *Decision, t *limits, c counter.Locked, now, cost int64) {
	var q ruleDecision
	q.limiter, q.limits, q.matched = l, t, t
	q.Counter, q.Cost = c, cost
	q.decide(d, now)
	q.conclude(q.Passes, false, now)
}

// checkHashed is checkAt for a key that is to be hashed.
func (l *Limiter) checkHashed(d *Decision, t *limits, now int64, key string, cost int64) {
	a := newEvaluation(l.group.Host)
	defer a.free()
	a.text = l.group.Host.AppendText(a.text[:0], key)
	l.checkAt(d, t, now, textAt(a.text, 0, len(a.text)), cost)
}

// checkAlone is checkAt for limits with clauses.
func (l *Limiter) checkAlone(d *Decision, t *limits, now int64, key string, cost int64) {
	a := newEvaluation(l.group.Host)
	defer a.free()
	a.askAlone(l, t, now, key, max(cost, 1), charging)
	a.decideOne(d, nil, now)
	d.ownShadow()
}

// checkBlocked denies a hit of a blocked key; false if it is not blocked.
func (l *Limiter) checkBlocked(d *Decision, t *limits, now int64, key string, cost int64) bool {
	a := newEvaluation(l.group.Host)
	defer a.free()
	a.askAlone(l, t, now, key, max(cost, 1), charging)
	if !a.decisions[0].barred {
		return false
	}
	a.decide(d, nil, now)
	d.ownShadow()
	return true
}

// decideOne is decide for one rule with clauses.
func (a *evaluation) decideOne(d *Decision, attrs identity.Attributes, now int64) {
	q := &a.decisions[0]
	f := q.limiter.group.Host.Freshness()
	if l := q.limiter; q.Cost == 1 && q.limits.full == nil && !q.isShadow() && l.inTouch(f) {
		if c := l.group.Host.Table.Load(&l.group, a.key(0)); c != nil && l.checkUnlocked(d, q.limits, c, now, f) {
			q.noteCost()
			if x := q.limits.clauses.elastic; x != nil && c.Beyond.Load()&counter.Raised != 0 { // as the last look has found
				d.Limit = x.roomy.says
			}
			return
		}
	}
	a.decide(d, attrs, now)
}
