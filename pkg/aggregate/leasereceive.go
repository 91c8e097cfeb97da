package aggregate

import (
	"fmt"

	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/window"
)

func (w *Worker) receiveLease(now int64, payload []byte, reply func([]byte) error) {
	shards := w.shards()
	if reply == nil || len(shards) == 0 { // nobody to answer, or no store yet
		w.counters.leasesDropped.Add(1)
		return
	}
	m, err := events.DecodeLeaseRequest(payload)
	if err == nil {
		err = w.checkFleet(m.GetShards(), m.GetKeys().GetRules(), len(shards))
	}
	if err == nil {
		err = checkLease(m, w.clock.fleet(now+int64(w.o.Tolerance)))
	}
	if err == nil {
		err = w.checkRules(m.GetEpoch(), m.GetKeys().GetRules(), now)
	}
	if err != nil {
		w.refuseLease(payload, reply, err)
		return
	}
	r := &leaseRequest{m: m, waiting: waiting{
		epoch: m.GetEpoch(), sequence: m.GetSequence(), reply: reply, arrived: now, weight: weightOf(m.GetKeys()),
	}}
	switch shards[m.GetShard()].leases.add(r) {
	case fateReplaced, fateStale:
		w.counters.leasesReplaced.Add(1)
	case fateFull:
		w.counters.leasesDropped.Add(1)
	}
}

// checkLease refuses limits that leave nothing to lease, algorithms of which nothing can be leased, and keys that speak of buckets that begin after
// latest.
func checkLease(m *events.LeaseRequest, latest int64) error {
	table := m.GetKeys()
	for _, r := range table.GetRules() {
		if r.GetLimit() == 0 {
			return fmt.Errorf("rule %q: permits of a limit of 0", r.GetName())
		}
		if kindOf[r.GetAlgorithm()] != window.Sliding {
			return fmt.Errorf("rule %q: permits of a %v", r.GetName(), r.GetAlgorithm())
		}
	}
	for i, rule := range table.GetKeyRule() {
		r := table.Rules[rule]
		if bucket := r.GetNewest() - m.Age[i]; bucket > shapeOf(r).Bucket(latest) {
			return fmt.Errorf("rule %q: permits of bucket %d, too far in the future", r.GetName(), bucket)
		}
	}
	return nil
}

// refuseLease tells the sender of a request why it will never have an answer, if the sender can be made
// out.
func (w *Worker) refuseLease(payload []byte, reply func([]byte) error, reason error) {
	w.counters.leasesRefused.Add(1)
	w.noteRules(reason)
	epoch, shard, sequence, ok := identify(payload)
	if !ok {
		return
	}
	w.sendGrant(reply, &events.Grant{Epoch: epoch, Shard: shard, Sequence: sequence, Error: reason.Error()})
}
