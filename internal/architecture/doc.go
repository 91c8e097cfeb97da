// Package architecture holds tests only: which package may import which, and that docs/architecture.md says so.
//
// The directions of imports are what keeps the parts apart: a checker that imported the aggregator would soon share its
// state instead of its messages. The table in imports_test.go is the rule; docs/architecture.md explains it.
package architecture
