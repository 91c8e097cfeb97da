package reporter

import "github.com/offpath-io/offpath/pkg/check/internal/counter"

// Shutdown is the last flush. Its goals are, per shard and suspect rule, how many counters will
// have been taken off the queue when all hits that were pending at its beginning are in a report:
// later traffic does not delay it. All permits are returned when every counter that had some, or
// had asked for some, has been answered.
type Shutdown struct {
	*Reporter
	goals   int                // shards that have some
	settled int64              // settlements that Settle had accepted when it began
	lenders []*counter.Counter // with permits that may not all be returned
}

// begin ends all leases.
func (d *Shutdown) begin() {
	d.mu.Lock()
	d.draining = true
	d.mu.Unlock()
	d.giveBackAll()
	d.settled, _, _ = d.o.Settling.Counts()
	if !d.Strict.Load() {
		return
	}
	d.host.Table.Each(func(c *counter.Counter) {
		if c.HoldsPermits() {
			d.lenders = append(d.lenders, c)
		}
	})
}

// Done flushes, and returns whether the goal has been reached.
func (d *Shutdown) Done(now int64) bool {
	d.mu.Lock()
	d.host.EndDeferrals(d.host.Clock.Fleet(now), d.draining, d.enqueue)
	d.host.Collect(d.enqueue)
	if d.goals != len(d.shards) { // at the beginning, or when the first welcome comes
		d.goals = len(d.shards)
		for i := range d.shards {
			d.shards[i].setGoals()
		}
	}
	d.mu.Unlock()
	d.Step(now, true)
	for last := len(d.lenders) - 1; last >= 0; last-- {
		if d.lenders[last].HoldsPermits() {
			return false
		}
		d.lenders = d.lenders[:last]
	}
	if _, answered, lost := d.o.Settling.Counts(); answered+lost < d.settled {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.unsharded) > 0 || d.host.Lates.Any() {
		return false
	}
	for i := range d.shards {
		s := &d.shards[i]
		if !s.isDone() || s.late.Len() > 0 {
			return false
		}
		// Late hits belong to no counter, so their report may come after the goal.
		if f := s.flight; f != nil && (f.after < s.of(f.suspect).goal || len(f.message.Late) > 0) {
			return false
		}
	}
	return true
}

// Goodbye sends the last hello, which says that this checker leaves.
func (d *Shutdown) Goodbye() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.draining = false
	d.hello(d.o.Now(), true)
}

// BeginShutdown begins the last flush.
func (r *Reporter) BeginShutdown() *Shutdown {
	d := &Shutdown{Reporter: r}
	d.begin()
	return d
}
