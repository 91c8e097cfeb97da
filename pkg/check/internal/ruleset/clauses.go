package ruleset

import "github.com/offpath-io/offpath/pkg/rules"

// addClauses adds clauses to the limits of all entries, which are not in use yet.
func (p *Compiled) addClauses() {
	places := make(map[string]*Entry)
	for i := range p.Entries {
		places[p.Entries[i].Rule.Name] = &p.Entries[i]
	}
	for i := range p.Entries {
		e := &p.Entries[i]
		e.Bare = isBare(e.Rule)
		e.addClauses(places[e.Rule.Throttle.While])
	}
}

func (e *Entry) addClauses(while *Entry) {
	t, r := e.Limits, e.Rule
	if r.Throttle.Kind == rules.Hard && !r.Shadow && r.Count == rules.Admitted && r.Priority.By == "" {
		return
	}
	plain := *t
	c := clauses{Plain: &plain, Shadow: r.Shadow, All: r.Count == rules.All}
	switch r.Throttle.Kind {
	case rules.Soft:
		t.scale(1 + r.Throttle.Exceed)
	case rules.Elastic:
		roomy := *t
		roomy.scale(r.Throttle.UpTo)
		roomy.Raised = true
		roomy.setClauses(c)
		c.Elastic = &elastic{Roomy: &roomy, Below: r.Throttle.Below, While: while}
	}
	t.setClauses(c)
}

// setClauses sets the clauses of limits, and makes the limits of each class.
func (t *Limits) setClauses(c clauses) {
	priority := &t.Rule.Priority
	if priority.By != "" {
		c.classes = make(map[string]*Limits, len(priority.Shares))
	}
	t.Clauses = &c
	for class, share := range priority.Shares {
		of := t
		if share < 1 {
			less := *t
			less.scale(share)
			less.Full = t
			of = &less
		}
		c.classes[class] = of
	}
	c.other = c.classes[rules.DefaultClass]
}

// isBare returns whether the rule treats all requests that it matches alike, except for their keys.
func isBare(r *rules.Rule) bool {
	return len(r.Allow)+len(r.Deny)+len(r.Overrides) == 0 && r.Cost == "" && r.Priority.By == "" &&
		!r.Unlimited && r.Throttle.Kind != rules.Elastic
}

// overriding is an override with a counter of its own: the place of its rule, and its place in the
// rule.
type overriding struct{ rule, override int }

// countedRules returns a set's rules, followed by a rule for each override with a counter of its
// own.
func countedRules(set *rules.Set) (list []*rules.Rule, overrides []overriding) {
	list = set.Rules()
	for i, r := range list {
		for j := range r.Overrides {
			if r.Overrides[j].Action == rules.Limited {
				list, overrides = append(list, derived(r, j)), append(overrides, overriding{i, j})
			}
		}
	}
	return list, overrides
}

// derived returns the rule for the callers of an override. It is used to decide, not to match.
func derived(r *rules.Rule, override int) *rules.Rule {
	terms := r.Terms(override)
	return &rules.Rule{
		Name: r.WireName(override), Key: r.Key, OnMissing: r.OnMissing,
		Limit: terms.Limit, Window: terms.Window, Algorithm: r.Algorithm, Burst: terms.Burst,
		Enforcement: r.Enforcement, OnOutage: r.OnOutage, Throttle: r.Throttle, OnLimit: r.OnLimit,
		Cost: r.Cost, Status: r.Status, Shadow: r.Shadow, Count: r.Count, Priority: r.Priority,
	}
}

// addOverrides gives entries those of their overrides, whose decisions name the rule.
func (p *Compiled) addOverrides(overrides []overriding) {
	for i, o := range overrides {
		e, of := &p.Entries[p.RuleCount+i], &p.Entries[o.rule]
		e.Limits.Name = of.Rule.Name
		if of.Overrides == nil {
			of.Overrides = make([]*Entry, len(of.Rule.Overrides))
		}
		of.Overrides[o.override] = e
	}
}
