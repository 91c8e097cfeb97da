package reporter

import (
	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/check/internal/settlement"
	"github.com/offpath-io/offpath/pkg/events"
)

// enqueue adds a counter to its shard's queue.
func (b *Reporter) enqueue(c *counter.Counter) {
	if len(b.shards) == 0 {
		b.unsharded = append(b.unsharded, c)
		return
	}
	i := events.Shard(c.Group.Name, c.Key(), uint32(len(b.shards)))
	b.shards[i].queue.Push(c)
}

func (b *Reporter) enqueueAsk(c *counter.Counter) {
	if len(b.leases.lines) == 0 {
		b.leases.unsharded = append(b.leases.unsharded, c)
		return
	}
	i := events.Shard(c.Group.Name, c.Key(), uint32(len(b.leases.lines)))
	b.leases.lines[i].queue.Push(c)
}

// collectLate notes which limiters have late hits to report, each in its own shard.
func (b *Reporter) collectLate() {
	if len(b.shards) == 0 {
		return
	}
	for _, l := range b.host.Lates.Take() {
		if l.Late.Load() == 0 || l.Owed.QueuedLate {
			continue
		}
		l.Owed.QueuedLate = true
		s := &b.shards[events.Shard(l.Name, "", uint32(len(b.shards)))]
		s.late.Push(l)
	}
}

// again puts the counters of a request that has not been answered back into the queue.
func (x *line) again() {
	for _, c := range x.flight.counters {
		x.queue.Push(c)
	}
	x.flight = nil
}

// collectSettlements moves settlements that are due to the shards of their keys.
func (b *Reporter) collectSettlements(fleet int64) {
	if len(b.shards) == 0 {
		return
	}
	b.o.Settling.PopDue(fleet, func(s settlement.Settlement) {
		charge := s.GetCharge()
		name, key := charge.GetRule().GetName(), string(charge.GetKey())
		b.shards[events.Shard(name, key, uint32(len(b.shards)))].settlements.Push(s)
	})
}
