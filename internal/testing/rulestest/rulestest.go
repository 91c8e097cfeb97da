// Package rulestest makes rules and checkers of text.
package rulestest

import (
	"testing"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/rules/envoyrules"
)

// Parse reads rules in either format.
func Parse(t testing.TB, text string) *rules.Set {
	t.Helper()
	set, err := envoyrules.Read([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// Checker returns one that decides by these rules, and does not run.
func Checker(t testing.TB, text string) *check.Checker {
	t.Helper()
	c, err := check.New(check.Options{Rules: Parse(t, text)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
