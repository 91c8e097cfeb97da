package ruleset

import (
	"fmt"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/rules"
)

// Compiled is a set of rules, ready for decisions. It never changes: a change of rules replaces it.
type Compiled struct {
	Rules     *rules.Set
	Revision  uint64
	Entries   []Entry // in the order of the rules, and after them those of overrides with a limit of their own
	RuleCount int     // how many of them are rules
	ByName    map[string]*Limiter
	Strict    bool // some limiter is strict
}

// numberKeys numbers the keys of the rules, so that match makes the same key of a request only
// once.
func (p *Compiled) numberKeys() {
	type made struct {
		names     string
		onMissing rules.OnMissing
	}
	numbers := make(map[made]int)
	for i := range p.Entries {
		e := &p.Entries[i]
		m := made{fmt.Sprintf("%q", e.Rule.Key), e.Rule.OnMissing}
		number, known := numbers[m]
		if !known {
			number = len(numbers)
			numbers[m] = number
		}
		e.KeyNumber = number
	}
}

// limiter returns the ruleset's limiter with this ID; nil if there is none.
func (p *Compiled) limiter(id counter.ID) *Limiter {
	if p == nil {
		return nil
	}
	if l := p.ByName[id.Name]; l != nil && l.Group.ID() == id {
		return l
	}
	return nil
}

// All returns the entries; none for a nil Compiled.
func (p *Compiled) All() []Entry {
	if p == nil {
		return nil
	}
	return p.Entries
}
