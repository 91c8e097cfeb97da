// Package pair has two files that use each other, and a third that uses both.
package pair

import "strings"

// A is exported.
type A struct{ b B } // a comment after code does not lengthen its line .........................................

// Name is a method.
func (a *A) Name() string { return strings.ToUpper(a.b.name) }

const One, two = 1, 2
