package envoyquota

import (
	"time"

	quotapb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
)

const (
	// tick is how often an Envoy's buckets are looked after.
	tick = 250 * time.Millisecond
	// heldOn is for how long an assignment is held beyond its time to live: Envoy starts that when it hears of it.
	heldOn = time.Second
)

// tell makes an assignment the one that an Envoy is to be told.
func (d *desk) tell(b *bucket, a assignment, anew bool) {
	b.want = a
	if b.anew = b.anew || anew; b.anew || a != b.told {
		b.change()
	}
}

func (b *bucket) change() {
	if !b.changed {
		b.changed = true
		b.client.changed = append(b.client.changed, b)
	}
}

// signal wakes who sends to an Envoy, if there is something to send.
func (c *client) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// actions are what an Envoy is to be told next, about so many buckets at most; nil if there is nothing.
func (d *desk) actions(now int64, c *client, atMost int) (list []*quotapb.RateLimitQuotaResponse_BucketAction) {
	d.mu.Lock()
	defer d.mu.Unlock()
	gone := min(atMost, len(c.away))
	for _, id := range c.away[:gone] {
		list = append(list, abandon(id))
	}
	c.away = append(c.away[:0], c.away[gone:]...)
	n := min(atMost-gone, len(c.changed))
	for _, b := range c.changed[:n] {
		b.changed = false
		switch {
		case b.dropped:
			list = append(list, abandon(b.id))
			continue
		case b.want == b.told && !b.anew && !b.renew:
			continue
		}
		list = b.want.actions(list, b.id, b.told, b.anew, d.o.TTL)
		b.told, b.anew, b.renew = b.want, false, false
		b.until = now + int64(d.o.TTL)
		for _, p := range b.parts {
			p.ledger.Keep(p.holder, b.until+int64(heldOn))
		}
	}
	c.changed = append(c.changed[:0], c.changed[n:]...)
	if len(c.changed) > 0 || len(c.away) > 0 {
		c.signal()
	}
	return list
}

// look looks after an Envoy's buckets: call it every tick.
func (d *desk) look(now int64, c *client) {
	d.follow(now, c)
	d.mu.Lock()
	defer d.mu.Unlock()
	left := c.spreading[:0]
	for _, b := range c.spreading {
		d.countSlice(now, b)
		if b.spreads = b.later > 0 && !b.dropped; b.spreads {
			left = append(left, b)
		}
	}
	clear(c.spreading[len(left):])
	c.spreading = left
	if now >= c.lookAt {
		c.lookAt = now + int64(time.Second)
		for _, b := range c.buckets {
			d.lookAt(now, b)
		}
	}
	if len(c.changed) > 0 {
		c.signal()
	}
}

// lookAt looks whether a bucket is idle, or what it was assigned is about to end.
func (d *desk) lookAt(now int64, b *bucket) {
	switch {
	case now-b.usedAt >= int64(d.o.IdleAfter):
		d.drop(now, b, true)
		b.change()
	case b.comes && b.told.kind == denyAll:
		d.decide(now, b) // those who have too much may have been found out meanwhile
	case b.told.kind != nothing && b.until-now <= int64(d.o.TTL/2):
		b.renew = true
		b.change()
	}
}
