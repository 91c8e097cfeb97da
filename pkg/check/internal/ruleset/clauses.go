package ruleset

import "github.com/offpath-io/offpath/pkg/rules"

// addClauses completes the limits of all entries, which nobody uses yet.
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

// setClauses gives limits clauses of their own, with the limits of each class.
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

// isBare says whether all requests that the rule matches are the same to it, but for their keys.
func isBare(r *rules.Rule) bool {
	return len(r.Allow)+len(r.Deny)+len(r.Overrides) == 0 && r.Cost == "" && r.Priority.By == "" &&
		!r.Unlimited && r.Throttle.Kind != rules.Elastic
}

// overriding is an override that has a counter of its own, by the places of its rule and in that
// rule.
type overriding struct{ rule, override int }

// countedRules are a set's rules, and after them those that stand for overrides with counters of
// their own.
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

// derived is the rule for the callers of an override. It is there to decide by, not to match with.
func derived(r *rules.Rule, override int) *rules.Rule {
	terms := r.Terms(override)
	return &rules.Rule{
		Name: r.WireName(override), Key: r.Key, OnMissing: r.OnMissing,
		Limit: terms.Limit, Window: terms.Window, Algorithm: r.Algorithm, Burst: terms.Burst,
		Enforcement: r.Enforcement, OnOutage: r.OnOutage, Throttle: r.Throttle, OnLimit: r.OnLimit,
		Cost: r.Cost, Status: r.Status, Shadow: r.Shadow, Count: r.Count, Priority: r.Priority,
	}
}

// addOverrides lets rules find the entries of their overrides, which speak in their names.
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
