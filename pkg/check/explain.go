package check

import (
	"fmt"
	"slices"
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

// explain is what a check would decide, and what each rule of the set makes of the request.
func (c *Checker) explain(
	by decider, now int64, attrs identity.Attributes, cost int64,
) (Decision, []Explanation) {
	p := by.program
	found := p.set.Find(nil, attrs)
	all := make([]Explanation, p.rules)
	decisions := make([]ruleDecision, 0, len(found))
	for i := range all {
		r := p.entries[i].rule
		if !slices.Contains(found, r) {
			all[i] = Explanation{Rule: r.Name, Override: -1, Why: whyNoMatch(r, attrs)}
			continue
		}
		q := p.explainRule(&all[i], i, attrs, now, cost)
		if q.place = i; all[i].Why == "" {
			decisions = append(decisions, q)
		}
	}
	a := p.explainAll(all, decisions, attrs, now)
	d := c.peek(by, now, attrs, "", cost)
	worst := -1
	for i := range a.decisions {
		if q := &a.decisions[i]; q.limits.name == d.Rule {
			worst = q.place
		}
	}
	if worst >= 0 {
		all[worst].Decides = true
	}
	return d, all
}

// standing is explain for the rules that limit the request.
func (c *Checker) standing(
	p *ruleset, now int64, attrs identity.Attributes, cost int64,
) []Explanation {
	found := p.set.Find(nil, attrs)
	all, decisions := make([]Explanation, 0, len(found)), make([]ruleDecision, 0, len(found))
	for _, r := range found {
		var x Explanation
		q := p.explainRule(&x, r.Place(), attrs, now, cost)
		if q.place = len(all); x.Why == "" {
			all, decisions = append(all, x), append(decisions, q)
		}
	}
	p.explainAll(all, decisions, attrs, now)
	return all
}

// explainRule says what the rule at a place, which matches, makes of the caller.
func (p *ruleset) explainRule(
	x *Explanation, place int, attrs identity.Attributes, now, cost int64,
) ruleDecision {
	e := &p.entries[place]
	*x = Explanation{Rule: e.rule.Name, Override: -1}
	q := ruleDecision{limiter: e.limiter, Hit: counter.Hit{Cost: cost}}
	q.explainCaller(x, e, attrs, now)
	return q
}

// explainAll explains the counts of what is asked, each at its place.
func (p *ruleset) explainAll(
	all []Explanation, decisions []ruleDecision, attrs identity.Attributes, now int64,
) *evaluation {
	a := new(evaluation)
	a.begin(p, peeking)
	for i := range decisions {
		a.explainKey(&all[decisions[i].place], &decisions[i], attrs)
	}
	a.lookForRoom(attrs, now)
	for i := range a.decisions {
		a.explainCounts(&all[a.decisions[i].place], &a.decisions[i], a.key(i), now)
	}
	return a
}

// whyNoMatch says why a rule does not apply to attributes, whoever the caller is.
func whyNoMatch(r *rules.Rule, attrs identity.Attributes) string {
	for i := range r.Match {
		c := &r.Match[i]
		value, ok := attrs.Get(c.Name)
		switch {
		case !ok:
			return fmt.Sprintf("there is no attribute %s: want %s", c.Name, valueOf(c))
		case !c.Matches(attrs):
			return fmt.Sprintf("%s is %.60q: want %s", c.Name, value, valueOf(c))
		}
	}
	switch {
	case r.Excludes(attrs):
		return "it excludes such requests"
	case !r.Matches(attrs):
		return "there are attributes beside those of its match and key"
	}
	return "another rule replaces it"
}

func valueOf(c *rules.Condition) string {
	switch c.Op {
	case rules.Prefix:
		return fmt.Sprintf("one that begins with %q", c.Value)
	case rules.Present:
		return "any"
	}
	return fmt.Sprintf("%q", c.Value)
}

// explainCaller says what the rule makes of the caller.
func (q *ruleDecision) explainCaller(x *Explanation, e *entry, attrs identity.Attributes, now int64) {
	q.decideBy(e.limits, attrs)
	v := q.apply(e, attrs, now)
	x.Override = e.rule.Override(attrs, time.Unix(0, now))
	x.Shadow = e.rule.Shadow
	if q.explainBlock(e, attrs, now) {
		x.Barred, q.barred = "its key is blocked", true
		return
	}
	allowed, denied := e.rule.Listed(attrs)
	switch {
	case v == appliesNot && e.rule.Unlimited:
		x.Why = "it limits nobody"
	case v == appliesNot && allowed:
		x.Why = "the caller is on its allow list"
	case v == appliesNot:
		x.Why = "an override exempts the caller"
	case denied:
		x.Barred = "the caller is on its deny list"
	case v == bars:
		x.Barred = "an override blocks the caller"
	}
	if q.barred = v == bars; x.Why != "" || q.barred {
		return
	}
	if _, ok := e.rule.AppendKey(nil, attrs); ok {
		return
	}
	if e.rule.OnMissing == rules.Deny {
		x.Barred, q.barred, q.retry = "an attribute of its key is missing", true, Never
	} else {
		x.Why = "an attribute of its key is missing"
	}
}

// explainKey adds the decision to those of the evaluation.
func (a *evaluation) explainKey(x *Explanation, q *ruleDecision, attrs identity.Attributes) {
	q.from = len(a.text)
	if !q.barred {
		a.text, _ = q.limiter.group.Host.AppendKey(a.text, q.limits.rule, attrs)
	}
	q.to = len(a.text)
	x.Counter, x.Key = q.limiter.group.Name, string(a.text[q.from:q.to])
	x.Cost, x.BadCost = q.Cost, q.badCost
	a.decisions = append(a.decisions, *q)
}

// explainCounts says what the rule's counts make of the request.
func (a *evaluation) explainCounts(x *Explanation, q *ruleDecision, key string, now int64) {
	x.Limit = q.limits.Capacity
	if !q.barred && q.limiter.group.HasRoomFor(key) {
		q.Counter = new(counter.View).Of(&q.limiter.group, key, now)
	}
	var d Decision
	q.ask(&d, now, key)
	x.Denies, x.RetryAfter, x.Room = !d.Allowed, d.RetryAfter, d.Remaining
	if !q.HasCounter() {
		return
	}
	x.Count = q.Counter.Count(&q.limits.Limits, q.At)
	if q.Counter.Forecast() != nil {
		x.Others = max(q.Counter.Used(&q.limits.whole().Limits, now)-x.Count, 0)
	}
}
