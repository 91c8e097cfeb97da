package reporter

import (
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/check/internal/fleetstate"
	"github.com/offpath-io/offpath/pkg/check/internal/permit"
	"github.com/offpath-io/offpath/pkg/events"
)

const (
	// leastLeaseWait is the shortest time-out of a lease request.
	leastLeaseWait = 25 * time.Millisecond
	// neverDue is later than any time.
	neverDue = int64(1<<63 - 1)
)

// stepLeases does everything about leases that is due at own time now, and returns when the next
// step is due.
func (r *Reporter) stepLeases(now int64) (next int64) {
	if !r.Strict.Load() {
		return neverDue
	}
	r.reviewPermits(r.host.Clock.Fleet(now))
	r.host.CollectAsks(r.enqueueAsk)
	next = neverDue
	for i := range r.leases.queues {
		x := &r.leases.queues[i]
		if x.flight != nil && now >= x.flight.retryAt {
			r.counts.LeasesRepeated++
			x.avoidOwner(x.flight.toOwner, now)
			x.again()
		}
		if x.flight == nil && now >= max(x.notBefore, x.due()) {
			r.request(uint32(i), x, now)
		}
		if x.flight != nil {
			next = min(next, x.flight.retryAt)
		} else {
			next = min(next, max(x.notBefore, x.due()))
		}
	}
	if due := r.leases.reviews.Due(); due != neverDue {
		next = min(next, r.host.Clock.Own(due))
	}
	return next
}

// request makes the shard's next lease request and sends it, if there is anything to ask for.
func (r *Reporter) request(number uint32, x *leaseQueue, now int64) {
	x.eachTurn(now, func(about *suspect) bool {
		r.requestTurn(number, x, about, now)
		return x.flight != nil
	})
}

// requestTurn makes a lease request of the counters of a turn that have waited longest, and sends
// it.
func (r *Reporter) requestTurn(number uint32, x *leaseQueue, about *suspect, now int64) {
	q := &x.of(about).queue
	fleet, s := r.host.Clock.Fleet(now), &r.shards[number]
	r.leases.build++
	r.sequence++
	f := &inFlightLease{
		sequence: r.sequence, sent: now, known: s.state, toOwner: x.isToOwner(now),
		suspect: about,
	}
	m := &events.LeaseRequest{
		Epoch: r.o.Epoch, Shard: number, Shards: uint32(len(r.shards)),
		Sequence: f.sequence, Keys: new(events.Table),
	}
	for buckets := 0; q.Len() > 0 && len(f.counters) < min(r.o.Tuning.ReportKeys, events.MaxLeaseKeys) &&
		len(m.Keys.KeyText)+len(m.Keys.Rules)*(events.MaxRuleName+ruleText) < reportText; {
		if about == nil {
			if apart := x.suspect(q.Peek().Group, now); apart != nil {
				apart.queue.Push(q.Pop())
				continue
			}
		}
		// A counter has at most leases of its live buckets and of the near future.
		buckets += q.Peek().Group.Live + 2
		if buckets > events.MaxLeaseBuckets && len(f.counters) > 0 {
			break
		}
		r.addAsk(m, f, q.Pop(), fleet)
	}
	if len(f.counters) == 0 {
		return
	}
	payload, err := events.Append(nil, m)
	if err != nil {
		panic("check: " + err.Error()) // unreachable: the message has no field that can fail
	}
	x.flight, x.notBefore = f, now+int64(fleetstate.LeaseFloor)
	most := mostWaits * r.o.Tuning.ReportTimeout
	x.wait = min(max(x.wait, 4*r.host.LeaseRoundTrip(), leastLeaseWait), most)
	f.wait, f.retryAt = x.wait, now+int64(x.wait)
	x.wait = min(2*x.wait, most)
	s.noteWait(now)
	r.counts.LeasesSent++
	if err := r.o.Link.Lease(number, f.toOwner, payload); err != nil {
		r.counts.Problem = err.Error()
	}
}

// addAsk adds a counter's wishes and returns to a lease request.
func (r *Reporter) addAsk(m *events.LeaseRequest, f *inFlightLease, asking *counter.Counter, fleet int64) {
	c := asking.Lock()
	defer c.Unlock()
	g, p := c.Group, c.Permits()
	c.CatchUp(fleet)
	limit, trip := g.Limits.Load().Wire, r.host.LeaseRoundTrip()
	request, ok := p.Request(c.Moment(fleet), limit, trip, r.share(g), r.draining)
	if !ok {
		r.scheduleReview(c, p, fleet)
		return
	}
	rule := r.leaseRule(m, g, fleet)
	newest := m.Keys.Rules[rule].Newest
	m.AddKey(uint32(rule), c.Key(), newest-request.Bucket, events.Count(request.Known), events.Count(request.Want))
	p.SendReturns(func(bucket, returned int64) {
		m.AddReturn(newest-bucket, events.Count(returned))
	})
	f.counters = append(f.counters, asking)
	f.newest = append(f.newest, newest)
}

// leaseRule returns the index of the group's rule in the request, and adds the rule if it is not
// there.
func (r *Reporter) leaseRule(m *events.LeaseRequest, g *counter.Group, fleet int64) int {
	if g.Strict.Build != r.leases.build {
		g.Strict.Build, g.Strict.Index = r.leases.build, len(m.Keys.Rules)
		m.Keys.Rules = append(m.Keys.Rules, g.Wire(fleet))
	}
	return g.Strict.Index
}

// share returns how many permits of a key a checker may ask for before they are needed: half of an
// equal share of the limit.
func (r *Reporter) share(g *counter.Group) int64 {
	return max(g.Limits.Load().Wire/(2*max(int64(r.host.Size.Load()), 1)), 1)
}

// scheduleReview schedules a review of a counter's permits, if it needs one.
func (r *Reporter) scheduleReview(c counter.Locked, p *permit.Account, fleet int64) {
	if due, ok := p.Schedule(c.Moment(fleet)); ok {
		r.leases.reviews.Push(due, c.Counter)
	}
}

// reviewsAtOnce bounds the counters reviewed in one step, and so how long the reporter's lock is
// held.
const reviewsAtOnce = 4096

// reviewPermits reviews the counters that are due: permits that no hit uses are returned, so that
// others can have them.
func (r *Reporter) reviewPermits(fleet int64) {
	for range reviewsAtOnce {
		if r.leases.reviews.Due() > fleet {
			return
		}
		r.review(r.leases.reviews.Pop(), fleet)
	}
}

func (r *Reporter) review(asking *counter.Counter, fleet int64) {
	c := asking.Lock()
	defer c.Unlock()
	if c.Is(counter.Dead) {
		return
	}
	p := c.Permits()
	c.CatchUp(fleet)
	p.Review(c.Moment(fleet), r.host.LeaseRoundTrip(), r.share(c.Group))
	c.AskIfNeeded(p, fleet)
	r.scheduleReview(c, p, fleet)
}
