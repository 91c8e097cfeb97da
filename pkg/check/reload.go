package check

import (
	"errors"
	"fmt"

	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// errNoRules is a set that is not there.
var errNoRules = errors.New("check: no rules")

// SetRules puts a set of rules in force, in place of the one before. Any goroutine may call it at any time, also
// while Run is at work. A decision goes by the one set or the other, and one that begins after SetRules has returned by
// this one. Its cost grows with the number of rules and live keys, and none of it is paid by checks.
//
// The revision says which of two sets is the newer; where checkers of a fleet differ for a moment, aggregators go by
// the limit of the highest one. The error is for no set, and for a
// revision below the one in force; the old set stays then.
//
// Counts outlive every change of a rule but one of its window, its algorithm or its enforcement, with which
// it starts clean, as another [Limiter]. What hits a key had admitted counts against a new limit at once.
// Under strict enforcement, what a key holds is given back when its limit is lowered.
//
// A Limiter follows its rule. If there is none any more, or one that starts clean, it goes on deciding by
// the last one, and its hits are reported and counted, until its holder gets another by Checker.Limiter; but it
// forgets keys of which there was no hit for 5 s. If the rule comes back, it follows that again.
func (c *Checker) SetRules(set *rules.Set, revision uint64) error {
	if set == nil {
		return errNoRules
	}
	c.reload.Lock()
	defer c.reload.Unlock()
	old := c.program.Load()
	if revision < old.revision {
		return fmt.Errorf("check: rules of revision %d: those in force are of revision %d", revision, old.revision)
	}
	fleet := c.exactTime()
	next := c.compile(set, revision, window.InForce(revision, fleet), old, c.behind.former)
	if c.behind.install(next, old) {
		c.adjust(fleet)
	}
	c.swaps.tell()
	return nil
}

// install puts a program in force. It returns whether there are limiters whose cells have to be adjusted, which are
// marked.
func (b *behind) install(next, old *program) (adjust bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.installs++
	for _, e := range next.entries {
		l := e.limiter
		b.comeBack(l)
		before := l.terms.Load()
		l.installed = b.installs
		if before != nil && before.stamp != e.terms.stamp {
			l.changed, adjust = b.installs, true
		}
		l.terms.Store(e.terms)
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
	b.checker.program.Store(next)
	if retired {
		b.lookSoon(fleet)
	}
	b.letLimitersGo(fleet)
	return adjust
}

// adjust brings the cells of limiters that have changed in line with their new terms. Decisions need none of it: it
// is there so that what was left to rest under the old ones moves if it should not rest under the new.
func (c *Checker) adjust(fleet int64) {
	number := c.behind.installs // nobody else changes it while reload is locked
	c.cells.each(func(x *cell) {
		if x.limiter.changed != number {
			return
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.is(dead) {
			return
		}
		t := x.limiter.terms.Load()
		room, at := x.room(t, fleet) // withdraws what the old terms have left behind
		if p := x.permits(); p != nil {
			p.Adjust(at, t.wire, x.limiter.retired.Load())
			x.askIfNeeded(p, at)
			return
		}
		x.adjustCounts(t, room, at)
	})
}

// adjustCounts lets others hear of a key that has come near its limit. The lock is held, the cell settled and rotated.
func (c *cell) adjustCounts(t *terms, room, at int64) {
	if !c.limiter.isShared() || !c.hasPending() {
		return
	}
	if c.lookAhead(t, at, room) != nil || room <= t.capacity/2 || c.unforeseen(t, room) <= 0 {
		c.endWait()
		c.limiter.checker.want(nextTick)
	}
}

func (p *program) all() []entry {
	if p == nil {
		return nil
	}
	return p.entries
}
