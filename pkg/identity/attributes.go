// Package identity builds the key that says who is limited.
//
// A request is described by attributes: a user, an API key, an address, a route. A
// key is made of the values of some of them, in a given order, and unambiguously:
// of one number of values, two different lists never give the same key.
//
// Beside that it reads and groups addresses ([ParseAddr], [Group]), and makes keys that
// tell nobody who it is ([Hasher]). Package httpidentity makes attributes of requests.
package identity

import (
	"slices"
	"strings"
)

// Attribute is one thing known about a request.
type Attribute struct{ Name, Value string }

// Attributes is what is known about a request. They are few, so finding one is a
// linear search. If a name occurs twice, the first counts.
//
// Nothing in this package changes them: they may be read by many goroutines at once.
type Attributes []Attribute

// Get is the value of the attribute, and whether there is one. An empty value is there.
func (a Attributes) Get(name string) (string, bool) {
	for i := range a {
		if a[i].Name == name {
			return a[i].Value, true
		}
	}
	return "", false
}

// FromMap makes attributes of a map, sorted by name.
func FromMap(m map[string]string) Attributes {
	attrs := make(Attributes, 0, len(m))
	for name, value := range m {
		attrs = append(attrs, Attribute{Name: name, Value: value})
	}
	slices.SortFunc(attrs, func(a, b Attribute) int { return strings.Compare(a.Name, b.Name) })
	return attrs
}
