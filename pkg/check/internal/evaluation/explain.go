package evaluation

import (
	"fmt"
	"slices"
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/check/internal/ruleset"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

// Explanation is check.Explanation, which it converts to.
type Explanation struct {
	Rule          string
	Why           string
	Barred        string
	Counter       string
	Override      int
	Key           string
	Limit         int64
	Cost          int64
	BadCost       bool
	Count, Others float64
	Room          int64
	Denies        bool
	RetryAfter    time.Duration
	Shadow        bool
	Decides       bool
}

// Explain returns what a check would decide, and an explanation for each rule of the set.
func Explain(
	h *counter.Host, p *ruleset.Compiled, now int64, attrs identity.Attributes, cost int64,
) (Decision, []Explanation) {
	found := p.Rules.Find(nil, attrs)
	all := make([]Explanation, p.RuleCount)
	decisions := make([]ruleDecision, 0, len(found))
	for i := range all {
		r := p.Entries[i].Rule
		if !slices.Contains(found, r) {
			all[i] = Explanation{Rule: r.Name, Override: -1, Why: whyNoMatch(r, attrs)}
			continue
		}
		q := explainRule(p, &all[i], i, attrs, now, cost)
		if q.place = i; all[i].Why == "" {
			decisions = append(decisions, q)
		}
	}
	a := explainAll(p, all, decisions, attrs, now)
	d := Peek(h, Decider{Rules: p}, now, attrs, "", cost)
	worst := -1
	for i := range a.decisions {
		if q := &a.decisions[i]; q.limits.Name == d.Rule {
			worst = q.place
		}
	}
	if worst >= 0 {
		all[worst].Decides = true
	}
	return d, all
}

// Standing is Explain for the rules that limit the request. If there are some, the decision has
// nothing but the worst freshness that they decide by.
func Standing(
	h *counter.Host, p *ruleset.Compiled, now int64, attrs identity.Attributes, cost int64,
) (Decision, []Explanation) {
	found := p.Rules.Find(nil, attrs)
	all, decisions := make([]Explanation, 0, len(found)), make([]ruleDecision, 0, len(found))
	for _, r := range found {
		var x Explanation
		q := explainRule(p, &x, r.Place(), attrs, now, cost)
		if q.place = len(all); x.Why == "" {
			all, decisions = append(all, x), append(decisions, q)
		}
	}
	if len(decisions) == 0 {
		return Peek(h, Decider{Rules: p}, now, attrs, "", cost), all
	}
	return Decision{Freshness: explainAll(p, all, decisions, attrs, now).answer.Freshness}, all
}

// explainRule explains how the rule at a place, which matches, applies to the caller.
func explainRule(
	p *ruleset.Compiled, x *Explanation, place int, attrs identity.Attributes, now, cost int64,
) ruleDecision {
	e := &p.Entries[place]
	*x = Explanation{Rule: e.Rule.Name, Override: -1}
	q := ruleDecision{limiter: e.Limiter, Hit: counter.Hit{Cost: cost}}
	q.explainCaller(x, e, attrs, now)
	return q
}

// explainAll explains the counts of the decisions, each at its place.
func explainAll(
	p *ruleset.Compiled, all []Explanation, decisions []ruleDecision, attrs identity.Attributes, now int64,
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

// whyNoMatch says why a rule does not match attributes.
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
	case !r.Matches(attrs) && r.Ordered:
		return "its attributes come in another order, or there are others beside them"
	case !r.Matches(attrs):
		return "there are attributes beside those of its match and key"
	}
	return "another rule replaces it"
}

func valueOf(c *rules.Condition) string {
	switch c.Op {
	case rules.Glob:
		return fmt.Sprintf("one that matches %q", c.Value)
	case rules.Prefix:
		return fmt.Sprintf("one that begins with %q", c.Value)
	case rules.Present:
		return "any"
	}
	return fmt.Sprintf("%q", c.Value)
}

// explainCaller explains how the rule applies to the caller.
func (q *ruleDecision) explainCaller(x *Explanation, e *ruleset.Entry, attrs identity.Attributes, now int64) {
	q.decideBy(e.Limits, attrs)
	v := q.apply(e, attrs, now)
	x.Override = e.Rule.Override(attrs, time.Unix(0, now))
	x.Shadow = e.Rule.Shadow
	if q.explainBlock(e, attrs, now) {
		x.Barred, q.barred = "its key is blocked", true
		return
	}
	allowed, denied := e.Rule.Listed(attrs)
	switch {
	case v == appliesNot && e.Rule.Unlimited:
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
	if _, ok := e.Rule.AppendKey(nil, attrs); ok {
		return
	}
	if e.Rule.OnMissing == rules.Deny {
		x.Barred, q.barred, q.retry = "an attribute of its key is missing", true, Never
	} else {
		x.Why = "an attribute of its key is missing"
	}
}

// explainKey explains the key and the cost, and adds the decision to those of the evaluation.
func (a *evaluation) explainKey(x *Explanation, q *ruleDecision, attrs identity.Attributes) {
	q.from = len(a.text)
	if !q.barred {
		a.text, _ = q.limiter.Group.Host.AppendKey(a.text, q.limits.Rule, attrs)
	}
	q.to = len(a.text)
	x.Counter, x.Key = q.limiter.Group.Name, string(a.text[q.from:q.to])
	x.Cost, x.BadCost = q.Cost, q.badCost
	a.decisions = append(a.decisions, *q)
}

// explainCounts explains how the rule's counts decide the request.
func (a *evaluation) explainCounts(x *Explanation, q *ruleDecision, key string, now int64) {
	x.Limit = q.limits.Capacity
	if !q.barred && q.limiter.Group.HasRoomFor(key) {
		q.Counter = new(counter.View).Of(&q.limiter.Group, key, now)
	}
	var d Decision
	q.ask(&d, now, key)
	a.answer.Freshness = max(a.answer.Freshness, d.Freshness)
	x.Denies, x.RetryAfter, x.Room = !d.Allowed, d.RetryAfter, d.Remaining
	if !q.HasCounter() {
		return
	}
	x.Count = q.Counter.Count(&q.limits.Limits, q.At)
	if q.Counter.Forecast() != nil {
		x.Others = max(q.Counter.Used(&q.limits.Whole().Limits, now)-x.Count, 0)
	}
}
