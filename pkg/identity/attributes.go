// Package identity builds the keys of counters.
//
// Attributes describe a request: a user, an API key, an address, a route. A key is made from the
// values of some of them, in a given order, and unambiguously: two different lists of the same
// length never have the same key.
//
// Besides, it reads and groups addresses ([ParseAddr], [Group]), and makes keys that do not reveal
// the caller ([Hasher]). Package httpidentity reads the attributes of HTTP requests.
package identity

import (
	"slices"
	"strings"
)

// Attribute is one property of a request.
type Attribute struct{ Name, Value string }

// Attributes describe a request. There are few, so finding one is a linear search. If a name occurs
// twice, the first one counts.
//
// This package does not change them: many goroutines may read them at once.
type Attributes []Attribute

// Get returns the value of an attribute, which may be empty. ok is false if there is none.
func (a Attributes) Get(name string) (value string, ok bool) {
	for i := range a {
		if a[i].Name == name {
			return a[i].Value, true
		}
	}
	return "", false
}

// FromMap returns the attributes of a map, sorted by name.
func FromMap(m map[string]string) Attributes {
	attrs := make(Attributes, 0, len(m))
	for name, value := range m {
		attrs = append(attrs, Attribute{Name: name, Value: value})
	}
	slices.SortFunc(attrs, func(a, b Attribute) int { return strings.Compare(a.Name, b.Name) })
	return attrs
}
