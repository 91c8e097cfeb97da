package status

import (
	"cmp"
	"slices"
	"time"

	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// algorithms are their names in a status.
var algorithms = map[window.Kind]string{
	window.Sliding: "sliding_window", window.Log: "sliding_log",
	window.Token: "token_bucket", window.Leaky: "leaky_bucket",
}

const fixedWindow = "fixed_window"

// NewRule describes the counter of this name; the burst counts for shapes that drain only.
func NewRule(name string, shape window.Shape, limit, burst int64, revision uint64) Rule {
	r := Rule{
		Name: name, WindowMS: shape.Length.Milliseconds(), Buckets: shape.Buckets,
		Algorithm: algorithms[shape.Kind], Limit: limit, Revision: revision,
	}
	if shape.Fixed {
		r.Algorithm = fixedWindow
	}
	if shape.Drains() {
		r.Burst = burst
	}
	return r
}

// Shape is the rule's window; ok is false if there can be no such rule.
func (r Rule) Shape() (s window.Shape, ok bool) {
	s = window.Shape{Length: time.Duration(r.WindowMS) * time.Millisecond, Buckets: r.Buckets}
	s.Fixed = r.Algorithm == fixedWindow
	known := s.Fixed
	for kind, name := range algorithms {
		if name == r.Algorithm {
			s.Kind, known = kind, true
		}
	}
	inRange := r.WindowMS > 0 && r.WindowMS <= window.MaxLength.Milliseconds() && r.Limit >= 0
	return s, known && inRange && s.Validate() == nil
}

// RulesOf describes the rules of a set, and the overrides with a limit of their own, in the order
// of their names: MaxRules at most.
func RulesOf(set *rules.Set, revision uint64) []Rule {
	var list []Rule
	for _, r := range set.Rules() {
		for i := -1; i < len(r.Overrides); i++ {
			name := r.WireName(i)
			if i >= 0 && name == r.Name {
				continue
			}
			limits := r.Terms(i)
			one := NewRule(name, limits.Window, limits.Limit, limits.Burst, revision)
			if i >= 0 {
				one.Of = r.Name
			}
			list = append(list, one)
		}
	}
	slices.SortFunc(list, func(a, b Rule) int { return cmp.Compare(a.Name, b.Name) })
	return list[:min(len(list), MaxRules)]
}
