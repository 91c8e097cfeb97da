package counter

import (
	"github.com/offpath-io/offpath/pkg/check/internal/fleetstate"
	"github.com/offpath-io/offpath/pkg/events"
)

// What the degradation levels and the size of the fleet mean for a counter.

// Freshness is what decisions by these limits are based on.
func (g *Group) Freshness(t *Limits) fleetstate.Freshness {
	return t.freshness(g.Host.Freshness())
}

// freshness is that of a counter: in the store's overflow a key is decided as all are in an outage.
func (c Locked) freshness(t *Limits) fleetstate.Freshness {
	if c.overflow {
		return t.freshness(fleetstate.Outage)
	}
	return c.Group.Freshness(t)
}

// localShare is this checker's share of the room that a key had when nothing was pending. What
// cannot be divided evenly is spread by a hash, so that with a limit of 3 a fleet of 8 lets 3 pass
// on average, and neither 0 nor 8.
func (g *Group) localShare(key string, room int64) int64 {
	h, n := g.Host, g.Host.Checkers()
	share, rest := room/n, room%n
	hash := (events.KeyHash(g.Name, key) ^ h.Config.Epoch*0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9
	if int64(hash>>32)*n>>32 < rest {
		share++
	}
	return share
}

// isShared says whether others decide for this limiter's keys too, by counts: a checker alone knows
// everything, and permits are nobody else's.
func (g *Group) isShared() bool { return g.Strict == nil && g.Host.Size.Load() > 1 }

// NoteDenied tells who wants to know that so many decisions about a key, as counters have it, were
// denials.
func (g *Group) NoteDenied(key string, decisions int64) {
	if f := g.Host.Config.OnDenied; f != nil {
		f(g.Name, key, decisions)
	}
}

// NoteRevived lets a limiter that has been let go be seen again. Whoever calls it has made a
// counter, or counted an overflow.
func (g *Group) NoteRevived() {
	if g.Away.Load() {
		g.Host.Revived.Add(g)
	}
}
