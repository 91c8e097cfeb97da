package aggregate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/offpath-io/offpath/pkg/aggregate/internal/merge"
	"github.com/offpath-io/offpath/pkg/aggregate/internal/queue"
	"github.com/offpath-io/offpath/pkg/aggregate/internal/wire"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/window"
)

func (w *Worker) receiveLease(now int64, payload []byte, reply func([]byte) error) {
	w.counters.add(func(c *Stats) { c.LeaseRequests++ })
	shards := w.known()
	if reply == nil || len(shards) == 0 { // nobody to answer, or no store or time yet
		w.counters.add(func(c *Stats) { c.LeasesDropped++ })
		return
	}
	if w.repeats(payload, reply, func(s *shard) queued { return s.leases }) {
		w.counters.add(func(c *Stats) { c.LeasesReplaced++ })
		return
	}
	m, err := events.DecodeLeaseRequest(payload)
	if err == nil {
		err = w.checkRules(m.GetShards(), m.GetKeys().GetRules())
	}
	if err == nil {
		err = checkLease(m, w.clock.Time(now+int64(w.o.Tolerance)))
	}
	if err == nil {
		err = w.admitRules(m.GetEpoch(), m.GetKeys().GetRules(), now)
	}
	if err != nil {
		w.counters.add(func(c *Stats) { c.LeasesRefused++ })
		w.refuse(payload, reply, err, refusedLease)
		return
	}
	r := &merge.LeaseRequest{Message: m, Header: queue.Header{
		Epoch: m.GetEpoch(), Sequence: m.GetSequence(), Reply: reply, Arrived: now,
		Weight: wire.Weight(m.GetKeys()), Size: len(payload),
	}}
	w.noteRequest(m.GetShard(), now)
	switch shards[m.GetShard()].leases.Add(r) {
	case queue.Replaced, queue.Stale:
		w.counters.add(func(c *Stats) { c.LeasesReplaced++ })
	case queue.Full:
		w.counters.add(func(c *Stats) { c.LeasesDropped++ })
	}
}

func refusedLease(epoch uint64, shard uint32, sequence uint64, reason error) events.Message {
	return &events.Grant{Epoch: epoch, Shard: shard, Sequence: sequence, Error: reason.Error()}
}

// checkLease refuses limits that leave nothing to lease, algorithms without permits, and keys with
// buckets that begin after latest.
func checkLease(m *events.LeaseRequest, latest int64) error {
	table := m.GetKeys()
	for _, r := range table.GetRules() {
		if r.GetLimit() == 0 {
			return fmt.Errorf("rule %q: permits of a limit of 0", r.GetName())
		}
		if wire.Shape(r).Kind != window.Sliding {
			return fmt.Errorf("rule %q: permits of a %v", r.GetName(), r.GetAlgorithm())
		}
	}
	for i, rule := range table.GetKeyRule() {
		r := table.Rules[rule]
		if bucket := r.GetNewest() - m.Age[i]; bucket > wire.Shape(r).Bucket(latest) {
			return fmt.Errorf("rule %q: permits of bucket %d, too far in the future", r.GetName(), bucket)
		}
	}
	return nil
}

// leases applies and answers lease requests.
type leases struct {
	w      *Worker
	merger *merge.Leases
}

func (w *Worker) newLeases() stepper {
	merger := merge.NewLeases(int64(w.o.Tolerance))
	return &exchange[*merge.LeaseRequest]{w: w, kind: &leases{w, merger}}
}

func (e *leases) queueOf(s *shard) *queue.Queue[*merge.LeaseRequest] { return s.leases }

func (e *leases) prepare(context.Context, *shard, int64, bool) {}

func (e *leases) nextDue(*shard) int64 { return queue.Never }

func (e *leases) apply(
	ctx context.Context, s *shard, requests []*merge.LeaseRequest, clock func() int64,
) error {
	batch := e.merger.Merge(s.number, requests, s.seen(), e.w.clock.Earliest(clock()))
	e.w.revisions.Apply(batch.Rules, batch.Now)
	ctx, cancel := context.WithTimeout(ctx, e.w.o.Timeout)
	defer cancel()
	stopTimer := e.w.leaveIfSlow(s)
	leased, err := e.w.o.Store.Lease(ctx, batch)
	stopTimer()
	if err == nil {
		err = checkLeased(batch, &leased)
	}
	e.observeOutcome(s, err)
	if err != nil {
		return err
	}
	e.w.observeState(s, batch.Seen, leased.State, leased.Loss)
	for _, o := range leased.Overflow {
		if e.w.o.OnUnleased != nil {
			e.w.o.OnUnleased(batch.Rules[o.Rule].Name, o.Keys)
		}
	}
	e.w.counters.add(func(c *Stats) {
		c.LeaseBatches++
		c.LeasesAnswered += int64(len(requests))
		for i := range leased.Keys {
			c.PermitsGranted += leased.Keys[i].New
			c.PermitsReturned += leased.Keys[i].Returned
		}
	})
	e.merger.ComputeWaits(&leased)
	for _, r := range requests {
		_ = e.w.send(r.Reply, e.merger.Grant(r, &leased))
	}
	return nil
}

// checkLeased returns an error if a store's answer does not fit the batch.
func checkLeased(batch *storage.LeaseBatch, leased *storage.Leased) error {
	if len(leased.Keys) != len(batch.Keys) {
		return fmt.Errorf("%w: leases of %d keys for %d", storage.ErrBatch, len(leased.Keys), len(batch.Keys))
	}
	for i := range leased.Keys {
		if len(leased.Keys[i].Grants) != len(batch.Keys[i].Requests) {
			return fmt.Errorf("%w: not every request is answered", storage.ErrBatch)
		}
	}
	return nil
}

// observeOutcome logs when a shard begins to fail lease requests and when it takes them again.
// After a failure the shard is probed: only if that fails, too, it is left. A failure because of a
// batch's content says nothing about the shard.
func (e *leases) observeOutcome(s *shard, err error) {
	if err != nil {
		e.w.counters.add(func(c *Stats) { c.LeaseErrors++ })
	}
	if errors.Is(err, storage.ErrBatch) {
		return
	}
	if err != nil && s.retryAt.CompareAndSwap(queue.Never, 0) {
		s.reports.WakeUp()
	}
	was := s.leasesFailed.Swap(err != nil)
	switch {
	case err != nil && !was:
		e.w.o.Log.Warn("the store grants no permits",
			slog.Int("shard", int(s.number)), slog.Any("error", err))
	case err == nil && was:
		e.w.o.Log.Info("the store grants permits again", slog.Int("shard", int(s.number)))
	}
}

func (e *leases) reject(s *shard, r *merge.LeaseRequest, reason error) {
	e.w.counters.add(func(c *Stats) { c.LeasesRefused++ })
	_ = e.w.send(r.Reply, refusedLease(r.Epoch, s.number, r.Sequence, reason))
}

func (e *leases) drop(requests []*merge.LeaseRequest) {
	e.w.counters.add(func(c *Stats) { c.LeasesDropped += int64(len(requests)) })
}
