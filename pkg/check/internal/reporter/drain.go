package reporter

import "github.com/offpath-io/offpath/pkg/check/internal/counter"

// Drain is the last flush. Its goal is, per shard, how many counters will have been taken off the
// queue when all that was pending in the beginning is in a report: traffic that goes on does not
// delay it. Permits are all back when every counter that had some, or was about to get some, has
// been answered.
type Drain struct {
	*Reporter
	goal    []uint64
	settled int64              // how many settlements had been taken in when it began
	lenders []*counter.Counter // whose permits may not all be back
}

// begin ends all permits.
func (d *Drain) begin() {
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
func (d *Drain) Done(now int64) bool {
	d.mu.Lock()
	d.host.EndDeferrals(d.host.Clock.Fleet(now), d.draining, d.enqueue)
	d.host.Collect(d.enqueue)
	if len(d.goal) != len(d.shards) { // in the beginning, or when the first welcome comes
		d.goal = make([]uint64, len(d.shards))
		for i := range d.shards {
			d.goal[i] = d.shards[i].taken + uint64(d.shards[i].queue.Len())
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

func (d *Drain) Goodbye() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.draining = false
	d.hello(d.o.Now(), true)
}

// Drain begins the last flush.
func (r *Reporter) Drain() *Drain {
	d := &Drain{Reporter: r}
	d.begin()
	return d
}
