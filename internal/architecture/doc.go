// Package architecture holds tests only: which package may import which, and that the documents say
// so.
//
// The directions of imports are what keeps the parts apart: a checker that imported the aggregator
// would soon share its state instead of its messages. The table in imports_test.go is the rule;
// docs/packages.md explains it.
package architecture
