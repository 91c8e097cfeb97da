package ruleset

import (
	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/rules"
)

// Source finds or makes the limiters of rules that were not in force.
type Source struct {
	// Find returns limiters that were in use before, nil for an ID without one.
	Find func(missing []counter.ID) []*Limiter
	// Make makes a rule's limiter.
	Make func(r *rules.Rule) *Limiter
}

// Compile makes a ruleset of a set, to be in force from the fleet's time inForce on. old is the
// ruleset in force, nil at first; from finds or makes limiters that old does not have. Compile puts
// nothing in force.
func Compile(
	set *rules.Set, revision uint64, inForce int64, old *Compiled, all Blocks, h *counter.Host, from Source,
) *Compiled {
	list, overrides := countedRules(set)
	p := &Compiled{Rules: set, Revision: revision, Entries: make([]Entry, len(list)), ByName: make(map[string]*Limiter, len(list))}
	p.RuleCount = len(list) - len(overrides)
	var missing []counter.ID
	var at []int
	for i, r := range list {
		id := ruleIDOf(r, h)
		p.Strict = p.Strict || id.Strict
		if l := old.limiter(id); l != nil {
			p.Entries[i].Limiter = l
			continue
		}
		missing, at = append(missing, id), append(at, i)
	}
	for i, l := range from.Find(missing) {
		p.Entries[at[i]].Limiter = l
	}
	for i, r := range list {
		e := &p.Entries[i]
		if e.Limiter == nil {
			e.Limiter = from.Make(r)
			e.Limits = newLimits(r, revision)
		} else {
			e.Limits = e.Limiter.Current.Load().next(r, revision, inForce)
		}
		e.Rule, p.ByName[r.Name] = r, e.Limiter
	}
	p.numberKeys()
	p.addOverrides(overrides)
	p.addClauses()
	for i := range p.Entries {
		p.Entries[i].addBlocks(all, h.Config.KeyHash != nil)
	}
	return p
}
