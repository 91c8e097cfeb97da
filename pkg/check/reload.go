package check

import (
	"fmt"
	"maps"
	"slices"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// SetRules puts a set of rules in force, in place of the one before. Any goroutine may call it at
// any time, also while Run is at work. A decision is made by one of the two sets; a decision that
// begins after SetRules has returned is made by the new one. The cost grows with the number of
// rules and of live keys; checks pay none of it.
//
// The revision says which of two sets is the newer one. While checkers of a fleet differ,
// aggregators use the limit of the highest revision. The error is for a nil set and for a revision
// below the one in force; the old set stays in force then.
//
// Counts survive every change of a rule, unless its window, algorithm or enforcement changes: the
// rule starts clean then, with another [Limiter]. The hits of a key count against a new limit at
// once. Under strict enforcement the permits of a key are given back when its limit is lowered.
//
// A Limiter follows its rule. When the rule is gone or has started clean, the Limiter is retired:
// it still decides by the last limit, and its hits are reported and counted, but it forgets keys
// after 5 s without a hit. If the rule comes back, the Limiter follows it again.
func (c *Checker) SetRules(set *rules.Set, revision uint64) error {
	if set == nil {
		return errNoRules
	}
	c.reload.Lock()
	defer c.reload.Unlock()
	old := c.ruleset.Load()
	if revision < old.revision {
		return fmt.Errorf("check: rules of revision %d: those in force are of revision %d", revision, old.revision)
	}
	fleet := c.host.ExactTime()
	next := c.compile(set, revision, window.InForce(revision, fleet), old, c.findRetired)
	if c.install(next, old) {
		c.adjust(fleet)
	}
	c.swaps.tell()
	return nil
}

// install puts a ruleset in force. It returns whether there are limiters whose counters have to be
// adjusted, which are marked.
func (c *Checker) install(next, old *ruleset) (adjust bool) {
	c.reporter.Lock()
	defer c.reporter.Unlock()
	c.retirees.installs++
	for _, e := range next.entries {
		l := e.limiter
		c.comeBack(l)
		before := l.limits.Load()
		l.installed = c.retirees.installs
		if before != nil && before.Stamp != e.limits.Stamp {
			l.group.Changed, adjust = c.retirees.installs, true
		}
		l.setLimits(e.limits)
	}
	fleet, retired := c.reporter.FleetTimeLocked(), false
	for _, e := range old.all() {
		l := e.limiter
		if l.installed == c.retirees.installs {
			continue
		}
		c.retire(l)
		retired = true
		if l.group.Strict != nil { // its permits should not lie idle
			l.group.Changed, adjust = c.retirees.installs, true
		}
	}
	if next.strict {
		c.reporter.Strict.Store(true)
	}
	c.ruleset.Store(next)
	if retired {
		c.host.LookSoon(fleet)
	}
	c.releaseRetired(fleet)
	return adjust
}

// adjust brings the counters of limiters that have changed in line with their new limits. Decisions
// need none of it: it is there so that what was left to rest under the old ones moves if it should
// not rest under the new.
func (c *Checker) adjust(fleet int64) {
	number := c.retirees.installs // nobody else changes it while reload is locked
	c.host.Table.Each(func(x *counter.Counter) {
		if x.Group.Changed == number {
			x.Adjust(fleet)
		}
	})
}

// SetBlocks puts blocks in force, in place of all those before. Any goroutine may call it at any
// time. A block holds for every decision that begins after SetBlocks has returned, by key or by
// attributes, until its end; it denies without looking at the count, charges nothing, and the
// decision's RetryAfter is its end. Of rules with `shadow: true` it shows a denial. Blocks outlive
// SetRules; one of a rule that is not in force waits for it. Of two with the same rule and key the
// later end holds.
//
// Its cost grows with the number of blocks and rules.
func (c *Checker) SetBlocks(list []Block) {
	c.reload.Lock()
	defer c.reload.Unlock()
	next := make(blocks)
	for _, b := range list {
		next.add(b.Rule, identity.Bound(b.Key), b.Until)
		if c.o.KeyHash != nil {
			next.add(b.Rule, string(c.host.AppendText(nil, b.Key)), b.Until)
		}
	}
	before := c.blocks
	c.blocks = next
	p := *c.ruleset.Load()
	p.entries = slices.Clone(p.entries)
	changed := false
	for i := range p.entries {
		e := &p.entries[i]
		if maps.Equal(before[e.limits.name], next[e.limits.name]) {
			continue
		}
		t := *e.limits // with the same stamp: what is left in counters is for keys that are not blocked
		e.limits, changed = &t, true
		e.addBlocks(next, c.o.KeyHash != nil)
	}
	if !changed {
		return
	}
	for i := range p.entries {
		p.entries[i].limiter.setLimits(p.entries[i].limits)
	}
	c.ruleset.Store(&p)
	c.swaps.tell()
}

// compile makes a ruleset of a set. old is the one in force, nil in the beginning; findRetired
// finds limiters of earlier ones; it comes into force at a time of the fleet. Nothing is changed.
func (c *Checker) compile(set *rules.Set, revision uint64, inForce int64, old *ruleset, findRetired func(missing []counter.ID) []*Limiter) *ruleset {
	list, overrides := countedRules(set)
	p := &ruleset{set: set, revision: revision, entries: make([]entry, len(list)), byName: make(map[string]*Limiter, len(list))}
	p.rules = len(list) - len(overrides)
	var missing []counter.ID
	var at []int
	for i, r := range list {
		id := ruleIDOf(r, &c.host)
		p.strict = p.strict || id.Strict
		if l := old.limiter(id); l != nil {
			p.entries[i].limiter = l
			continue
		}
		missing, at = append(missing, id), append(at, i)
	}
	for i, l := range findRetired(missing) {
		p.entries[at[i]].limiter = l
	}
	for i, r := range list {
		e := &p.entries[i]
		if e.limiter == nil {
			c.made++
			e.limiter = newLimiter(&c.host, c.made, r)
			e.limits = newLimits(r, revision)
		} else {
			e.limits = e.limiter.limits.Load().next(r, revision, inForce)
		}
		e.rule, p.byName[r.Name] = r, e.limiter
	}
	p.numberKeys()
	p.addOverrides(overrides)
	p.addClauses()
	for i := range p.entries {
		p.entries[i].addBlocks(c.blocks, c.o.KeyHash != nil)
	}
	return p
}
