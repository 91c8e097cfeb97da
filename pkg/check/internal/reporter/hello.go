package reporter

import (
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/check/internal/fleetstate"
	"github.com/offpath-io/offpath/pkg/check/internal/queue"
	"github.com/offpath-io/offpath/pkg/events"
)

// Hellos, and their answers: welcomes, with the time and the number of shards and checkers.

// welcome processes the answer to a hello.
func (r *Reporter) welcome(m *events.Welcome, now int64) {
	if m.Epoch != r.o.Epoch {
		r.counts.Ignored++
		return
	}
	r.noteContact(now)
	r.host.NoteSize(int64(m.Checkers))
	if step := r.host.Clock.Observe(m.Sent, m.Time, now, m.Error); step != 0 {
		r.rebucket(step)
	} else if r.host.Clock.Refuted() {
		r.withdrawPermits(now)
	}
	switch n := int(m.Shards); {
	case !r.host.Clock.Known(): // the answer was too slow to set the clock, so the buckets of hits are not known
		r.nextHello = now
	case n == len(r.shards):
		r.other = 0
	case len(r.shards) == 0 || n == r.other:
		r.other = 0
		r.reshard(n, now)
	default: // a new shard count needs two welcomes, since resharding loses the reports in flight
		r.other = n
		r.nextHello = now
	}
	r.askAgain(m, now)
}

// askAgain makes hellos ask for the totals of recent alarms, once the shards are known, until such
// a hello is answered.
func (r *Reporter) askAgain(m *events.Welcome, now int64) {
	switch {
	case !r.missedAlarms || len(r.shards) == 0:
	case m.Sent == r.asked:
		r.missedAlarms = false
	case now-r.asked >= int64(firstHelloEvery): // otherwise the answer may be on its way
		r.nextHello = now
		r.host.WakeUp()
	}
}

// rebucket moves the hits of every counter after a step of the clock: to the nearest bucket, and at
// most to that of now. After a step back, what was due at a time that is still to come is due now.
func (r *Reporter) rebucket(step int64) {
	r.host.Table.Each(func(c *counter.Counter) { c.Rebucket(step, r.host.ExactTime()) })
	if step > 0 {
		return
	}
	fleet := r.host.ExactTime()
	r.host.EndDeferrals(fleet, true, r.enqueue)
	reviews := r.leases.reviews
	r.leases.reviews = queue.Heap[*counter.Counter]{}
	reviews.Each(func(c *counter.Counter) { r.review(c, fleet) })
}

// withdrawPermits withdraws the allowances of all counters with permits, whose ends were reckoned
// with a smaller error of the clock than it has now.
func (r *Reporter) withdrawPermits(now int64) {
	fleet := r.host.Clock.Fleet(now)
	r.leases.reviews.Each(func(holder *counter.Counter) {
		c := holder.Lock()
		defer c.Unlock()
		c.Withdraw(fleet)
	})
}

// reshard sets the number of shards: normally once, at the first welcome, when pending hits are
// assigned to shards. If the number changes later, the store is a new one; no report with the old
// number can ever be answered.
func (r *Reporter) reshard(shards int, now int64) {
	fleet := r.host.Clock.Fleet(now)
	old := r.shards
	r.shards = make([]shard, shards)
	if len(old) > 0 { // the bases of the old shards' counters are not valid any more
		r.generations++
	}
	for i := range r.shards {
		r.shards[i].localGeneration = r.generations
	}
	r.host.SetShards(shards, r.contact(now))
	r.reshardLeases()
	for i := range old {
		if f := old[i].flight; f != nil {
			r.giveUp(&old[i], f, fleet)
		}
		old[i].each(r.enqueue)
		for old[i].settlements.Len() > 0 {
			r.o.Settling.Return(old[i].settlements.Pop())
		}
		old[i].late.Each(r.lateAgain)
		for _, s := range old[i].apart {
			if s.late {
				r.lateAgain(s.group)
			}
		}
	}
	for _, c := range r.unsharded {
		r.enqueue(c)
	}
	r.unsharded = nil
	r.nextFlush = now
	r.hurry()
}

// lateAgain puts a group with late hits, which waited for its shard's report, back into the list.
func (r *Reporter) lateAgain(g *counter.Group) {
	g.Reports.QueuedLate = false
	r.host.Lates.Add(g)
}

// hello sends a heartbeat; leaving means that it is the last one.
func (r *Reporter) hello(now int64, leaving bool) {
	m := &events.Hello{Epoch: r.o.Epoch, Sent: now, Leaving: leaving}
	wait := r.o.HelloEvery
	if r.contact(now) != fleetstate.Fresh {
		r.missedAlarms = true // it may have
	}
	if m.Asks = r.missedAlarms && len(r.shards) > 0 && !leaving; m.Asks {
		r.asked = now
	}
	// Nothing can be reported before the first welcome.
	if len(r.shards) == 0 || m.Asks || r.host.Clock.IsGuess() {
		wait = min(wait, firstHelloEvery)
	}
	r.nextHello = now + int64(wait)
	payload, err := events.Append(nil, m)
	if err == nil {
		err = r.o.Link.Hello(payload)
	}
	if err != nil {
		r.counts.Problem = err.Error()
	}
}

// firstHelloEvery is the time between hellos until the first is answered.
const firstHelloEvery = 250 * time.Millisecond
