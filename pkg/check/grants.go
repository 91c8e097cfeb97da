package check

import (
	"fmt"
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/permit"
	"github.com/offpath-io/offpath/pkg/events"
)

// granted takes in the answer to a lease request.
func (b *reporter) granted(m *events.Grant, now int64) error {
	if m.Epoch != b.checker.o.Epoch || int64(m.Shard) >= int64(len(b.leases.lines)) {
		shards := len(b.leases.lines)
		return fmt.Errorf("grant: for epoch %x, shard %d of %d", m.Epoch, m.Shard, shards)
	}
	b.noteContact(now)
	x := &b.leases.lines[m.Shard]
	f := x.flight
	if f == nil || f.sequence != m.Sequence {
		b.stats.ignored++
		return nil
	}
	if m.Error != "" {
		return b.leaseRefused(x, m, now)
	}
	if len(m.Age) != len(f.cells) {
		return fmt.Errorf("grant: permits of %d keys for %d", len(m.Age), len(f.cells))
	}
	b.shards[m.Shard].aggregator = m.Aggregator
	b.leases.stats.answered++
	b.leases.noteTrip(now - f.sent)
	x.flight, x.wait = nil, 0
	current := b.follow(&b.shards[m.Shard], m.Generation, f.generation)
	fleet := b.checker.clock.Fleet(now)
	for i, c := range f.cells {
		if !current { // of a store that has lost its data since: only that it came counts
			b.take(c, nil, fleet)
			continue
		}
		wait := min(m.WaitMs[i], uint64(longestWait.Milliseconds()))
		b.take(c, &permit.Grant{
			Bucket: f.newest[i] - m.Age[i], Granted: int64(m.Granted[i]), Named: int64(m.Spoken[i]),
			Wait: time.Duration(wait) * time.Millisecond,
		}, fleet)
	}
	b.stepLeases(now)
	b.checker.wakeUp() // what is due next may be sooner than it was
	return nil
}

// longestWait is more than any wait there is.
const longestWait = 2 * events.MaxWindow

// leaseRefused takes in that an aggregator will not answer a request. The number of shards may have
// changed, so it asks for that; the request is made anew after the usual time.
func (b *reporter) leaseRefused(x *line, m *events.Grant, now int64) error {
	b.leases.stats.refused++
	x.notBefore = x.flight.retryAt
	b.shards[m.Shard].aggregator = 0
	x.again()
	b.nextHello = now
	return fmt.Errorf("grant: lease request refused: %s", m.Error)
}

func (l *leases) noteTrip(took int64) {
	old := l.trip.Load()
	if old == 0 {
		old = took
	}
	l.trip.Store(max(old+(took-old)/8, 1))
}

// take takes in what an answer says of a counter; nil if that does not count.
func (b *reporter) take(c *counter, g *permit.Grant, fleet int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.permits()
	c.withdraw(fleet)
	c.rotate(fleet)
	p.Answered(c.moment(fleet), g, c.limiter.limits.Load().wire, b.draining)
	c.askIfNeeded(p, fleet)
	b.scheduleReview(c, p, fleet)
}

// reshardLeases gives every shard its queue. If there were others before, the store was made anew,
// and what the old one had granted is not spent any more.
func (b *reporter) reshardLeases() {
	old := b.leases.lines
	b.leases.lines = make([]line, len(b.shards))
	for i := range old {
		x := &old[i]
		if x.flight != nil {
			x.again()
		}
		for x.queue.Len() > 0 {
			b.enqueueAsk(x.queue.Pop())
		}
	}
	for _, c := range b.leases.homeless {
		b.enqueueAsk(c)
	}
	b.leases.homeless = nil
	if len(old) > 0 {
		b.giveBackAll()
	}
}

// giveBackAll ends all leases, and returns what is left of them.
func (b *reporter) giveBackAll() {
	if !b.checker.everStrict.Load() {
		return
	}
	b.checker.table.each(func(c *counter) {
		p := c.permits()
		if p == nil {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.withdraw(0)
		p.End()
		if p.Owes() {
			c.ask(p)
		}
	})
}

// holdsPermits says whether there are, or may be, permits that the store has not got back. The
// counter's lock is not held.
func (c *counter) holdsPermits() bool {
	p := c.permits()
	if p == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return p.IsOpen()
}
