package counter

import "github.com/offpath-io/offpath/pkg/events"

// remember puts a dead counter into the idle cache, if the checker has one.
func (g *Group) remember(c Locked) {
	g.Host.Idle.Put(events.KeyHash(g.Name, c.Key()), c.Counter)
}

// Recall returns the dead counter that the idle cache remembers for key; its Counter is nil if it
// remembers none. A dead counter does not change, so it needs no lock.
func (g *Group) Recall(key string) (dead Locked) {
	c, ok := g.Host.Idle.Get(events.KeyHash(g.Name, key))
	if !ok || c.Group != g || c.Key() != key {
		return Locked{}
	}
	return Locked{c}
}
