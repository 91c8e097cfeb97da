package ruleset

import (
	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/rules"
)

// Source is where limiters of rules that were not in force come from.
type Source struct {
	// Find finds limiters that were in use before; nil where there is none.
	Find func(missing []counter.ID) []*Limiter
	// Make makes the limiter of a rule.
	Make func(r *rules.Rule) *Limiter
}

// Compile makes a ruleset of a set. old is the one in force, nil in the beginning; from finds
// limiters of earlier ones; it comes into force at a time of the fleet. Nothing is changed.
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
