// Package alloctest holds what a call allocates to a bound.
package alloctest

import "testing"

// AtMost fails the test if a call of f allocates more than this on average. The race detector
// allocates, and makes sync.Pool forget at random, so under it f only runs: make test-all measures.
func AtMost(t *testing.T, most float64, what string, f func()) {
	t.Helper()
	if n := testing.AllocsPerRun(1000, f); n > most && !raceDetector {
		t.Errorf("%s: %v allocations, want at most %v", what, n, most)
	}
}
