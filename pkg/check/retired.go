package check

import (
	"weak"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/check/internal/ruleset"
	"github.com/offpath-io/offpath/pkg/events"
)

// A limiter whose rule is no longer in force has *retired*: what it holds is still reported,
// answered and given back. When nothing is left it is *released*, and only a weak pointer to it is
// kept. If a caller still has it and uses it, it is *revived*: it is retired again. If its rule
// comes back, it is the rule's limiter again, since there must never be two groups with the same
// ID.

// findRetired returns limiters of earlier rulesets by their IDs, nil for an ID without one.
func (c *Checker) findRetired(ids []counter.ID) []*ruleset.Limiter {
	c.reporter.Lock()
	defer c.reporter.Unlock()
	found := make([]*ruleset.Limiter, len(ids))
	for i, id := range ids {
		if found[i] = c.retirees.at[id]; found[i] == nil {
			found[i] = c.retirees.released[id].limiter.Value()
		}
	}
	return found
}

// retire marks a limiter as retired: its rule is no longer in force.
func (c *Checker) retire(l *ruleset.Limiter) {
	l.Group.Retired.Store(true)
	if c.retirees.at == nil {
		c.retirees.at = make(map[counter.ID]*ruleset.Limiter)
		c.retirees.listed = make(map[*ruleset.Limiter]bool)
	}
	if !c.retirees.listed[l] {
		c.retirees.retired = append(c.retirees.retired, l)
		c.retirees.listed[l] = true
	}
	c.retirees.at[l.Group.ID()] = l
}

// comeBack marks a limiter as in force, maybe again.
func (c *Checker) comeBack(l *ruleset.Limiter) {
	id := l.Group.ID()
	g, known := c.retirees.released[id]
	switch {
	case l.Group.Retired.Swap(false):
		l.Group.Released.Store(false)
		delete(c.retirees.at, id)
	case known && l.Group.Strict != nil: // a new one, in place of one that has been collected
		l.Group.Strict.Forgotten.Store(max(l.Group.Strict.Forgotten.Load(), g.forgotten))
	}
	delete(c.retirees.released, id)
}

// retiredAtOnce is how many retired limiters a flush looks at, in turn.
const retiredAtOnce = 64

// releaseRetired releases retired limiters that hold nothing any more, and takes those back that
// hold something again.
func (c *Checker) releaseRetired(fleet int64) {
	c.takeRevived()
	f := &c.retirees
	for range min(len(f.retired), retiredAtOnce) {
		l := f.retired[0]
		f.retired[0] = nil
		f.retired = f.retired[1:]
		if l.Group.Retired.Load() && !l.ReleaseLocked() {
			f.retired = append(f.retired, l)
			continue
		}
		delete(f.listed, l)
		if !l.Group.Retired.Load() { // its rule is in force again
			continue
		}
		c.keepStats(l)
		delete(f.at, l.Group.ID())
		if f.released == nil {
			f.released = make(map[counter.ID]released)
		}
		g := released{limiter: weak.Make(l)}
		if l.Group.Strict != nil {
			g.forgotten = l.Group.Strict.Forgotten.Load()
		}
		f.released[l.Group.ID()] = g
	}
	if c.retirees.installs > c.retirees.swept { // once per set is often enough
		c.retirees.swept = c.retirees.installs
		for id, g := range f.released {
			if g.limiter.Value() == nil && (!id.Strict || id.Shape.Bucket(fleet) > g.forgotten) {
				delete(f.released, id)
			}
		}
	}
}

func (c *Checker) takeRevived() {
	for _, g := range c.host.Revived.Take() {
		if !g.Released.Swap(false) { // it has been taken back since
			continue
		}
		id := g.ID()
		l := c.retirees.released[id].limiter.Value()
		delete(c.retirees.released, id)
		c.retire(l)
	}
}

// keepStats keeps the counts of a limiter that is being released.
func (c *Checker) keepStats(l *ruleset.Limiter) {
	s, f := c.takeStats(l), &c.retirees
	if _, ok := c.ruleset.Load().ByName[l.Group.Name]; ok {
		if f.past == nil {
			f.past = make(map[string]RuleStats)
		}
		past := f.past[l.Group.Name]
		past.add(s)
		f.past[l.Group.Name] = past
		return
	}
	f.removed.add(f.past[l.Group.Name])
	f.removed.add(s)
	delete(f.past, l.Group.Name)
}

// ruleGroups gives the reporter the groups of a checker's rules.
type ruleGroups struct{ *Checker }

// Find returns the group of a message's rule, if the rule is in force, or of an inline limit; nil
// if there is none, or if its window or algorithm differs: then its counters are others.
func (c ruleGroups) Find(r *events.Rule) *counter.Group {
	l := c.ruleset.Load().ByName[r.GetName()]
	if l == nil {
		l = c.inline.Find(r.GetName())
	}
	if l == nil || !l.Group.Counts(r) {
		return nil
	}
	return &l.Group
}

// Revive takes limiters back that were used after they had been released.
func (c ruleGroups) Revive() { c.takeRevived() }

// Release releases retired limiters.
func (c ruleGroups) Release(fleet int64) { c.releaseRetired(fleet) }

// counting returns the group with the counters of a receipt's rule, in force or retired; nil if
// there is none that may hold anything.
func (c *Checker) counting(r *events.Rule) *counter.Group {
	if l := c.ruleset.Load().ByName[r.GetName()]; l != nil && l.Group.Counts(r) {
		return &l.Group
	}
	c.reporter.Lock()
	defer c.reporter.Unlock()
	for _, l := range c.retirees.retired {
		if l.Group.Retired.Load() && l.Group.Counts(r) {
			return &l.Group
		}
	}
	return nil
}
