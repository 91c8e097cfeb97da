package reporter

import (
	"fmt"
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/check/internal/permit"
	"github.com/offpath-io/offpath/pkg/events"
)

// granted takes in the answer to a lease request.
func (r *Reporter) granted(m *events.Grant, now int64) error {
	if m.Epoch != r.o.Epoch || int64(m.Shard) >= int64(len(r.leases.queues)) {
		shards := len(r.leases.queues)
		return fmt.Errorf("grant: for epoch %x, shard %d of %d", m.Epoch, m.Shard, shards)
	}
	r.noteContact(now)
	x := &r.leases.queues[m.Shard]
	f := x.flight
	if f == nil || f.sequence != m.Sequence {
		r.counts.Ignored++
		return nil
	}
	if m.Error != "" {
		return r.leaseRefused(x, m, now)
	}
	if len(m.Age) != len(f.counters) {
		return fmt.Errorf("grant: permits of %d keys for %d", len(m.Age), len(f.counters))
	}
	r.shards[m.Shard].aggregator = m.Aggregator
	r.counts.LeasesAnswered++
	r.host.NoteLeaseTrip(now - f.sent)
	x.flight, x.wait = nil, 0
	current := r.follow(&r.shards[m.Shard], m.Generation, f.generation)
	fleet := r.host.Clock.Fleet(now)
	for i, c := range f.counters {
		if !current { // of a store that has lost its data since: only that it came counts
			r.take(c, nil, fleet)
			continue
		}
		wait := min(m.WaitMs[i], uint64(longestWait.Milliseconds()))
		r.take(c, &permit.Grant{
			Bucket: f.newest[i] - m.Age[i], Granted: int64(m.Granted[i]), Named: int64(m.Spoken[i]),
			Wait: time.Duration(wait) * time.Millisecond,
		}, fleet)
	}
	r.stepLeases(now)
	r.host.WakeUp() // what is due next may be sooner than it was
	return nil
}

// longestWait is more than any wait there is.
const longestWait = 2 * events.MaxWindow

// leaseRefused takes in that an aggregator will not answer a request. The number of shards may have
// changed, so it asks for that; the request is made anew after the usual time.
func (r *Reporter) leaseRefused(x *leaseQueue, m *events.Grant, now int64) error {
	r.counts.LeasesRefused++
	x.notBefore = x.flight.retryAt
	r.shards[m.Shard].aggregator = 0
	x.again()
	r.nextHello = now
	return fmt.Errorf("grant: lease request refused: %s", m.Error)
}

// take takes in what an answer says of a counter; nil if that does not count.
func (r *Reporter) take(asking *counter.Counter, g *permit.Grant, fleet int64) {
	c := asking.Lock()
	defer c.Unlock()
	p := c.Permits()
	c.CatchUp(fleet)
	p.Answered(c.Moment(fleet), g, c.Group.Limits.Load().Wire, r.draining)
	c.AskIfNeeded(p, fleet)
	r.scheduleReview(c, p, fleet)
}

// reshardLeases gives every shard its queue. If there were others before, the store was made anew,
// and what the old one had granted is not spent any more.
func (r *Reporter) reshardLeases() {
	old := r.leases.queues
	r.leases.queues = make([]leaseQueue, len(r.shards))
	for i := range old {
		x := &old[i]
		if x.flight != nil {
			x.again()
		}
		for x.queue.Len() > 0 {
			r.enqueueAsk(x.queue.Pop())
		}
	}
	for _, c := range r.leases.unsharded {
		r.enqueueAsk(c)
	}
	r.leases.unsharded = nil
	if len(old) > 0 {
		r.giveBackAll()
	}
}

// giveBackAll ends all leases, and returns what is left of them.
func (r *Reporter) giveBackAll() {
	if !r.Strict.Load() {
		return
	}
	r.host.Table.Each(func(holder *counter.Counter) {
		p := holder.Permits()
		if p == nil {
			return
		}
		c := holder.Lock()
		defer c.Unlock()
		c.Withdraw(0)
		p.End()
		if p.Owes() {
			c.Ask(p)
		}
	})
}
