package check

import (
	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/identity"
)

// Which rules a request is decided by, and the keys that they make of it.

// match fills in the limiters whose rules match, and their keys, for some purpose. It returns false
// if one of the rules bars the request, whatever its counts are; bar is that one then.
func (a *evaluation) match(p *ruleset, attrs identity.Attributes, now, cost int64, to purpose) bool {
	a.begin(p, to)
	a.found = p.set.Find(a.found[:0], attrs)
	keyed := -1 // the place of the rule whose key was made last
	for _, r := range a.found {
		place := r.Place()
		e := &p.entries[place]
		q := a.add()
		*q = ruleDecision{limiter: e.limiter, limits: e.limits, matched: e.limits, origin: e.limits, place: place, Hit: counter.Hit{Cost: cost}}
		v := applies
		if e.limits.blocks != nil {
			v = q.blockMatching(a, e, attrs, now)
		}
		if v == applies && !e.bare {
			v = q.apply(e, attrs, now)
		}
		switch {
		case v != applies:
		case keyed >= 0 && p.entries[keyed].key == e.key:
			q.from, q.to = a.from, len(a.text)
		default:
			if v = q.makeKey(a, r, attrs); v == applies {
				keyed, a.from = place, q.from
			}
		}
		q.barred = v == bars
		switch {
		case v == appliesNot || v == bars && a.purpose == recording:
			a.drop()
		case v == bars && !r.Shadow:
			a.bar = *q
			return false
		default:
			a.sort()
		}
	}
	return true
}

// askAlone lets one limiter be asked, about a key.
func (a *evaluation) askAlone(l *Limiter, t *limits, now int64, key string, cost int64, to purpose) {
	a.begin(nil, to)
	a.text = l.group.Host.AppendText(a.text, key)
	a.decisions = append(a.decisions, ruleDecision{limiter: l, to: len(a.text), Hit: counter.Hit{Cost: cost}})
	a.decisions[0].decideBy(t, nil)
	a.blockAlone(now)
	if to == recording && a.decisions[0].barred { // as by attributes
		a.drop()
	}
}

// decider is what decides a request: the rules of a ruleset that match, or one limiter.
type decider struct {
	program *ruleset
	limiter *Limiter
	limits  *limits // the limiter's
}

// now returns the fleet's time for a decision.
func (by decider) now(c *Checker) int64 {
	if by.limiter != nil {
		return by.limiter.group.Now()
	}
	return c.host.Time(by.program.strict)
}

// fill fills in the rules that are asked, for some purpose. It returns false if one of them bars
// the request, whatever its counts are; see match.
func (a *evaluation) fill(
	by decider, now int64, attrs identity.Attributes, key string, cost int64, to purpose,
) bool {
	if by.limiter == nil {
		return a.match(by.program, attrs, now, cost, to)
	}
	a.askAlone(by.limiter, by.limits, now, key, cost, to)
	return true
}
