package counter

// Charge is what was charged to one counter for a turn that is to come, so that it can be given
// back.
type Charge struct {
	Counter      *Counter
	cost, bucket int64
	turn         int64 // of the counter, after it
	after        int64 // own hits of the bucket of a token bucket's counter, before it
	gap          int64 // by which the counter's turn came later for it
}

// Reserved returns what was charged for a hit.
func (h *Hit) Reserved() Charge {
	c := h.Counter
	p := Charge{Counter: c.Counter, cost: h.Charged, bucket: h.Bucket}
	if d := c.levelState(); d != nil {
		p.turn, p.gap, p.after = d.turn, c.gap(h.By, h.Charged), d.dates.Added()-h.Charged
	}
	return p
}

// IsOpen says whether the hits of a charge can be given back. Its counter is current then.
func (p *Charge) IsOpen(c Locked, now int64) bool {
	if c.Is(Dead) {
		return false
	}
	c.CatchUp(now)
	i := c.Newest - p.bucket
	if i < 0 || i >= int64(c.Group.Live) {
		return false
	}
	// Hits of one bucket are all the same: as long as one of them is pending, it may go in this
	// one's charge. Without a link, nobody is told of any.
	return c.Group.Host.Config.Local || c.Pending()[i] >= p.cost
}

// GiveBack takes the hits of an open charge off their bucket.
func (p *Charge) GiveBack(c Locked) {
	g, i := c.Group, c.Newest-p.bucket
	pending := c.Pending()
	pending[i] -= min(p.cost, pending[i])
	c.Totals()[i] -= p.cost
	c.undate(g.Limits.Load(), i, p.cost, p.after)
	if permits := c.Permits(); permits != nil {
		permits.Spend(p.bucket, -p.cost)
	}
	if d := c.levelState(); d != nil && d.turn == p.turn { // nobody has come after it
		d.turn -= p.gap
	}
	g.Cancelled.Add(p.cost)
}
