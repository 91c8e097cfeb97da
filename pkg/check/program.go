package check

import "github.com/offpath-io/offpath/pkg/rules"

// program is a set of rules, ready to decide by. It never changes; Checker.program points to the one in force.
type program struct {
	set      *rules.Set
	revision uint64
	entries  []entry // in the order of the rules
	byName   map[string]*Limiter
	strict   bool // some limiter is
}

// entry is one rule of a program.
type entry struct {
	limiter *Limiter
	terms   *terms
}

// compile makes a program of a set. old is the one in force, nil in the beginning; former finds limiters of earlier
// ones. Nothing is changed.
func (c *Checker) compile(set *rules.Set, revision uint64, old *program, former func(missing []ruleID) []*Limiter) *program {
	list := set.Rules()
	p := &program{set: set, revision: revision, entries: make([]entry, len(list)), byName: make(map[string]*Limiter, len(list))}
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
			e.terms = newTerms(r, revision)
		} else {
			e.terms = e.limiter.terms.Load().next(r, revision)
		}
		p.byName[r.Name] = e.limiter
	}
	return p
}

// limiter returns the program's limiter of this id, or nil.
func (p *program) limiter(id ruleID) *Limiter {
	if p == nil {
		return nil
	}
	if l := p.byName[id.name]; l != nil && l.ruleID == id {
		return l
	}
	return nil
}
