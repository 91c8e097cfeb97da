package main

import (
	"slices"
	"testing"

	"github.com/offpath-io/offpath/internal/promises"
)

// TestEveryCommandIsPromised: whoever records what a release promises records the flags of every command.
func TestEveryCommandIsPromised(t *testing.T) {
	want := []string{"aggregator", "aggregator ledger", "aggregator rules"}
	for name := range operateCommands {
		want = append(want, "aggregator "+name)
	}
	for _, c := range rulesCommands {
		want = append(want, "aggregator rules "+c.name)
	}
	for _, name := range want {
		if !slices.Contains(promises.Commands, name) {
			t.Errorf("%s is not promised", name)
		}
	}
}
