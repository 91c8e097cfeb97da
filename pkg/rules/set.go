package rules

import (
	"fmt"
	"slices"

	"github.com/offpath-io/offpath/pkg/identity"
)

// Set is a valid, immutable set of rules. Any goroutine may use it at any time.
type Set struct {
	rules  []*Rule
	byName map[string]*Rule
}

// NewSet makes a set of copies of the rules, in this order. It refuses what Parse
// refuses, with an *Error whose Line is 0.
func NewSet(rules ...Rule) (*Set, error) {
	if len(rules) == 0 {
		return nil, &Error{Reason: "there are no rules"}
	}
	s := &Set{rules: make([]*Rule, 0, len(rules)), byName: make(map[string]*Rule, len(rules))}
	for i := range rules {
		if f := s.add(rules[i]); f != nil {
			return nil, &Error{Reason: fmt.Sprintf("rule %d (%.128q): %s: %s", i+1, rules[i].Name, f.field, f.reason)}
		}
	}
	return s, nil
}

// add validates the rule and adds a copy of it.
func (s *Set) add(r Rule) *fault {
	r.Match, r.Key = slices.Clone(r.Match), slices.Clone(r.Key)
	if r.Window.Buckets == 0 {
		r.Window.Buckets = 1
	}
	if r.OnOutage == DefaultOnOutage {
		r.OnOutage = Open
		if r.Enforcement == Strict {
			r.OnOutage = Closed
		}
	}
	if f := r.validate(); f != nil {
		return f
	}
	if _, ok := s.byName[r.Name]; ok {
		return faultf("name", -1, "%q is the name of an earlier rule", r.Name)
	}
	s.rules = append(s.rules, &r)
	s.byName[r.Name] = &r
	return nil
}

// Rules are all rules, in order. The slice is the caller's, the rules are not.
func (s *Set) Rules() []*Rule { return slices.Clone(s.rules) }

// Lookup finds a rule by its name.
func (s *Set) Lookup(name string) (*Rule, bool) {
	r, ok := s.byName[name]
	return r, ok
}

// Find appends to dst the rules that match the attributes, in the order of the set. It
// looks at every rule, and does not allocate if dst has room.
func (s *Set) Find(dst []*Rule, attrs identity.Attributes) []*Rule {
	for _, r := range s.rules {
		if r.Matches(attrs) {
			dst = append(dst, r)
		}
	}
	return dst
}
