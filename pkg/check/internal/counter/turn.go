package counter

import "github.com/offpath-io/offpath/pkg/check/internal/level"

// Charge is what was charged to one counter for a turn that is to come, so that it can be given
// back.
type Charge struct {
	Counter      *Counter
	cost, bucket int64
	level        level.Charge
}

// Reserved returns what was charged for a hit.
func (h *Hit) Reserved() Charge {
	return Charge{h.Counter.Counter, h.Charged, h.Bucket, h.level}
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
	c.Totals()[i] = max(c.Totals()[i]-p.cost, 0) // a settlement may have given some back before
	if permits := c.Permits(); permits != nil {
		permits.Spend(p.bucket, -p.cost)
	}
	if l := c.level(); l != nil {
		l.GiveBack(&g.Limits.Load().Drain, p.level, i, p.cost)
	}
	g.Cancelled.Add(p.cost)
}
