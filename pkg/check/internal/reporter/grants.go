package reporter

import (
	"fmt"
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/check/internal/permit"
	"github.com/offpath-io/offpath/pkg/events"
)

// granted processes the answer to a lease request.
func (r *Reporter) granted(m *events.Grant, now int64) error {
	if m.Epoch != r.o.Epoch || int64(m.Shard) >= int64(len(r.leases.queues)) {
		shards := len(r.leases.queues)
		return fmt.Errorf("grant: for epoch %x, shard %d of %d", m.Epoch, m.Shard, shards)
	}
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
	r.counts.LeasesAnswered++
	if now-f.sent <= int64(f.wait) { // else it may have waited here, while this process stood still
		r.host.NoteLeaseTrip(now - f.sent)
	}
	x.flight, x.wait = nil, 0
	if f.suspect != nil {
		f.suspect.accepted()
	}
	r.noteNews(m.Shard, now)
	valid := r.follow(&r.shards[m.Shard], state{m.Generation, m.Version}, f.known)
	fleet := r.host.Clock.Fleet(now)
	for i, c := range f.counters {
		if !valid { // from a store that has lost its data since: the answer only ends the request
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
	r.host.WakeUp() // the next step may be due earlier now
	return nil
}

// longestWait is longer than any possible wait.
const longestWait = 2 * events.MaxWindow

// leaseRefused processes the refusal of a lease request. The number of shards may have changed, so
// it sends a hello. Its rules are suspect; what the request asked for is asked again, about each of
// them alone.
func (r *Reporter) leaseRefused(x *leaseQueue, m *events.Grant, now int64) error {
	r.counts.LeasesRefused++
	f := x.flight
	x.avoidOwner(f.toOwner, now)
	group := func(i int) *counter.Group { return f.counters[i].Group }
	if alone := x.refused(len(f.counters), group, now); alone != nil {
		alone.after = now + int64(min(leastLeaseWait<<min(alone.tries, 10), mostWaits*r.o.Tuning.ReportTimeout))
		alone.tries++
	}
	x.again()
	r.endWait(m.Shard, f.sent)
	r.nextHello = now
	return fmt.Errorf("grant: lease request refused: %s", m.Error)
}

// take passes a counter's part of an answer to its permits; nil if the answer is not valid.
func (r *Reporter) take(asking *counter.Counter, g *permit.Grant, fleet int64) {
	c := asking.Lock()
	defer c.Unlock()
	p := c.Permits()
	c.CatchUp(fleet)
	p.Answered(c.Moment(fleet), g, c.Group.Limits.Load().Wire, r.draining)
	c.AskIfNeeded(p, fleet)
	r.scheduleReview(c, p, fleet)
}

// reshardLeases makes a queue for every shard. If there were queues before, the store is a new one,
// and permits of the old one are not spent any more.
func (r *Reporter) reshardLeases() {
	old := r.leases.queues
	r.leases.queues = make([]leaseQueue, len(r.shards))
	for i := range old {
		x := &old[i]
		if x.flight != nil {
			x.again()
		}
		x.each(r.enqueueAsk)
	}
	for _, c := range r.leases.unsharded {
		r.enqueueAsk(c)
	}
	r.leases.unsharded = nil
	if len(old) > 0 {
		r.giveBackAll()
	}
}

// giveBackAll ends all leases, and returns the rest of their permits.
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
