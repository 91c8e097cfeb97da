package check

import (
	"fmt"

	"github.com/offpath-io/offpath/pkg/rules"
)

// ruleset is a set of rules, ready to decide by. It never changes; Checker.ruleset points to the
// one in force.
type ruleset struct {
	set      *rules.Set
	revision uint64
	entries  []entry // in the order of the rules, and after them those of overrides with a limit of their own
	rules    int     // how many of them are rules
	byName   map[string]*Limiter
	strict   bool // some limiter is
}

// entry is one rule of a ruleset.
type entry struct {
	limiter *Limiter
	limits  *limits
	rule    *rules.Rule // the limits'
	bare    bool        // the rule has nothing that depends on the request but its key
	key     int         // rules of the same number have the same key of a request
	over    []*entry    // by override, those with a limit of their own; else nil
}

// compile makes a ruleset of a set. old is the one in force, nil in the beginning; former finds
// limiters of earlier ones; it comes into force at a time of the fleet. Nothing is changed.
func (c *Checker) compile(set *rules.Set, revision uint64, inForce int64, old *ruleset, former func(missing []ruleID) []*Limiter) *ruleset {
	list, overrides := countedRules(set)
	p := &ruleset{set: set, revision: revision, entries: make([]entry, len(list)), byName: make(map[string]*Limiter, len(list))}
	p.rules = len(list) - len(overrides)
	var missing []ruleID
	var at []int
	for i, r := range list {
		id := ruleIDOf(r, c.o.Link)
		p.strict = p.strict || id.strict
		if l := old.limiter(id); l != nil {
			p.entries[i].limiter = l
			continue
		}
		missing, at = append(missing, id), append(at, i)
	}
	for i, l := range former(missing) {
		p.entries[at[i]].limiter = l
	}
	for i, r := range list {
		e := &p.entries[i]
		if e.limiter == nil {
			c.limiters++
			e.limiter = newLimiter(c, c.limiters, r)
			e.limits = newLimits(r, revision)
		} else {
			e.limits = e.limiter.limits.Load().next(r, revision, inForce)
		}
		e.rule, p.byName[r.Name] = r, e.limiter
	}
	p.numberKeys()
	p.addOverrides(overrides)
	p.addClauses()
	for i := range p.entries {
		p.entries[i].addBlocks(c.blocks, c.o.KeyHash != nil)
	}
	return p
}

// numberKeys finds out which rules make the same key of a request, so that it is made once.
func (p *ruleset) numberKeys() {
	type made struct {
		names     string
		onMissing rules.OnMissing
	}
	numbers := make(map[made]int)
	for i := range p.entries {
		e := &p.entries[i]
		m := made{fmt.Sprintf("%q", e.rule.Key), e.rule.OnMissing}
		number, known := numbers[m]
		if !known {
			number = len(numbers)
			numbers[m] = number
		}
		e.key = number
	}
}

// limiter returns the ruleset's limiter of this id, or nil.
func (p *ruleset) limiter(id ruleID) *Limiter {
	if p == nil {
		return nil
	}
	if l := p.byName[id.name]; l != nil && l.ruleID == id {
		return l
	}
	return nil
}
