// Package rulelabel decides which rules have a metric label of their own, so that the number of
// time series stays bounded whatever the number of rules.
package rulelabel

import (
	"cmp"
	"slices"
	"sync"
)

const (
	// Most is the most rules that have a label of their own.
	Most = 200
	// Other is the label of all other rules.
	Other = "other"
	// Removed is the label of all rules that are no longer in force. A rule of this name shares it.
	Removed = "removed"
)

// Labels remembers which rules have a label of their own. The zero value has none. Its methods are
// safe for concurrent use.
//
// If there is room for all rules, all have one. Otherwise a rule gets a label when it is first seen
// active, the busiest of the new ones first, and keeps it until it is gone ([Labels.Keep],
// [Labels.Free]). So counters never go backwards: no rule with a count moves from one label to
// another. A rule that becomes busy after 200 others has no label of its own.
type Labels struct {
	mu   sync.Mutex
	own  map[string]bool
	rest map[string]bool // were counted under Other, and stay there; only Keep adds some
}

// Activity is a measure of a rule's activity; 0 for none.
type Activity struct {
	Rule  string
	Count int64
}

// Assign gives labels to rules without one, the busiest first, while there is room. Inactive rules
// get one only if there is room for all.
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

// Keep takes the labels of all rules but these, which are still there. Of these, active rules
// without a label stay without one.
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

// Free takes the label of one rule.
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
