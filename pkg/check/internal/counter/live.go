package counter

// A counter stays in the table as long as it has pending hits, hits in flight, or a block. After
// that it may be evicted (eviction.go): for good once its window is empty; to the idle cache when
// its key has been silent for silentKey, or when the table needs room. The cache may drop what it
// holds at any time. Then the key's count is less exact until its next report is answered, but no
// hit is lost.

// FindOrMake returns the counter of key, and makes it if there is none; nil if there is no room for
// another one.
func (g *Group) FindOrMake(now int64, key string) *Counter {
	h := g.Host
	if c := h.Table.Load(g, key); c != nil {
		return c
	}
	if h.LiveKeys.Load() >= h.Config.MaxLiveKeys {
		return nil
	}
	return g.make(now, key)
}

// make adds a counter for key, with the counts that the idle cache remembers, unless another
// goroutine was faster.
func (g *Group) make(now int64, key string) *Counter {
	h := g.Host
	old := g.Recall(key)
	c, loaded := h.Table.loadOrMake(g, key, func() *Counter {
		if h.LiveKeys.Add(1) > h.Config.MaxLiveKeys {
			h.LiveKeys.Add(-1)
			return nil
		}
		g.Counters.Add(1)
		c := New(g, key, now)
		if old.Counter != nil {
			c.Learn(old)
		}
		// Every new counter passes through the dirty queue once: from there it gets into the queue
		// of counters that may leave, even if all its checks are denied.
		c.State, c.Stripe = c.State|queued, uint8(h.stripe.Add(1)%stripes)
		c.Touch(now)
		return c.Counter
	})
	if c != nil && !loaded {
		h.dirty[c.Stripe].push(c)
		g.NoteRevived()
	}
	if h.Crowded() {
		h.WakeUp()
	}
	return c
}

// Learn copies the counts of a counter that has left the table, and so does not change any more.
func (c Locked) Learn(old Locked) {
	c.Newest, c.generation, c.State, c.overflow = old.Newest, old.generation, c.State|old.State&Informed, old.overflow
	copy(c.Totals(), old.Totals())
	if r := old.refunded(); r != nil {
		c.mayRefund()
		copy(c.more.refunded, r)
	}
	if l := old.level(); l != nil {
		c.level().Copy(l)
	}
}

// drop removes a counter from the table; the idle cache remembers it if it has a count. None of its
// hits is pending or in flight.
func (g *Group) drop(c Locked) {
	c.State |= Dead
	c.forgetTraffic()
	p := c.Permits()
	if p != nil { // before another counter can be made for the key
		g.Strict.leave(p)
	}
	g.Host.Table.remove(c.Counter)
	g.Host.LiveKeys.Add(-1)
	if p == nil && !c.isEmpty() && !g.Retired.Load() {
		g.remember(c)
	}
	g.Counters.Add(-1)
}

// HasRoomFor returns whether a key has a counter, or could get one.
func (g *Group) HasRoomFor(key string) bool {
	h := g.Host
	return h.Table.Load(g, key) != nil || h.LiveKeys.Load() < h.Config.MaxLiveKeys
}
