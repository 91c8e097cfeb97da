//go:build !linux

package httpload

// newPause returns the runtime's timers. Result.Late says how late they made the requests.
func newPause() pauser { return sleeper{} }
