package rules

import (
	"fmt"
	"maps"
	"slices"

	"github.com/offpath-io/offpath/pkg/identity"
)

// Set is a valid, immutable set of rules. Any goroutine may use it at any time.
type Set struct {
	rules  []*Rule
	byName map[string]*Rule
	index  *index // of what rules match
	// replacing says that there are rules that replace others.
	replacing bool
	wire      map[string]*Rule // by the names of overrides' counters
}

// member is what a Set knows of a rule in it.
type member struct {
	rule     *Rule   // itself: a copy of a rule is no member
	place    int     // in the set
	replaces []*Rule // Rule.Replaces, in the order of the set
	while    []*Rule // Rule.Throttle.While, if any
	index    *index  // of its overrides, if they are many
	excluded *index  // of what it excludes, likewise
	gone     *Rule   // stands for the rule where another one replaces it; nil if none does
}

// NewSet makes a set of copies of the rules, in this order. It refuses what Parse
// refuses, with an *Error whose Line is 0.
func NewSet(rules ...Rule) (*Set, error) {
	if len(rules) == 0 {
		return nil, &Error{Reason: "there are no rules"}
	}
	s := emptySet(len(rules))
	for i := range rules {
		if f := s.add(rules[i]); f != nil {
			return nil, refusal(i, &rules[i], f)
		}
	}
	if i, f := s.connect(); f != nil {
		return nil, refusal(i, &rules[i], f)
	}
	return s, nil
}

func emptySet(room int) *Set {
	return &Set{rules: make([]*Rule, 0, room), byName: make(map[string]*Rule, room), wire: make(map[string]*Rule)}
}

func refusal(place int, r *Rule, f *fault) error {
	return &Error{Rule: place + 1, Reason: fmt.Sprintf("rule %d (%.128q): %v", place+1, r.Name, f)}
}

// add validates the rule and adds a copy of it.
func (s *Set) add(r Rule) *fault {
	r.own()
	r.fill()
	if f := r.validate(); f != nil {
		return f
	}
	r.sort()
	if _, ok := s.byName[r.Name]; ok {
		return faultf("%q is the name of an earlier rule", r.Name).in("name")
	}
	r.in = &member{rule: &r, place: len(s.rules), index: r.indexOverrides(), excluded: r.indexExcluded()}
	s.rules = append(s.rules, &r)
	s.byName[r.Name] = &r
	return nil
}

// Place is the place of the rule in its Set, from 0, so that what belongs to rules can stand in a slice; -1 for a rule that is in none, such as a
// copy of one that is.
func (r *Rule) Place() int {
	if r.in == nil || r.in.rule != r {
		return -1
	}
	return r.in.place
}

// Rules are all rules, in order. The slice is the caller's, the rules are not.
func (s *Set) Rules() []*Rule { return slices.Clone(s.rules) }

// indexed makes the index of what all rules match.
func (s *Set) indexed() *index {
	entries := make([]entry, len(s.rules))
	for i, r := range s.rules {
		entries[i] = entry{left: slices.Clone(r.Match), rule: r, place: i, exact: r.Exact, excludes: len(r.Exclude) > 0}
	}
	return newIndex(entries)
}

// Attributes are the names of all attributes that the rules ask for, sorted: a request need have no others, unless a rule is
// Exact and must not see them.
func (s *Set) Attributes() []string {
	names := make(map[string]bool)
	for _, r := range s.rules {
		for _, c := range r.Match {
			names[c.Name] = true
		}
		for _, c := range r.Exclude {
			names[c.Name] = true
		}
		for _, name := range r.Key {
			names[name] = true
		}
		for i := range r.Overrides {
			for _, c := range r.Overrides[i].Match {
				names[c.Name] = true
			}
		}
		for _, list := range slices.Concat(r.Allow, r.Deny) {
			names[list.Attribute] = true
		}
		names[r.Cost], names[r.Priority.By] = true, true
	}
	delete(names, "")
	return slices.Sorted(maps.Keys(names))
}

// Lookup finds a rule by its name.
func (s *Set) Lookup(name string) (*Rule, bool) {
	r, ok := s.byName[name]
	return r, ok
}

// Find appends to dst the rules that match the attributes, in the order of the set, without
// those that another one of them replaces. It does not allocate if dst has room for these, too. What it takes hardly depends on
// how many rules there are.
//
// A rule that a request lacks a key attribute for replaces nothing if it skips such requests, and one in shadow never does.
func (s *Set) Find(dst []*Rule, attrs identity.Attributes) []*Rule {
	from := len(dst)
	find := search{attrs: attrs, found: dst}
	find.through(s.index)
	found := find.found[from:]
	if find.unsorted {
		slices.SortFunc(found, byPlace)
	}
	if s.replacing {
		found = find.withoutReplaced(found)
	}
	return find.found[:from+len(found)]
}
