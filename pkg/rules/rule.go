// Package rules holds what is limited: rules, and immutable sets of them, made in Go or
// read from YAML.
//
// A rule applies to the requests that it matches. Its key tells callers apart, and its limit is the
// number of hits that each of them has per window. It also says what happens to a request without
// an attribute of the key, and in an outage. A set that exists is valid: NewSet and Parse refuse
// everything else, and tell every mistake with its place.
package rules

import (
	"slices"

	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/window"
)

// Rule is one limit. Those in a Set are shared: they must not be changed. To change one,
// copy it, change the copy, and make a new Set.
//
// Fields left zero have their defaults. In a Set they are filled in, as their comments say.
type Rule struct {
	// Name tells rules apart: in answers, metrics, the store and the ledger. 1 to 128
	// bytes of UTF-8, printable and without spaces, unique in its set.
	Name string
	// Match is what a request must have, all of it, for the rule to apply. Empty
	// matches every request. At most 64, no name twice.
	Match []Condition
	// Exclude is what a request must not have, none of it, for the rule to apply. In a Set it is
	// sorted, and none occurs twice.
	Exclude []Condition
	// Exact lets the rule apply only to requests without attributes beside those of Match
	// and Key.
	Exact bool
	// Ordered lets an Exact rule apply only to requests whose attributes come in the order of
	// Match, which has all names of Key then.
	Ordered bool
	// Key names the attributes whose values tell callers apart: at most 64, none twice.
	// Empty: one counter for all.
	Key []string
	// OnMissing is what to do with a request that lacks an attribute of Key.
	OnMissing OnMissing
	// Limit is the most hits that may lie in the window, or that drain in one: 1 to
	// window.MaxCount.
	Limit int64
	// Window is over how long Limit holds, and how it is cut. 0 buckets are window.DefaultBuckets;
	// FixedWindow has 1. In a Set its Kind is that of Algorithm; either of the two sets the other.
	Window window.Shape
	// Algorithm is how hits are counted. In a Set it is FixedWindow if and only if Window.Fixed;
	// either of the two sets the other.
	Algorithm Algorithm
	// Burst is, of a TokenBucket, the most tokens that it holds; of a LeakyBucket, how many hits
	// may wait in its queue. 1 to window.MaxCount; 0 is Limit, and so it is in a Set. Others have
	// none: 0.
	Burst int64
	// Enforcement is how strictly Limit holds.
	Enforcement Enforcement
	// OnOutage is what the rule says when offpath itself cannot know. In a Set it is Share, Open or
	// Closed; under Strict only Closed.
	OnOutage OnOutage
	// Throttle is what may pass beyond Limit.
	Throttle Throttle
	// OnLimit is what to do with a hit that does not fit.
	OnLimit OnLimit
	// Status is the HTTP status of a denial: 429 or 503. 0 is 429, and so it is in a Set.
	Status int
	// Shadow makes the rule decide and count, and never deny.
	Shadow bool
	// Overrides give some callers another limit, none, or no entry. The first one that
	// matches and is not over counts.
	Overrides []Override
	// Allow lists callers that this rule does not limit, and Deny callers that it always denies. A
	// caller on both is denied.
	Allow, Deny []List
	// Cost names the attribute whose value is the hit's cost. Empty, or for requests without that
	// attribute: the caller's cost.
	Cost string
	// Count is which hits count.
	Count Count
	// Priority divides Limit among classes of traffic.
	Priority Priority
	// Unlimited makes the rule match and limit no caller. In a Set its Limit is window.MaxCount per
	// second, so that nothing needs to know of it.
	Unlimited bool
	// Replaces names rules of the set that do not apply to a request that this one applies to. With
	// Shadow they apply all the same, unless they are in shadow, too.
	Replaces []string
	// Origin is what the reader of another format has noted for its adapter, such as a
	// *envoyrules.Origin; else nil. YAML has no field for it, and Equal ignores it.
	Origin any

	in *member // of a Set, else nil
}

// Capacity is how many hits there is room for at once: Burst, if the algorithm has one, or else
// Limit.
func (r *Rule) Capacity() int64 {
	if r.Window.Drains() {
		return r.Burst
	}
	return r.Limit
}

// Drain is the arithmetic of a TokenBucket or LeakyBucket. It is for rules of a Set.
func (r *Rule) Drain() window.Drain {
	return window.Drain{Shape: r.Window, Limit: r.Limit, Burst: r.Burst}
}

// Matches reports whether the rule applies, as far as Match, Exclude and Exact say. A missing
// attribute does not equal an empty one. It allocates no more than Condition.Matches.
func (r *Rule) Matches(attrs identity.Attributes) bool {
	return match(r.Match, attrs) && (!r.Exact || r.knows(attrs)) && !r.Excludes(attrs)
}

// Excludes reports whether the attributes meet a condition of Exclude. It allocates no more than
// Condition.Matches. In a Set, what it takes hardly depends on how many there are.
func (r *Rule) Excludes(attrs identity.Attributes) bool {
	if r.in != nil && r.in.rule == r && r.in.excluded != nil {
		find := search{attrs: attrs, first: len(r.Exclude)}
		find.through(r.in.excluded)
		return find.first < len(r.Exclude)
	}
	return slices.ContainsFunc(r.Exclude, func(c Condition) bool { return c.Matches(attrs) })
}

// indexExcluded makes an index of the conditions of Exclude, if it is worth it.
func (r *Rule) indexExcluded() *index {
	if len(r.Exclude) <= fewest {
		return nil
	}
	entries := make([]entry, len(r.Exclude))
	for i, c := range r.Exclude {
		entries[i] = entry{left: []Condition{c}, override: &Override{}, place: i}
	}
	return newIndex(entries)
}

// knows reports whether all attributes are among those of Match and Key, and in order if they have
// to be.
func (r *Rule) knows(attrs identity.Attributes) bool {
	if r.Ordered {
		return slices.EqualFunc(r.Match, attrs, func(c Condition, a identity.Attribute) bool {
			return c.Name == a.Name
		})
	}
	for i := range attrs {
		named := func(c Condition) bool { return c.Name == attrs[i].Name }
		if !slices.ContainsFunc(r.Match, named) && !slices.Contains(r.Key, attrs[i].Name) {
			return false
		}
	}
	return true
}

// AppendKey appends to dst the key that the rule makes of the request; see identity.AppendKey. ok
// is false if an attribute is missing and OnMissing is not Empty; key is dst then. An attribute
// with an empty value is not missing.
func (r *Rule) AppendKey(dst []byte, attrs identity.Attributes) (key []byte, ok bool) {
	if r.OnMissing != Empty && !r.hasKey(attrs) {
		return dst, false
	}
	return identity.AppendKey(dst, r.Key, attrs), true
}

// hasKey reports whether all attributes of Key are there.
func (r *Rule) hasKey(attrs identity.Attributes) bool {
	for _, name := range r.Key {
		if _, ok := attrs.Get(name); !ok {
			return false
		}
	}
	return true
}
