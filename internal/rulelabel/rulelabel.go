// Package rulelabel decides which rules have a metric label of their own, so that the number of time
// series stays bounded whatever the number of rules.
package rulelabel

import (
	"cmp"
	"slices"
	"sync"
)

const (
	// Most is how many rules have a label of their own.
	Most = 200
	// Other is the label of all the rest together.
	Other = "other"
	// Removed is the label of rules that are not in force any more, together. A rule of this name shares it.
	Removed = "removed"
)

// Labels remembers which rules have a label of their own. The zero value has none. Its methods are
// safe for concurrent use.
//
// Where there is room for all rules, all have one. Else a rule gets a label when it is first seen at
// work and keeps it until it is gone ([Labels.Keep], [Labels.Free]), the busiest of those that are new first. So a counter never
// goes backwards: no rule with a count ever moves from one label to another. The price is that a rule
// which gets busy late, after 200 others, stays among the rest.
type Labels struct {
	mu   sync.Mutex
	own  map[string]bool
	rest map[string]bool // have been counted among the rest, and stay there; only Keep adds some
}

// Activity is how busy a rule has been; 0 is not at all.
type Activity struct {
	Rule  string
	Count int64
}

// Assign gives labels to rules that have none, the busiest first, while there is room. Rules that are
// not at work get one only if these are few enough for all to have one.
func (l *Labels) Assign(rules []Activity) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.own) >= Most {
		return
	}
	if l.own == nil {
		l.own = make(map[string]bool)
	}
	byCount := slices.Clone(rules)
	slices.SortStableFunc(byCount, func(a, b Activity) int { return cmp.Compare(b.Count, a.Count) })
	for _, r := range byCount {
		if len(l.own) < Most && (r.Count > 0 || len(rules) <= Most) && !l.rest[r.Rule] {
			l.own[r.Rule] = true
		}
	}
}

// Keep takes the labels from all rules but these, for others to have: those that are gone. Of these, rules that are at work without a
// label stay without one.
func (l *Labels) Keep(rules []Activity) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own, rest := make(map[string]bool), make(map[string]bool)
	for _, r := range rules {
		switch {
		case l.own[r.Rule]:
			own[r.Rule] = true
		case r.Count > 0:
			rest[r.Rule] = true
		}
	}
	l.own, l.rest = own, rest
}

// Free takes one rule's label, for another one to have.
func (l *Labels) Free(rule string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.own, rule)
}

// Of returns the rule's label.
func (l *Labels) Of(rule string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.own[rule] {
		return rule
	}
	return Other
}
