package rules

import (
	"fmt"
	"maps"
	"slices"

	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules/internal/strictyaml"
)

// Set is a valid, immutable set of rules. Any goroutine may use it at any time.
type Set struct {
	rules  []*Rule
	byName map[string]*Rule
	index  *index // of what rules match
	// replacing says that there are rules that replace others.
	replacing bool
	wire      map[string]*Rule // by the names of overrides' counters
	looked    int              // how many names of rules that are not there were looked for
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
		return nil, &Error{Reason: "there are no rules: to limit nobody, want one that is Unlimited"}
	}
	var all []Error
	set := assemble(rules, func(int) bool { return false }, func(i int, f fault) {
		reason := fmt.Sprintf("rule %d (%.128q): %v", i+1, rules[i].Name, f)
		all = append(all, Error{Rule: i + 1, Reason: reason})
	})
	if len(all) > 0 {
		first := all[0]
		first.More = all[1:min(len(all), strictyaml.MaxMistakes)]
		return nil, &first
	}
	return set, nil
}

// assemble makes a set, and reports what is wrong with the rules, by their places. Then the set
// must not be used. unread says of a rule that it is not known in full.
func assemble(rules []Rule, unread func(int) bool, report func(int, fault)) *Set {
	n := len(rules)
	s := &Set{
		rules: make([]*Rule, 0, n), byName: make(map[string]*Rule, n), wire: make(map[string]*Rule),
	}
	wrong := make([]bool, n)
	refuse := func(place int, all faults) {
		for _, f := range all {
			wrong[place] = true
			report(place, f)
		}
	}
	for i, r := range rules {
		wrong[i] = unread(i)
		refuse(i, s.add(r, wrong[i]))
	}
	s.connect(wrong, refuse)
	if slices.Contains(wrong, true) {
		return s
	}
	for _, r := range s.rules {
		r.in.index, r.in.excluded = r.indexOverrides(), r.indexExcluded()
	}
	s.index = s.indexed()
	return s
}

// add adds a copy of the rule and says what is wrong with it by itself.
func (s *Set) add(r Rule, unread bool) faults {
	r.own()
	r.fill()
	all := r.validate(unread)
	r.sort()
	r.in = &member{rule: &r, place: len(s.rules)}
	s.rules = append(s.rules, &r)
	if other, ok := s.byName[r.Name]; ok && r.Name != "" {
		return append(all, faultf("%q is the name of rule %d too: want another one",
			r.Name, other.in.place+1).in("name")...)
	}
	s.byName[r.Name] = &r
	return all
}

// Place is the place of the rule in its Set, from 0, so that what belongs to rules can stand in a
// slice; -1 for a rule that is in none, such as a copy of one that is.
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
		left, excludes := slices.Clone(r.Match), len(r.Exclude) > 0
		entries[i] = entry{left: left, rule: r, place: i, exact: r.Exact, excludes: excludes}
	}
	return newIndex(entries)
}

// Attributes are the names of all attributes that the rules ask for, sorted: a request need have no
// others, unless a rule is Exact and must not see them.
func (s *Set) Attributes() []string {
	names := make(map[string]bool)
	for _, r := range s.rules {
		conditions := slices.Concat(r.Match, r.Exclude)
		for _, o := range r.Overrides {
			conditions = append(conditions, o.Match...)
		}
		for _, c := range conditions {
			names[c.Name] = true
		}
		for l := range r.lists() {
			names[l.Attribute] = true
		}
		for _, name := range slices.Concat(r.Key, []string{r.Cost, r.Priority.By}) {
			names[name] = true
		}
	}
	delete(names, "")
	return slices.Sorted(maps.Keys(names))
}

// Lookup finds a rule by its name.
func (s *Set) Lookup(name string) (*Rule, bool) {
	r, ok := s.byName[name]
	return r, ok
}

// Find appends to dst the rules that match the attributes, in the order of the set, without those
// that another one of them replaces. It does not allocate if dst has room for these, too. What it
// takes hardly depends on how many rules there are.
//
// A rule that a request lacks a key attribute for replaces nothing if it skips such requests, and
// one in shadow only others in shadow.
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
