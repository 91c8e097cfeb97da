package check

import (
	"sync/atomic"
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/permit"
	"github.com/offpath-io/offpath/pkg/check/internal/queue"
	"github.com/offpath-io/offpath/pkg/events"
)

// leases is how permits come and go: counters that want some, or have some to give back, gather per
// shard, and travel in one request at a time. A request that is not answered is made anew, from
// what is the case by then; all its numbers are absolute, so it does no harm if the first one
// arrives after all. the reporter's lock guards all but the atomic fields.
type leases struct {
	asks     askStack
	trip     atomic.Int64         // what a round trip takes, smoothed; 0 before the first
	waiting  atomic.Int64         // callers of Acquire
	lines    []line               // by shard
	homeless []*counter           // counters that ask while the shards are not known
	reviews  queue.Heap[*counter] // counters that hold permits, by when to review them
	build    uint64               // numbers the requests, to give rules their index
	stats    leaseStats
}

// leaseStats are the counters kept under the reporter's lock.
type leaseStats struct {
	sent, repeated, answered, refused int64
}

// line is one shard's queue of counters that ask, and the request on its way.
type line struct {
	queue     queue.FIFO[*counter]
	flight    *inFlightLease
	notBefore int64         // own time of the next request
	wait      time.Duration // for the next answer; 0: the usual
}

// inFlightLease is a request on its way.
type inFlightLease struct {
	sequence   uint64
	cells      []*counter // in the order of the request's keys
	newest     []int64    // per key, the bucket that ages count from
	sent       int64      // own time
	retryAt    int64
	toAny      bool   // as of a report's flight
	generation uint64 // the same
}

const (
	// leaseFloor is the least time between two requests of a shard.
	leaseFloor = time.Millisecond
	// usualTrip stands for the round trip until the first has been measured.
	usualTrip = 2 * time.Millisecond
	// leastLeaseWait is how long an answer is waited for at least.
	leastLeaseWait = 25 * time.Millisecond
	// never is later than anything.
	never = int64(1<<63 - 1)
)

// roundTrip is about what a request takes.
func (l *leases) roundTrip() time.Duration {
	if t := l.trip.Load(); t != 0 {
		return time.Duration(t)
	}
	return usualTrip
}

// soon is when asking again may help, if nothing better is known.
func (l *leases) soon() time.Duration { return l.roundTrip() + 2*time.Duration(leaseFloor) }

// askStack holds counters that ask, newest first. Any goroutine pushes.
type askStack struct{ head atomic.Pointer[counter] }

func (s *askStack) push(c *counter) {
	for {
		head := s.head.Load()
		c.ofStrict().next = head
		if s.head.CompareAndSwap(head, c) {
			return
		}
	}
}

// stepLeases does what is due at own time now, and returns when something is due again.
func (b *reporter) stepLeases(now int64) (next int64) {
	if !b.checker.everStrict.Load() {
		return never
	}
	b.reviewPermits(b.checker.clock.Fleet(now))
	b.collectAsks()
	next = never
	for i := range b.leases.lines {
		x := &b.leases.lines[i]
		if x.flight != nil && now >= x.flight.retryAt {
			b.leases.stats.repeated++
			b.shards[i].aggregator = 0
			x.again()
		}
		if x.flight == nil && x.queue.Len() > 0 && now >= x.notBefore {
			b.request(uint32(i), x, now)
		}
		switch {
		case x.flight != nil:
			next = min(next, x.flight.retryAt)
		case x.queue.Len() > 0:
			next = min(next, x.notBefore)
		}
	}
	if due := b.leases.reviews.Due(); due != never {
		next = min(next, b.checker.clock.Own(due))
	}
	return next
}

// collectAsks takes every counter off the stack and puts it into its shard's queue.
func (b *reporter) collectAsks() {
	if b.leases.asks.head.Load() == nil {
		return
	}
	for c := b.leases.asks.head.Swap(nil); c != nil; {
		s := c.ofStrict()
		next := s.next
		s.next = nil
		b.enqueueAsk(c)
		c = next
	}
}

func (b *reporter) enqueueAsk(c *counter) {
	if len(b.leases.lines) == 0 {
		b.leases.homeless = append(b.leases.homeless, c)
		return
	}
	i := events.Shard(c.limiter.name, c.key(), uint32(len(b.leases.lines)))
	b.leases.lines[i].queue.Push(c)
}

// again puts the counters of a request that has not been answered back into the queue.
func (x *line) again() {
	for _, c := range x.flight.cells {
		x.queue.Push(c)
	}
	x.flight = nil
}

