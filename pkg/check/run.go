package check

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/fleetclock"
)

// ErrUnreported is wrapped by the error of Run if hits could not be delivered before it stopped.
var ErrUnreported = errors.New("hits left unreported")

// drainEvery is how often the last flush looks whether it is done.
const drainEvery = 5 * time.Millisecond

// Run keeps the clock, flushes, listens and lets idle keys go, until ctx is done; then it delivers
// what is pending, within Options.DrainTimeout, and returns. Checks work before, during and after.
// It must not run twice. Under strict enforcement no hit passes once ctx is done: what permits are
// left are given back. The error wraps ErrUnreported if hits had to be left, or is the Link's if
// that could not listen.
func (c *Checker) Run(ctx context.Context) error {
	if c.o.Link != nil && c.o.MaxIdleKeys > 0 {
		if err := c.idle.open(c.o.MaxIdleKeys); err != nil {
			return err
		}
		defer c.idle.close()
	}
	defer c.end.Do(func() { close(c.ended) })
	// What runs behind ends after the drain, not when ctx does.
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

// tickUntil writes the time down for checks to read.
func (c *Checker) tickUntil(ctx context.Context) {
	defer c.clock.Stop()
	ticker := time.NewTicker(fleetclock.TickEvery)
	defer ticker.Stop()
	for {
		c.clock.Tick(systemTime())
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// stepFloor is the least time from a step to one that Run is woken for, however often that is. A
// step that is due comes when it is due: reports are to be made in the rounds of the fleet.
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
		case <-c.wake:
			if soon := last.Add(stepFloor); soon.Before(due) {
				due = soon
				timer.Reset(time.Until(due))
			}
		case <-timer.C:
			next := c.reporter.step(c.ownTime(), false)
			last = time.Now()
			wait := time.Duration(next - c.ownTime())
			if wait <= 0 {
				wait = stepFloor
			}
			due = last.Add(wait)
			timer.Reset(wait)
		}
	}
}

// drain flushes until everything that was pending when it began is answered, or the time is up, and
// says goodbye.
func (c *Checker) drain() error {
	if c.o.Link == nil {
		return nil
	}
	c.end.Do(func() { close(c.ended) })
	d := drain{reporter: &c.reporter}
	defer d.goodbye()
	d.begin()
	ctx, cancel := context.WithTimeout(context.Background(), c.o.DrainTimeout)
	defer cancel()
	ticker := time.NewTicker(drainEvery)
	defer ticker.Stop()
	for !d.done(c.ownTime()) {
		select {
		case <-ctx.Done():
			if n := c.Stats().Unreported(); n > 0 {
				return fmt.Errorf("check: stop: %d %w", n, ErrUnreported)
			}
			if taken, answered, lost := c.settling.Counts(); taken > answered+lost {
				return fmt.Errorf("check: stop: settlements: %d %w", taken-answered-lost, ErrUnreported)
			}
			return nil
		case <-ticker.C:
		}
	}
	return nil
}

// drain is the last flush. Its goal is, per shard, how many counters will have been taken off the
// queue when all that was pending in the beginning is in a report: traffic that goes on does not
// delay it. Permits are all back when every counter that had some, or was about to get some, has
// been answered.
type drain struct {
	*reporter
	goal    []uint64
	settled int64      // how many settlements had been taken in when it began
	lenders []*counter // whose permits may not all be back
}

// begin ends all permits.
func (d *drain) begin() {
	d.mu.Lock()
	d.draining = true
	d.mu.Unlock()
	d.giveBackAll()
	d.settled, _, _ = d.checker.settling.Counts()
	if !d.checker.everStrict.Load() {
		return
	}
	d.checker.table.each(func(c *counter) {
		if c.holdsPermits() {
			d.lenders = append(d.lenders, c)
		}
	})
}

// done flushes, and returns whether the goal has been reached.
func (d *drain) done(now int64) bool {
	d.mu.Lock()
	d.endDeferrals(d.checker.clock.Fleet(now))
	d.collect()
	if len(d.goal) != len(d.shards) { // in the beginning, or when the first welcome comes
		d.goal = make([]uint64, len(d.shards))
		for i := range d.shards {
			d.goal[i] = d.shards[i].taken + uint64(d.shards[i].queue.Len())
		}
	}
	d.mu.Unlock()
	d.step(now, true)
	for last := len(d.lenders) - 1; last >= 0; last-- {
		if d.lenders[last].holdsPermits() {
			return false
		}
		d.lenders = d.lenders[:last]
	}
	if _, answered, lost := d.checker.settling.Counts(); answered+lost < d.settled {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.unsharded) > 0 || d.lates.any() {
		return false
	}
	for i := range d.goal {
		s := &d.shards[i]
		if s.taken < d.goal[i] || s.late.Len() > 0 {
			return false
		}
		// Late hits are of no counter, so their report need not come before the goal.
		if f := s.flight; f != nil && (f.after < d.goal[i] || len(f.message.Late) > 0) {
			return false
		}
	}
	return true
}

func (d *drain) goodbye() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.draining = false
	d.hello(d.checker.ownTime(), true)
}
