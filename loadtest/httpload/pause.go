package httpload

import (
	"context"
	"time"
)

// pauser waits for a short time, as exactly as it can. It belongs to one goroutine.
type pauser interface {
	pause(d time.Duration)
	close()
}

// sleeper waits with the runtime's timers.
type sleeper struct{}

func (sleeper) pause(d time.Duration) { time.Sleep(d) }
func (sleeper) close()                {}

// waitUntil waits until t, or returns false if ctx ends before. The runtime's timers, which can be stopped, take it to
// shortly before, and the pauser, which cannot, to the end.
func waitUntil(ctx context.Context, t time.Time, fine pauser) bool {
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
		fine.pause(d)
	}
	return ctx.Err() == nil
}
