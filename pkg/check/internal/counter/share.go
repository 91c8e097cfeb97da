package counter

import (
	"github.com/offpath-io/offpath/pkg/check/internal/fleetstate"
	"github.com/offpath-io/offpath/pkg/events"
)

// The effect of the degradation levels and of the fleet's size on a counter.

// Freshness returns the freshness that decisions by these limits about a key are based on.
func (g *Group) Freshness(t *Limits, key string) fleetstate.Freshness {
	return t.freshness(g.Host.FreshnessOf(g.Name, key))
}

// freshness returns the counter's freshness: a key in the store's overflow is decided as in an
// outage.
func (c Locked) freshness(t *Limits) fleetstate.Freshness {
	if c.overflow {
		return t.freshness(fleetstate.Outage)
	}
	return c.Group.Freshness(t, c.Key())
}

// localShare is this checker's share of the room that a key had when nothing was pending. A hash
// spreads the rest of the division, so that with a limit of 3 a fleet of 8 admits 3 on average, not
// 0 or 8.
func (g *Group) localShare(key string, room int64) int64 {
	h, n := g.Host, g.Host.Checkers()
	share, rest := room/n, room%n
	hash := (events.KeyHash(g.Name, key) ^ h.Config.Epoch*0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9
	if int64(hash>>32)*n>>32 < rest {
		share++
	}
	return share
}

// isShared returns whether other checkers decide by counts for this group's keys, too. A single
// checker knows all hits, and under strict enforcement permits decide, not counts.
func (g *Group) isShared() bool { return g.Strict == nil && g.Host.Size.Load() > 1 }

// NoteDenied calls OnDenied with the number of denied decisions. key is the key as counters have
// it.
func (g *Group) NoteDenied(key string, decisions int64) {
	if f := g.Host.Config.OnDenied; f != nil {
		f(g.Name, key, decisions)
	}
}

// NoteRevived lists a group that has been released and is used again. It is called after a counter
// was made, or an overflow counted.
func (g *Group) NoteRevived() {
	if g.Released.Load() {
		g.Host.Revived.Add(g)
	}
}
