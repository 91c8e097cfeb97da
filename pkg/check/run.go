package check

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/offpath-io/offpath/pkg/events"
)

// ErrUnreported is wrapped by the error of Run if hits could not be delivered before it stopped.
var ErrUnreported = errors.New("hits left unreported")

// drainEvery is how often the last flush looks whether it is done.
const drainEvery = 5 * time.Millisecond

// Run keeps the clock, flushes, listens and lets idle keys go, until ctx is done; then it delivers
// what is pending, within Options.DrainTimeout, and returns. Checks work before, during and after.
// It must not run twice at a time. The error wraps ErrUnreported if hits had to be left, or is the
// Link's if that could not listen.
func (c *Checker) Run(ctx context.Context) error {
	if c.o.Link != nil && c.o.MaxIdleKeys > 0 {
		idle, err := newIdleCache(c.o.MaxIdleKeys)
		if err != nil {
			return fmt.Errorf("check: idle cache: %w", err)
		}
		c.idle.Store(idle)
		defer idle.Close()
		defer c.idle.Store(nil)
	}
	// What runs behind ends after the drain, not when ctx does.
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() { c.tickUntil(work) })
	listening := make(chan error, 1)
	if c.o.Link != nil {
		running.Go(func() { listening <- c.o.Link.Listen(work, c.hear) })
	}
	if err := c.stepUntil(ctx, listening); err != nil {
		return err
	}
	return c.drain()
}

// hear hands a message from the Link over at the time it came.
func (c *Checker) hear(kind events.Kind, payload []byte) { c.Receive(ownTime(), kind, payload) }

// tickUntil writes the time down for checks to read.
func (c *Checker) tickUntil(ctx context.Context) {
	defer c.clock.stop()
	ticker := time.NewTicker(clockTick)
	defer ticker.Stop()
	for {
		c.clock.tick()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// stepUntil takes steps when they are due, or sooner when woken.
func (c *Checker) stepUntil(ctx context.Context, listening <-chan error) error {
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
		case <-c.wake:
		case <-timer.C:
		}
		// Not sooner than the floor: a wake-up that came meanwhile is taken care of then.
		timer.Reset(max(time.Duration(c.Step(ownTime())-ownTime()), time.Millisecond))
	}
}

// drain flushes until everything is answered or the time is up.
func (c *Checker) drain() error {
	if c.o.Link == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.o.DrainTimeout)
	defer cancel()
	ticker := time.NewTicker(drainEvery)
	defer ticker.Stop()
	for {
		if c.behind.flushNow(ownTime()) {
			return nil
		}
		select {
		case <-ctx.Done():
			c.behind.settleHomeless()
			if n := c.Stats().Unreported(); n > 0 {
				return fmt.Errorf("check: stop: %d %w", n, ErrUnreported)
			}
			return nil
		case <-ticker.C:
		}
	}
}

// flushNow flushes whether or not it is time, and returns whether there was nothing left to report.
// The first time that is so it says goodbye.
func (b *behind) flushNow(now int64) (done bool) {
	b.step(now, true)
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.homeless) > 0 || b.anyLate.Load() {
		return false
	}
	for i := range b.shards {
		if b.shards[i].flight != nil || b.shards[i].queue.len() > 0 || len(b.shards[i].late) > 0 {
			return false
		}
	}
	b.hello(now, true)
	return true
}

// settleHomeless counts the hits of cells that never got to know their shard.
func (b *behind) settleHomeless() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.collect()
	for _, c := range b.homeless {
		c.mu.Lock()
		c.settle()
		c.mu.Unlock()
	}
}
