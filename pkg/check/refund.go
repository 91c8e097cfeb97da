package check

// What settlements have given back of a key's hits is a second count per bucket beside its totals,
// which only grows too, and comes with messages as they do: what counts is their difference. Most
// counters have none.
//
// A limiter asks for refunds along with its reports from the time on when it is known that there
// may be some: a receipt of its hits has been made here, or a message says so.

// The kinds of hits that a message tells of, as events.RowKind has them.
const (
	ofAdmitted = iota
	ofDenied
	ofRefunded
	kinds
)

// net returns what counts of each bucket, newest first: the totals less what was given back. It is
// good until the counter changes, and only to be read. The lock is held.
func (c *counter) net() []int64 {
	if c.more == nil || c.more.refunded == nil {
		return c.totals()
	}
	net := c.more.net[:0]
	for i, n := range c.totals() {
		net = append(net, max(n-c.more.refunded[i], 0))
	}
	return net
}

// refunded returns what was given back per bucket; nil if that is nothing. The lock is held.
func (c *counter) refunded() []int64 {
	if c.more == nil {
		return nil
	}
	return c.more.refunded
}

// mayRefund gives the counter room for refunds. The lock is held.
func (c *counter) mayRefund() {
	if c.more == nil {
		c.more = &more{}
	}
	if c.more.refunded == nil {
		live := c.limiter.live
		both := make([]int64, 2*live)
		c.more.refunded, c.more.net = both[:live:live], both[live:]
	}
}

// mergeRefunds raises a counter's refunds to what a message says, and returns whether that was
// news. The lock is held and the counter current.
func (t totals) mergeRefunds(c *counter) (news bool) {
	for i, age := range t.age {
		at, n := c.newest-(t.newest-age), int64(t.value[i])
		if at < 0 || at >= int64(c.limiter.live) || n == 0 {
			continue
		}
		c.mayRefund()
		if n > c.more.refunded[at] {
			c.more.refunded[at] = n
			news = true
		}
	}
	return news
}

// observeRefunds takes in a message's refunds. Room that they give can be used at once: what kept
// others out was withdrawn when the counter was settled, and permits are asked for anew. The lock
// is held, the counter current.
func (c *counter) observeRefunds(w update) {
	l := c.limiter
	if len(w.refunded.age) > 0 && !l.refunds.Load() { // also of buckets that the counter has let go
		l.refunds.Store(true)
	}
	if !w.refunded.mergeRefunds(c) {
		return
	}
	c.bringTurnForward(l.limits.Load(), c.rotate(w.fleet))
	if p := c.permits(); p != nil {
		p.Hasten()
		c.askIfNeeded(p, w.fleet)
	}
}

// hidesRefunds says whether a message tells of admitted hits only, and some of the rule's have been
// given back: how many hits there are is then at most what it says.
func (c *counter) hidesRefunds(w update) bool {
	return w.refunded.newest == 0 && c.limiter.refunds.Load()
}

// askForRefunds lets the next report tell what was given back, if only by asking. The lock is held.
func (c *counter) askForRefunds() {
	if c.more == nil {
		c.more = &more{}
	}
	c.more.asks = true
	c.endDeferral()
	c.queue()
}

// asksForRefunds says whether the counter is to be told of refunds by the report in the making,
// hits or not. The lock is held.
func (c *counter) asksForRefunds() bool {
	if c.more == nil || !c.more.asks {
		return false
	}
	c.more.asks = false
	return true
}

// hint takes in that hits of some rules of the report in flight have been refunded: all of its keys
// of these are asked for again.
func (b *reporter) hint(f *inFlightReport, rules []uint32) {
	for _, rule := range rules {
		if int64(rule) >= int64(len(f.hits)) {
			continue
		}
		l := f.hits[rule].limiter
		if l == nil || l.refunds.Swap(true) {
			continue
		}
		for _, r := range f.rows {
			if c := r.cell; c.limiter == l && r.kind == ofAdmitted {
				c.mu.Lock()
				if !c.is(dead) {
					c.askForRefunds()
				}
				c.mu.Unlock()
			}
		}
		b.hurry()
	}
}
