// Package pace waits until a moment, as exactly as the machine can: a load generator that sends
// half a millisecond late measures that, or makes lumps of what should be even.
package pace

import (
	"context"
	"time"
)

// Pauser waits for a short time, as exactly as it can. It belongs to one goroutine.
type Pauser interface {
	// Pause waits for d. It cannot be stopped.
	Pause(d time.Duration)
	// Close frees what it holds.
	Close()
}

// Sleeper waits with the runtime's timers.
type Sleeper struct{}

// Pause sleeps.
func (Sleeper) Pause(d time.Duration) { time.Sleep(d) }

// Close does nothing.
func (Sleeper) Close() {}

// Until waits until t, or returns false if ctx ends before. The runtime's timers, which can be
// stopped, take it to shortly before, and the pauser, which cannot, to the end.
func Until(ctx context.Context, t time.Time, fine Pauser) bool {
	const short = 2 * time.Millisecond // as late as a timer of the runtime rarely is
	if coarse := time.Until(t) - short; coarse > 0 {
		timer := time.NewTimer(coarse)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
		}
	}
	if d := time.Until(t); d > 0 {
		fine.Pause(d)
	}
	return ctx.Err() == nil
}