// request makes a request of the counters that have waited longest, and sends it.
func (b *reporter) request(number uint32, x *line, now int64) {
	fleet, s := b.checker.clock.Fleet(now), &b.shards[number]
	b.leases.build++
	b.sequence++
	f := &inFlightLease{sequence: b.sequence, sent: now, generation: s.generation}
	m := &events.LeaseRequest{
		Epoch: b.checker.o.Epoch, Shard: number, Shards: uint32(len(b.shards)),
		Sequence: f.sequence, Keys: new(events.Table),
	}
	for buckets := 0; x.queue.Len() > 0 && len(f.cells) < min(b.checker.o.Tuning.ReportKeys, events.MaxLeaseKeys) &&
		len(m.Keys.KeyText)+len(m.Keys.Rules)*(events.MaxRuleName+ruleText) < reportText; {
		// A counter has leases of its live buckets at the most, and of the near future.
		buckets += x.queue.Peek().limiter.live + 2
		if buckets > events.MaxLeaseBuckets && len(f.cells) > 0 {
			break
		}
		b.addAsk(m, f, x.queue.Pop(), fleet)
	}
	if len(f.cells) == 0 {
		return
	}
	payload, err := events.Append(nil, m)
	if err != nil {
		panic("check: " + err.Error()) // unreachable: the message has no field that can fail
	}
	x.flight, x.notBefore = f, now+int64(leaseFloor)
	most := mostWaits * b.checker.o.Tuning.ReportTimeout
	x.wait = min(max(x.wait, 4*b.leases.roundTrip(), leastLeaseWait), most)
	f.retryAt = now + int64(x.wait)
	x.wait = min(2*x.wait, most)
	f.toAny = s.aggregator == 0
	b.leases.stats.sent++
	if err := b.checker.o.Link.Lease(number, s.aggregator, payload); err != nil {
		b.problem = err.Error()
	}
}

// addAsk adds what a counter has to say to a request.
func (b *reporter) addAsk(m *events.LeaseRequest, f *inFlightLease, c *counter, fleet int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l, p := c.limiter, c.permits()
	c.withdraw(fleet)
	c.rotate(fleet)
	limit, trip := l.limits.Load().wire, b.leases.roundTrip()
	r, ok := p.Request(c.moment(fleet), limit, trip, b.share(l), b.draining)
	if !ok {
		b.scheduleReview(c, p, fleet)
		return
	}
	rule := b.leaseRule(m, l, fleet)
	newest := m.Keys.Rules[rule].Newest
	m.AddKey(uint32(rule), c.key(), newest-r.Bucket, events.Count(r.Known), events.Count(r.Want))
	p.SendReturns(func(bucket, returned int64) {
		m.AddReturn(newest-bucket, events.Count(returned))
	})
	f.cells = append(f.cells, c)
	f.newest = append(f.newest, newest)
}

// leaseRule returns the index of the limiter's rule in the request, adding it if need be.
func (b *reporter) leaseRule(m *events.LeaseRequest, l *Limiter, fleet int64) int {
	if l.strict.build != b.leases.build {
		l.strict.build, l.strict.index = b.leases.build, len(m.Keys.Rules)
		m.Keys.Rules = append(m.Keys.Rules, l.wire(fleet))
	}
	return l.strict.index
}

// share is how many permits of a key a checker may ask for before they are needed: half of what
// each would have if all had as many.
func (b *reporter) share(l *Limiter) int64 {
	return max(l.limits.Load().wire/(2*max(int64(b.checker.fleet.Load()), 1)), 1)
}

// scheduleReview lets a counter's permits be reviewed, if there is a reason. Its lock is held, it
// is current.
func (b *reporter) scheduleReview(c *counter, p *permit.Account, fleet int64) {
	if due, ok := p.Schedule(c.moment(fleet)); ok {
		b.leases.reviews.Push(due, c)
	}
}

// reviewsAtOnce bounds the counters reviewed in one step, and so how long the reporter's lock is
// held.
const reviewsAtOnce = 4096

// reviewPermits reviews the counters whose time has come: permits that no hit uses are given back,
// so that others can have them.
func (b *reporter) reviewPermits(fleet int64) {
	for range reviewsAtOnce {
		if b.leases.reviews.Due() > fleet {
			return
		}
		b.review(b.leases.reviews.Pop(), fleet)
	}
}

func (b *reporter) review(c *counter, fleet int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.is(dead) {
		return
	}
	p := c.permits()
	c.withdraw(fleet)
	c.rotate(fleet)
	p.Review(c.moment(fleet), b.leases.roundTrip(), b.share(c.limiter))
	c.askIfNeeded(p, fleet)
	b.scheduleReview(c, p, fleet)
}
