//go:build !linux

package httpload

// newPause returns what there is everywhere. On these systems no better timer is known to be needed.
func newPause() pauser { return sleeper{} }
