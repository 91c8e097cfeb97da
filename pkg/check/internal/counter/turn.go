package counter

import "github.com/offpath-io/offpath/pkg/check/internal/level"

// ReservedHits are the hits that were charged to one counter for a later turn, so that they can be
// given back.
type ReservedHits struct {
	Counter      *Counter
	cost, bucket int64
	level        level.Noted
}

// Reserved returns the hits that were charged.
func (h *Hit) Reserved() ReservedHits {
	return ReservedHits{h.Counter.Counter, h.Charged, h.Bucket, h.level}
}

// IsOpen returns whether the hits can be given back. If so, the counter is current.
func (r *ReservedHits) IsOpen(c Locked, now int64) bool {
	if c.Is(Dead) {
		return false
	}
	c.CatchUp(now)
	i := c.Newest - r.bucket
	if i < 0 || i >= int64(c.Group.Live) {
		return false
	}
	// Hits of one bucket are interchangeable: as long as enough of them are pending, these can be
	// given back instead. Without a link, no hit is ever reported.
	return c.Group.Host.Config.Local || c.Pending()[i] >= r.cost
}

// GiveBack takes the hits, which are open, off their bucket.
func (r *ReservedHits) GiveBack(c Locked) {
	g, i := c.Group, c.Newest-r.bucket
	pending := c.Pending()
	pending[i] -= min(r.cost, pending[i])
	c.Totals()[i] = max(c.Totals()[i]-r.cost, 0) // a settlement may have given some back before
	if permits := c.Permits(); permits != nil {
		permits.Spend(r.bucket, -r.cost)
	}
	if l := c.level(); l != nil {
		l.GiveBack(&g.Limits.Load().Drain, r.level, i, r.cost)
	}
	g.Cancelled.Add(r.cost)
}
