package counter

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/forecast"
	"github.com/offpath-io/offpath/pkg/window"
)

// Init initializes the group of a rule. It is called once, before anything else except setting
// Limits.
func (g *Group) Init(h *Host, name string, shape window.Shape, isStrict bool) {
	g.Host, g.Name, g.Shape, g.salt = h, name, shape, rand.Uint64()
	g.Live = bucketsOf(shape)
	g.FullRounds = forecast.FullIntervals(time.Duration(shape.Length))
	if isStrict {
		g.Strict = new(strict)
		g.Strict.Forgotten.Store(math.MinInt64)
	}
}

// Admit counts decisions that allowed, and the hits that they charged.
func (c *tally) Admit(decisions, hits int64) {
	if decisions == 0 {
		return
	}
	c.Allowed.Add(decisions)
	if hits != decisions {
		c.Further.Add(hits - decisions)
	}
}

// addLate counts pending hits that have left every window: they are reported as late, by rule.
func (g *Group) addLate(hits int64) {
	if g.Late.Add(hits) == hits { // otherwise the group is in the list already
		g.Host.Lates.Add(g)
	}
}

// ID returns the group's ID.
func (g *Group) ID() ID { return ID{g.Name, g.Shape, g.Strict != nil} }

// Now returns the fleet's time for a check of the group's counters.
func (g *Group) Now() int64 { return g.Host.Time(g.Strict != nil) }
