package check

import (
	"fmt"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/check/internal/ruleset"
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
	if revision < old.Revision {
		return fmt.Errorf("check: rules of revision %d: those in force are of revision %d", revision, old.Revision)
	}
	fleet := c.host.ExactTime()
	next := c.compile(set, revision, window.InForce(revision, fleet), old)
	if c.install(next, old) {
		c.adjust(fleet)
	}
	c.swaps.tell()
	return nil
}

// install puts a ruleset in force. It marks limiters whose counters have to be adjusted, and
// returns whether there are any.
func (c *Checker) install(next, old *ruleset.Compiled) (adjust bool) {
	c.reporter.Lock()
	defer c.reporter.Unlock()
	c.retirees.installs++
	inForce := make(map[*ruleset.Limiter]bool, len(next.Entries))
	for _, e := range next.Entries {
		l := e.Limiter
		c.comeBack(l)
		before := l.Current.Load()
		inForce[l] = true
		if before != nil && before.Stamp != e.Limits.Stamp {
			l.Group.Changed, adjust = c.retirees.installs, true
		}
		l.SetLimits(e.Limits)
	}
	fleet, retired := c.reporter.FleetTimeLocked(), false
	for _, e := range old.All() {
		l := e.Limiter
		if inForce[l] {
			continue
		}
		c.retire(l)
		retired = true
		if l.Group.Strict != nil { // its permits should not lie idle
			l.Group.Changed, adjust = c.retirees.installs, true
		}
	}
	if next.Strict {
		c.reporter.Strict.Store(true)
	}
	c.ruleset.Store(next)
	if retired {
		c.host.Ageing.LookSoon(fleet)
	}
	c.releaseRetired(fleet)
	return adjust
}

// adjust adjusts the counters of changed limiters to their new limits. Decisions do not depend on
// it: deferred hits are reported if the new limits require it, and permits are returned or asked
// for.
func (c *Checker) adjust(fleet int64) {
	number := c.retirees.installs // it does not change while reload is locked
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
	next := make(ruleset.Blocks)
	for _, b := range list {
		next.Add(b.Rule, identity.Bound(b.Key), b.Until)
		if c.o.KeyHash != nil {
			next.Add(b.Rule, string(c.host.AppendText(nil, b.Key)), b.Until)
		}
	}
	c.blocks = next
	if p := c.ruleset.Load().WithBlocks(next, c.o.KeyHash != nil); p != nil {
		c.ruleset.Store(p)
		c.swaps.tell()
	}
}

// compile makes a ruleset of a set, to be in force from the fleet's time inForce on. old is the
// ruleset in force, nil at first. It puts nothing in force.
func (c *Checker) compile(set *rules.Set, revision uint64, inForce int64, old *ruleset.Compiled) *ruleset.Compiled {
	return ruleset.Compile(set, revision, inForce, old, c.blocks, &c.host, ruleset.Source{Find: c.findRetired, Make: c.newLimiter})
}

// newLimiter makes a limiter for a rule without one.
func (c *Checker) newLimiter(r *rules.Rule) *ruleset.Limiter {
	l := new(Limiter)
	l.core.Owner = l
	c.made++
	l.core.Init(&c.host, c.made, r)
	return &l.core
}
