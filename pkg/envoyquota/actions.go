package envoyquota

import "time"

const (
	// tick is the interval of maintain.
	tick = 250 * time.Millisecond
	// grace is how long an assignment stays reserved beyond its time to live, which begins when
	// Envoy receives it.
	grace = time.Second
)

// setAssignment sets the assignment to be sent to an Envoy.
func (d *distributor) setAssignment(b *bucket, a assignment, refill bool) {
	b.want = a
	if b.refill = b.refill || refill; b.refill || a != b.sent {
		b.change()
	}
}

func (b *bucket) change() {
	if !b.changed {
		b.changed = true
		b.client.changed = append(b.client.changed, b)
	}
}

// signal wakes the sender to an Envoy.
func (c *client) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// actions returns the next actions for an Envoy, for at most so many buckets; nil for none.
func (d *distributor) actions(now int64, c *client, atMost int) (list []*action) {
	d.mu.Lock()
	defer d.mu.Unlock()
	gone := min(atMost, len(c.abandoned))
	for _, id := range c.abandoned[:gone] {
		list = append(list, abandonAction(id))
	}
	c.abandoned = append(c.abandoned[:0], c.abandoned[gone:]...)
	n := min(atMost-gone, len(c.changed))
	for _, b := range c.changed[:n] {
		b.changed = false
		switch {
		case b.dropped:
			list = append(list, abandonAction(b.id))
			continue
		case b.want == b.sent && !b.refill && !b.renew:
			continue
		}
		list = b.want.actions(list, b.id, b.sent, b.refill, d.o.TTL)
		b.sent, b.refill, b.renew = b.want, false, false
		b.until = now + int64(d.o.TTL)
		for _, p := range b.shares {
			p.ledger.Keep(p.holder, b.until+int64(grace))
		}
	}
	c.changed = append(c.changed[:0], c.changed[n:]...)
	if len(c.changed) > 0 || len(c.abandoned) > 0 {
		c.signal()
	}
	return list
}

// maintain updates an Envoy's buckets. It must be called every tick.
func (d *distributor) maintain(now int64, c *client) {
	d.refresh(now, c)
	d.mu.Lock()
	defer d.mu.Unlock()
	left := c.spreading[:0]
	for _, b := range c.spreading {
		d.countSlice(now, b)
		if b.isSpreading = b.pending > 0 && !b.dropped; b.isSpreading {
			left = append(left, b)
		}
	}
	clear(c.spreading[len(left):])
	c.spreading = left
	if now >= c.maintainAt {
		c.maintainAt = now + int64(time.Second)
		for _, b := range c.buckets {
			d.maintainBucket(now, b)
		}
	}
	if len(c.changed) > 0 {
		c.signal()
	}
}

// maintainBucket drops an idle bucket, and renews an assignment before it ends.
func (d *distributor) maintainBucket(now int64, b *bucket) {
	switch {
	case now-b.usedAt >= int64(d.o.IdleAfter):
		d.drop(now, b, true)
		b.change()
	case b.joining && b.sent.kind == denyAll:
		d.decide(now, b) // those with too large a share may be known by now
	case b.sent.kind != nothing && b.until-now <= int64(d.o.TTL/2):
		b.renew = true
		b.change()
	}
}
