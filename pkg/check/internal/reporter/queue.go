package reporter

import (
	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/check/internal/settlement"
	"github.com/offpath-io/offpath/pkg/events"
)

// enqueue adds a dirty counter to its shard's queue.
func (r *Reporter) enqueue(c *counter.Counter) {
	if len(r.shards) == 0 {
		r.unsharded = append(r.unsharded, c)
		return
	}
	i := events.Shard(c.Group.Name, c.Key(), uint32(len(r.shards)))
	r.shards[i].queue.Push(c)
}

func (r *Reporter) enqueueAsk(c *counter.Counter) {
	if len(r.leases.queues) == 0 {
		r.leases.unsharded = append(r.leases.unsharded, c)
		return
	}
	i := events.Shard(c.Group.Name, c.Key(), uint32(len(r.leases.queues)))
	r.leases.queues[i].queue.Push(c)
}

// collectLate queues the groups that have late hits to report, each in its own shard.
func (r *Reporter) collectLate() {
	if len(r.shards) == 0 {
		return
	}
	for _, g := range r.host.Lates.Take() {
		if g.Late.Load() == 0 || g.Reports.QueuedLate {
			continue
		}
		g.Reports.QueuedLate = true
		s := &r.shards[events.Shard(g.Name, "", uint32(len(r.shards)))]
		s.late.Push(g)
	}
}

// again puts the counters of an unanswered lease request back into the queue.
func (x *leaseQueue) again() {
	for _, c := range x.flight.counters {
		x.queue.Push(c)
	}
	x.flight = nil
}

// collectSettlements moves settlements that are due to the shards of their keys.
func (r *Reporter) collectSettlements(now int64) {
	if len(r.shards) == 0 {
		return
	}
	r.o.Settling.PopDue(now, func(s settlement.Settlement) {
		charge := s.GetCharge()
		name, key := charge.GetRule().GetName(), string(charge.GetKey())
		r.shards[events.Shard(name, key, uint32(len(r.shards)))].settlements.Push(s)
	})
}
