package check

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/fleetclock"
	"github.com/offpath-io/offpath/pkg/check/internal/fleetstate"
	"github.com/offpath-io/offpath/pkg/events"
)

// ErrUnreported is wrapped by the error of Run if hits could not be delivered before it stopped.
var ErrUnreported = errors.New("hits left unreported")

// Run keeps the clock, flushes, listens and evicts idle keys, until ctx is done; then it delivers
// pending hits, within Options.DrainTimeout, and returns. Checks work before, during and after. It
// must not run twice. Under strict enforcement no hit passes once ctx is done: the permits that are
// left are returned. The error wraps ErrUnreported if hits could not be delivered, or is the Link's
// if it could not listen.
func (c *Checker) Run(ctx context.Context) error {
	if c.o.Link != nil && c.o.MaxIdleKeys > 0 {
		if err := c.host.Idle.Open(c.o.MaxIdleKeys); err != nil {
			return fmt.Errorf("check: idle cache: %w", err)
		}
		defer c.host.Idle.Close()
	}
	defer c.end.Do(func() { close(c.ended) })
	// Background goroutines stop after the drain.
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	if c.o.Now == nil {
		running.Go(func() { c.tickUntil(work) })
	}
	listening := make(chan error, 1)
	if c.o.Link != nil {
		running.Go(func() { listening <- c.o.Link.Listen(work, c.Receive) })
	}
	if err := c.stepUntil(ctx, listening); err != nil {
		return err
	}
	return c.drain()
}

// tickUntil ticks the clock, which checks read.
func (c *Checker) tickUntil(ctx context.Context) {
	defer c.host.Clock.Stop()
	ticker := time.NewTicker(fleetclock.TickEvery)
	defer ticker.Stop()
	for {
		c.host.Clock.Tick(fleetstate.SystemTime())
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// stepFloor is the least time from a step to one for which Run is woken, even if it is woken often.
// It does not delay a step that is due: reports must be made in the fleet's rounds.
const stepFloor = time.Millisecond

// stepUntil takes steps when they are due, or sooner when woken.
func (c *Checker) stepUntil(ctx context.Context, listening <-chan error) error {
	var last, due time.Time // of steps
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-listening:
			if err != nil {
				return fmt.Errorf("check: listen: %w", err)
			}
			listening = nil
		case <-c.host.Wake:
			if soon := last.Add(stepFloor); soon.Before(due) {
				due = soon
				timer.Reset(time.Until(due))
			}
		case <-timer.C:
			next := c.reporter.Step(c.host.OwnTime(), false)
			last = time.Now()
			wait := time.Duration(next - c.host.OwnTime())
			if wait <= 0 {
				wait = stepFloor
			}
			due = last.Add(wait)
			timer.Reset(wait)
		}
	}
}

// drain flushes until all hits that were pending at its beginning are answered, or DrainTimeout is
// over, and sends the last hello.
func (c *Checker) drain() error {
	if c.o.Link == nil {
		return nil
	}
	c.end.Do(func() { close(c.ended) })
	ctx, cancel := context.WithTimeout(context.Background(), c.o.DrainTimeout)
	defer cancel()
	d := c.reporter.BeginShutdown()
	defer d.Goodbye()
	ticker := time.NewTicker(drainEvery)
	defer ticker.Stop()
	for !d.Done(c.host.OwnTime()) {
		select {
		case <-ctx.Done():
			return c.undelivered()
		case <-ticker.C:
		}
	}
	return nil
}

// undelivered returns an error if hits or settlements are left.
func (c *Checker) undelivered() error {
	if n := c.Stats().Unreported(); n > 0 {
		return fmt.Errorf("check: stop: %d %w", n, ErrUnreported)
	}
	if taken, answered, lost := c.settling.Counts(); taken > answered+lost {
		return fmt.Errorf("check: stop: settlements: %d %w", taken-answered-lost, ErrUnreported)
	}
	return nil
}

// Receive processes a message for this checker: the answer to a report, a lease request or a hello,
// an alarm, or the notice that a message was not heard. It counts and ignores messages that it
// cannot read. Run calls it for all messages of the Link. It does not keep payload.
func (c *Checker) Receive(kind events.Kind, payload []byte) { c.reporter.Receive(kind, payload) }

// Step does everything that is due: heartbeat, flush, repeats, lease requests, and eviction of idle
// counters. Run does the same. A simulation with its own clock (Options.Now) calls it instead of
// Run. It returns the time of the next call by the same clock; the call may come sooner, and should
// if Wake is sent to.
func (c *Checker) Step() (next time.Time) {
	return time.Unix(0, c.reporter.Step(c.host.OwnTime(), false))
}

// Wake is sent to when the next Step should come sooner than the last one said: a check or a
// message wants an early flush. It is for callers of Step; Run reads it too. However soon they
// call, flushes are not more frequent than the checker allows.
func (c *Checker) Wake() <-chan struct{} { return c.host.Wake }

// drainEvery is the time between steps of the drain.
const drainEvery = 5 * time.Millisecond
