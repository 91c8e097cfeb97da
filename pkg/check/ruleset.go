package check

import (
	"fmt"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
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
func (p *ruleset) limiter(id counter.ID) *Limiter {
	if p == nil {
		return nil
	}
	if l := p.byName[id.Name]; l != nil && l.group.ID() == id {
		return l
	}
	return nil
}

func (p *ruleset) all() []entry {
	if p == nil {
		return nil
	}
	return p.entries
}
