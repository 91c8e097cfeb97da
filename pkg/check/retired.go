package check

import (
	"weak"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/events"
)

// A limiter whose rule is no longer in force has *retired*: what it holds is still reported,
// answered and given back. When nothing is left it is let *go*, and only a weak pointer to it is
// kept: if somebody still holds it and uses it, it is *revived*, and retired again; if its rule
// comes back it is the rule's limiter again, since there must never be two of one id.

// findRetired finds limiters of earlier rulesets by their ids; nil where there is none.
func (c *Checker) findRetired(ids []counter.ID) []*Limiter {
	c.reporter.Lock()
	defer c.reporter.Unlock()
	found := make([]*Limiter, len(ids))
	for i, id := range ids {
		if found[i] = c.retirees.at[id]; found[i] == nil {
			found[i] = c.retirees.gone[id].limiter.Value()
		}
	}
	return found
}

// retire takes in that a limiter's rule is no longer in force.
func (c *Checker) retire(l *Limiter) {
	l.group.Retired.Store(true)
	if c.retirees.at == nil {
		c.retirees.at = make(map[counter.ID]*Limiter)
	}
	c.retirees.retired = append(c.retirees.retired, l)
	c.retirees.at[l.group.ID()] = l
}

// comeBack takes in that a limiter's rule is in force, maybe again.
func (c *Checker) comeBack(l *Limiter) {
	id := l.group.ID()
	g, known := c.retirees.gone[id]
	switch {
	case l.group.Retired.Swap(false):
		l.group.Away.Store(false)
		delete(c.retirees.at, id)
	case known && l.group.Strict != nil: // a new one, in place of one that nobody holds any more
		l.group.Strict.Forgotten.Store(max(l.group.Strict.Forgotten.Load(), g.forgotten))
	}
	delete(c.retirees.gone, id)
}

// retiredAtOnce is how many retired limiters a flush looks at, in turn.
const retiredAtOnce = 64

// releaseRetired lets retired limiters go that hold nothing any more, and takes those back that
// hold something again.
func (c *Checker) releaseRetired(fleet int64) {
	c.takeRevived()
	f := &c.retirees
	for range min(len(f.retired), retiredAtOnce) {
		l := f.retired[0]
		f.retired[0] = nil
		f.retired = f.retired[1:]
		if !l.group.Retired.Load() { // it has come back
			continue
		}
		if !l.leaveLocked() {
			f.retired = append(f.retired, l)
			continue
		}
		c.keepStats(l)
		delete(f.at, l.group.ID())
		if f.gone == nil {
			f.gone = make(map[counter.ID]gone)
		}
		g := gone{limiter: weak.Make(l)}
		if l.group.Strict != nil {
			g.forgotten = l.group.Strict.Forgotten.Load()
		}
		f.gone[l.group.ID()] = g
	}
	if c.retirees.installs > c.retirees.swept { // once per set is often enough
		c.retirees.swept = c.retirees.installs
		for id, g := range f.gone {
			if g.limiter.Value() == nil && (!id.Strict || id.Shape.Bucket(fleet) > g.forgotten) {
				delete(f.gone, id)
			}
		}
	}
}

// leaveLocked marks a limiter as let go, if it holds nothing; the reporter is locked.
func (l *Limiter) leaveLocked() bool {
	holds := func() bool {
		return l.group.Counters.Load() != 0 || l.group.Late.Load() != 0 || l.group.Owed.InFlight != 0 || l.group.Owed.QueuedLate
	}
	if holds() {
		return false
	}
	l.group.Away.Store(true) // from now on, whoever makes a counter says so
	if holds() {
		l.group.Away.Store(false)
		return false
	}
	return true
}

func (c *Checker) takeRevived() {
	for _, g := range c.host.Revived.Take() {
		if !g.Away.Swap(false) { // it has been taken back since
			continue
		}
		id := g.ID()
		l := c.retirees.gone[id].limiter.Value()
		delete(c.retirees.gone, id)
		c.retire(l)
	}
}

// keepStats puts down what a limiter that is let go has counted.
func (c *Checker) keepStats(l *Limiter) {
	s := l.stats(c.o.Link == nil)
	l.told.add(s)
	f := &c.retirees
	if _, ok := c.ruleset.Load().byName[l.group.Name]; ok {
		if f.past == nil {
			f.past = make(map[string]RuleStats)
		}
		past := f.past[l.group.Name]
		past.add(s)
		f.past[l.group.Name] = past
		return
	}
	f.removed.add(f.past[l.group.Name])
	f.removed.add(s)
	delete(f.past, l.group.Name)
}

// ruleGroups finds the groups of a checker's rules for its reporter.
type ruleGroups struct{ *Checker }

// Find returns the group of the rule in force that a message's rule is, or of an inline limit; nil
// if there is none, or if it has another window or algorithm, which makes it another counter.
func (c ruleGroups) Find(r *events.Rule) *counter.Group {
	l := c.ruleset.Load().byName[r.GetName()]
	if l == nil {
		l = c.inline.find(r.GetName())
	}
	if l == nil || !l.group.Counts(r) {
		return nil
	}
	return &l.group
}

// Revive takes limiters back that were used after they had been let go.
func (c ruleGroups) Revive() { c.takeRevived() }

// Release lets retired limiters go.
func (c ruleGroups) Release(fleet int64) { c.releaseRetired(fleet) }

// counting finds the group whose counters are those of a rule of a receipt, of a rule that is in
// force or was and may come back; nil if there is none that may hold anything.
func (c *Checker) counting(r *events.Rule) *counter.Group {
	if l := c.ruleset.Load().byName[r.GetName()]; l != nil && l.group.Counts(r) {
		return &l.group
	}
	c.reporter.Lock()
	defer c.reporter.Unlock()
	for _, l := range c.retirees.retired {
		if l.group.Counts(r) {
			return &l.group
		}
	}
	return nil
}
