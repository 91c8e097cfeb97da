package check

import "github.com/offpath-io/offpath/pkg/rules"

// addClauses completes the limits of all entries, which nobody uses yet.
func (p *ruleset) addClauses() {
	places := make(map[string]*entry)
	for i := range p.entries {
		places[p.entries[i].rule.Name] = &p.entries[i]
	}
	for i := range p.entries {
		e := &p.entries[i]
		e.bare = isBare(e.rule)
		e.addClauses(places[e.rule.Throttle.While])
	}
}

func (e *entry) addClauses(while *entry) {
	t, r := e.limits, e.rule
	if r.Throttle.Kind == rules.Hard && !r.Shadow && r.Count == rules.Admitted && r.Priority.By == "" {
		return
	}
	plain := *t
	c := clauses{plain: &plain, shadow: r.Shadow, all: r.Count == rules.All}
	switch r.Throttle.Kind {
	case rules.Soft:
		t.scale(1 + r.Throttle.Exceed)
	case rules.Elastic:
		roomy := *t
		roomy.scale(r.Throttle.UpTo)
		roomy.Raised = true
		roomy.setClauses(c)
		c.elastic = &elastic{roomy: &roomy, below: r.Throttle.Below, while: while}
	}
	t.setClauses(c)
}

// setClauses gives limits clauses of their own, with the limits of each class.
func (t *limits) setClauses(c clauses) {
	priority := &t.rule.Priority
	if priority.By != "" {
		c.classes = make(map[string]*limits, len(priority.Shares))
	}
	t.clauses = &c
	for class, share := range priority.Shares {
		of := t
		if share < 1 {
			less := *t
			less.scale(share)
			less.full = t
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
func (p *ruleset) addOverrides(overrides []overriding) {
	for i, o := range overrides {
		e, of := &p.entries[p.rules+i], &p.entries[o.rule]
		e.limits.name = of.rule.Name
		if of.over == nil {
			of.over = make([]*entry, len(of.rule.Overrides))
		}
		of.over[o.override] = e
	}
}
