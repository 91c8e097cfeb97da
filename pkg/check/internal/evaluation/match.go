package evaluation

import (
	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/check/internal/ruleset"
	"github.com/offpath-io/offpath/pkg/identity"
)

// The rules that decide a request, and the keys that they make of it.

// match fills in the decisions by the rules that match, with their keys, for a purpose. It returns
// false if one of the rules bars the request, independently of its counts; bar is its decision
// then.
func (a *evaluation) match(p *ruleset.Compiled, attrs identity.Attributes, now, cost int64, to purpose) bool {
	a.begin(p, to)
	a.found = p.Rules.Find(a.found[:0], attrs)
	keyed := -1 // the place of the rule whose key was made last
	for _, r := range a.found {
		place := r.Place()
		e := &p.Entries[place]
		q := a.add()
		*q = ruleDecision{limiter: e.Limiter, limits: e.Limits, matched: e.Limits, origin: e.Limits, place: place, Hit: counter.Hit{Cost: cost}}
		v := applies
		if e.Limits.Blocks != nil {
			v = q.blockMatching(a, e, attrs, now)
		}
		if v == applies && !e.Bare {
			v = q.apply(e, attrs, now)
		}
		switch {
		case v != applies:
			a.exempt = a.exempt || v == appliesNot
		case keyed >= 0 && p.Entries[keyed].KeyNumber == e.KeyNumber:
			q.from, q.to = a.from, len(a.text)
		default:
			if v = q.makeKey(a, r, attrs); v == applies {
				keyed, a.from = place, q.from
			}
		}
		q.barred = v == bars
		switch {
		case v == appliesNot || v == bars && a.purpose == Recording:
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

// askAlone makes the only decision that of one limiter about a key.
func (a *evaluation) askAlone(l *ruleset.Limiter, t *ruleset.Limits, now int64, key string, cost int64, to purpose) {
	a.begin(nil, to)
	a.text = l.Group.Host.AppendText(a.text, key)
	a.decisions = append(a.decisions, ruleDecision{limiter: l, to: len(a.text), Hit: counter.Hit{Cost: cost}})
	a.decisions[0].decideBy(t, nil)
	a.blockAlone(now)
	if to == Recording && a.decisions[0].barred { // as in match
		a.drop()
	}
}

// Decider says what decides a request: the rules of a ruleset that match, or one limiter.
type Decider struct {
	Rules   *ruleset.Compiled
	Limiter *ruleset.Limiter
	Limits  *ruleset.Limits // the limiter's
}

// Now returns the fleet's time for a decision.
func (by Decider) Now(h *counter.Host) int64 {
	if by.Limiter != nil {
		return by.Limiter.Group.Now()
	}
	return h.Time(by.Rules.Strict)
}

// fill fills in the decisions for a purpose. It returns false if a rule bars the request,
// independently of its counts; see match.
func (a *evaluation) fill(
	by Decider, now int64, attrs identity.Attributes, key string, cost int64, to purpose,
) bool {
	if by.Limiter == nil {
		return a.match(by.Rules, attrs, now, cost, to)
	}
	a.askAlone(by.Limiter, by.Limits, now, key, cost, to)
	return true
}
