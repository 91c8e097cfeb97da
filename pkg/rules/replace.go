package rules

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/offpath-io/offpath/pkg/rules/internal/strictyaml"
)

// withoutReplaced removes, in place, the rules that others among them replace. They are in the
// order of the set, before and after. A rule that is itself replaced still replaces. One in shadow
// replaces only others in shadow: it would take denials away and give none.
func (s *search) withoutReplaced(found []*Rule) []*Rule {
	removed := false
	for _, r := range found {
		if len(r.in.replaces) == 0 || r.OnMissing == Skip && !r.hasKey(s.attrs) {
			continue
		}
		// Both are in the order of the set: the shorter one is gone through, so that a rule may
		// replace thousands.
		if len(r.in.replaces) <= len(found) {
			for _, other := range r.in.replaces {
				i, ok := slices.BinarySearchFunc(found, other, byPlace)
				if ok && (!r.Shadow || other.Shadow) {
					found[i], removed = other.in.gone, true
				}
			}
			s.looked += len(r.in.replaces)
			continue
		}
		for i, other := range found {
			_, ok := slices.BinarySearchFunc(r.in.replaces, other, byPlace)
			if ok && (!r.Shadow || other.Shadow) {
				found[i], removed = other.in.gone, true
			}
		}
		s.looked += len(found)
	}
	if !removed {
		return found
	}
	return slices.DeleteFunc(found, func(r *Rule) bool { return r == r.in.gone })
}

func byPlace(a, b *Rule) int { return cmp.Compare(a.in.place, b.in.place) }

// connect finds what rules say of others of the set, when all are there.
func (s *Set) connect(wrong []bool, refuse func(int, faults)) {
	for i, r := range s.rules {
		refuse(i, s.connectWhile(r))
		refuse(i, s.connectReplaces(r))
		if !wrong[i] {
			refuse(i, s.checkWireNames(r))
		}
	}
	if slices.Contains(wrong, true) {
		return
	}
	if i := s.cycle(func(r *Rule) []*Rule { return r.in.replaces }); i >= 0 {
		refuse(i, faultf("the rules that this one replaces replace it: leave one of them out").in("replaces"))
	}
	if i := s.cycle(func(r *Rule) []*Rule { return r.in.while }); i >= 0 {
		refuse(i, faultf("rule %q has room while others have, and these while it has: "+
			"want no circle: name a rule that is not elastic", s.rules[i].Throttle.While).in("elastic", "while", "rule"))
	}
}

// other finds the rule that a rule names, or says why it may not be named.
func (s *Set) other(r *Rule, name string) (other *Rule, why string) {
	switch other = s.byName[name]; other {
	case nil:
		why = fmt.Sprintf("there is no rule %.128q%s", name, s.nearestRule(name))
	case r:
		why = fmt.Sprintf("%q is this rule itself: want another one", name)
	}
	return other, why
}

// nearestRule is the remedy for the name of a rule that is not there: the name of one that is. No
// more are looked for than mistakes are told, since each look goes through all rules.
func (s *Set) nearestRule(name string) string {
	if s.looked++; s.looked > strictyaml.MaxMistakes {
		return ""
	}
	names := make([]string, len(s.rules))
	for i, r := range s.rules {
		names[i] = r.Name
	}
	if near := strictyaml.Closest(name, names); near != "" {
		return fmt.Sprintf(": did you mean %q?", near)
	}
	return ": want the name of one of this file"
}

func (s *Set) connectWhile(r *Rule) faults {
	if r.Throttle.While == "" {
		return nil
	}
	other, why := s.other(r, r.Throttle.While)
	if why == "" && other.Unlimited {
		why = fmt.Sprintf("%q is unlimited, so there is no use of its limit: want another one", other.Name)
	}
	if why != "" {
		return faultf("%s", why).in("elastic", "while", "rule")
	}
	r.in.while = []*Rule{other}
	return nil
}

func (s *Set) connectReplaces(r *Rule) (all faults) {
	seen := make(map[string]bool, len(r.Replaces))
	for i, name := range r.Replaces {
		other, why := s.other(r, name)
		if why == "" && seen[name] {
			why = fmt.Sprintf("%q occurs twice: keep one of them", name)
		}
		if why != "" {
			all.add(path{"replaces", i}, "%s", why)
			continue
		}
		s.replacing, seen[name] = true, true
		r.in.replaces = append(r.in.replaces, other)
		if other.in.gone == nil {
			gone := *other // with the same member: it knows its place and what it replaces
			other.in.gone = &gone
		}
	}
	slices.SortFunc(r.in.replaces, byPlace)
	return all
}

// cycle is the place of a rule from which the edges lead back to it, or -1.
func (s *Set) cycle(edges func(*Rule) []*Rule) int {
	const entered, left = 1, 2
	state := make([]uint8, len(s.rules))
	var visit func(r *Rule) int
	visit = func(r *Rule) int {
		place := r.in.place
		switch state[place] {
		case entered:
			return place
		case left:
			return -1
		}
		state[place] = entered
		for _, next := range edges(r) {
			if at := visit(next); at >= 0 {
				return at
			}
		}
		state[place] = left
		return -1
	}
	for _, r := range s.rules {
		if at := visit(r); at >= 0 {
			return at
		}
	}
	return -1
}
