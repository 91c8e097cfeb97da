package check

import (
	"sync/atomic"

	"github.com/offpath-io/offpath/pkg/check/internal/ruleset"
)

// stats returns a limiter's counts, without those that keepStats has kept. The reporter is locked.
func (c *Checker) stats(l *ruleset.Limiter) RuleStats { return c.readStats(l, (*atomic.Int64).Load) }

// takeStats returns a limiter's counts, for keepStats, and resets them.
func (c *Checker) takeStats(l *ruleset.Limiter) RuleStats {
	s := c.readStats(l, func(n *atomic.Int64) int64 { return n.Swap(0) })
	l.Group.Reports.Answered, l.Group.Reports.Lost = 0, 0
	return s
}

func (c *Checker) readStats(l *ruleset.Limiter, read func(*atomic.Int64) int64) RuleStats {
	g := &l.Group
	r := RuleStats{
		Answered: g.Reports.Answered, InFlight: g.Reports.InFlight, Lost: g.Reports.Lost,
		Overflow: read(&l.Overflow), BadCosts: read(&l.BadCosts),
		Cancelled: read(&g.Cancelled), FalseDenials: read(&g.FalseDenials),
	}
	for i := range g.Tallies {
		n := &g.Tallies[i]
		allowed := read(&n.Allowed)
		r.Allowed += allowed
		r.Denied += read(&n.Denied)
		r.Charged += allowed + read(&n.Further)
	}
	if c.o.Link == nil { // nobody to report to
		r.Answered = r.Charged - r.Overflow - r.Cancelled
	}
	r.Pending = r.Charged - r.Answered - r.InFlight - r.Overflow - r.Lost - r.Cancelled
	return r
}
