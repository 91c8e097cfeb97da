package check

import (
	"errors"
	"fmt"

	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// errNoRules is the error of a nil set.
var errNoRules = errors.New("check: no rules")

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
	fleet := c.exactTime()
	next := c.compile(set, revision, window.InForce(revision, fleet), old, c.reporter.findRetired)
	if c.reporter.install(next, old) {
		c.adjust(fleet)
	}
	c.swaps.tell()
	return nil
}

// install puts a ruleset in force. It returns whether there are limiters whose counters have to be
// adjusted, which are marked.
func (b *reporter) install(next, old *ruleset) (adjust bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.installs++
	for _, e := range next.entries {
		l := e.limiter
		b.comeBack(l)
		before := l.limits.Load()
		l.installed = b.installs
		if before != nil && before.stamp != e.limits.stamp {
			l.changed, adjust = b.installs, true
		}
		l.limits.Store(e.limits)
	}
	fleet, retired := b.checker.clock.Fleet(b.now), false
	for _, e := range old.all() {
		l := e.limiter
		if l.installed == b.installs {
			continue
		}
		b.retire(l)
		retired = true
		if l.strict != nil { // its permits should not lie idle
			l.changed, adjust = b.installs, true
		}
	}
	if next.strict {
		b.checker.everStrict.Store(true)
	}
	b.checker.ruleset.Store(next)
	if retired {
		b.lookSoon(fleet)
	}
	b.releaseRetired(fleet)
	return adjust
}

// adjust brings the counters of limiters that have changed in line with their new limits. Decisions
// need none of it: it is there so that what was left to rest under the old ones moves if it should
// not rest under the new.
func (c *Checker) adjust(fleet int64) {
	number := c.reporter.installs // nobody else changes it while reload is locked
	c.table.each(func(x *counter) {
		if x.limiter.changed != number {
			return
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.is(dead) {
			return
		}
		t := x.limiter.limits.Load()
		room, at := x.room(t, fleet) // withdraws what the old limits have left behind
		if p := x.permits(); p != nil {
			p.Adjust(at, t.wire, x.limiter.retired.Load())
			x.askIfNeeded(p, at)
			return
		}
		x.adjustCounts(t, room, at)
	})
}

// adjustCounts lets others hear of a key that has come near its limit. The lock is held, the
// counter current.
func (c *counter) adjustCounts(t *limits, room, at int64) {
	if !c.limiter.isShared() || !c.hasPending() {
		return
	}
	if c.ensureForecast(t, at, room) != nil || room <= t.capacity/2 || c.unforeseen(t, room) <= 0 {
		c.endDeferral()
		c.limiter.checker.want(nextFast)
	}
}

func (p *ruleset) all() []entry {
	if p == nil {
		return nil
	}
	return p.entries
}
