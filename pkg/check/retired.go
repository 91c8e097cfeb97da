package check

import (
	"iter"
	"sync"
	"weak"

	"github.com/offpath-io/offpath/pkg/events"
)

// A limiter whose rule is no longer in force has *retired*: what it holds is still reported,
// answered and given back. When nothing is left it is let *go*, and only a weak pointer to it is
// kept: if somebody still holds it and uses it, it *strays* back among the retired, and if its rule
// comes back it is the rule's limiter again, since there must never be two of one id.

// retirees are the limiters whose rules are no longer in force. the reporter's lock guards them.
type retirees struct {
	retired []*Limiter // the one to look at next first
	at      map[ruleID]*Limiter
	gone    map[ruleID]gone
	past    map[string]RuleStats // by rule, what those that are gone have counted, while the rule is in force
	removed RuleStats            // the same of all other rules
}

// gone is what is kept of a limiter that has been let go.
type gone struct {
	limiter   weak.Pointer[Limiter]
	forgotten int64 // see strict
}

// revivals are limiters that were used after they had been let go. Any goroutine adds to them.
type revivals struct {
	mu   sync.Mutex
	list []*Limiter
}

// noteRevived lets a limiter that has been let go be seen again. Whoever calls it has made a counter, or
// counted an overflow.
func (l *Limiter) noteRevived() {
	if l.away.Load() {
		s := &l.checker.strays
		s.mu.Lock()
		defer s.mu.Unlock()
		s.list = append(s.list, l)
	}
}

// findRetired finds limiters of earlier rulesets by their ids; nil where there is none.
func (b *reporter) findRetired(ids []ruleID) []*Limiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := make([]*Limiter, len(ids))
	for i, id := range ids {
		if found[i] = b.formers.at[id]; found[i] == nil {
			found[i] = b.formers.gone[id].limiter.Value()
		}
	}
	return found
}

// counting finds the limiter whose counters are those of a rule of a message, of a rule that is in
// force or was and may come back; nil if there is none that may hold anything.
func (c *Checker) counting(r *events.Rule) *Limiter {
	if l := c.ruleset.Load().byName[r.GetName()]; l != nil && l.counts(r) {
		return l
	}
	b := &c.reporter
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.formers.retired {
		if l.counts(r) {
			return l
		}
	}
	return nil
}

// retire takes in that a limiter's rule is no longer in force.
func (b *reporter) retire(l *Limiter) {
	l.retired.Store(true)
	if b.formers.at == nil {
		b.formers.at = make(map[ruleID]*Limiter)
	}
	b.formers.retired = append(b.formers.retired, l)
	b.formers.at[l.ruleID] = l
}

// comeBack takes in that a limiter's rule is in force, maybe again.
func (b *reporter) comeBack(l *Limiter) {
	id := l.ruleID
	g, known := b.formers.gone[id]
	switch {
	case l.retired.Swap(false):
		l.away.Store(false)
		delete(b.formers.at, id)
	case known && l.strict != nil: // a new one, in place of one that nobody holds any more
		l.strict.forgotten.Store(max(l.strict.forgotten.Load(), g.forgotten))
	}
	delete(b.formers.gone, id)
}

// retiredAtOnce is how many retired limiters a flush looks at, in turn.
const retiredAtOnce = 64

// releaseRetired lets retired limiters go that hold nothing any more, and takes those back that hold
// something again.
func (b *reporter) releaseRetired(fleet int64) {
	b.takeRevived()
	f := &b.formers
	for range min(len(f.retired), retiredAtOnce) {
		l := f.retired[0]
		f.retired[0] = nil
		f.retired = f.retired[1:]
		if !l.retired.Load() { // it has come back
			continue
		}
		if !l.leave() {
			f.retired = append(f.retired, l)
			continue
		}
		b.keepStats(l)
		delete(f.at, l.ruleID)
		if f.gone == nil {
			f.gone = make(map[ruleID]gone)
		}
		g := gone{limiter: weak.Make(l)}
		if l.strict != nil {
			g.forgotten = l.strict.forgotten.Load()
		}
		f.gone[l.ruleID] = g
	}
	if b.installs > b.swept { // once per set is often enough
		b.swept = b.installs
		for id, g := range f.gone {
			if g.limiter.Value() == nil && (!id.strict || id.shape.Bucket(fleet) > g.forgotten) {
				delete(f.gone, id)
			}
		}
	}
}

// leave marks a limiter as let go, if it holds nothing. the reporter's lock is held.
func (l *Limiter) leave() bool {
	holds := func() bool {
		return l.cells.Load() != 0 || l.late.Load() != 0 || l.owed.inFlight != 0 || l.owed.queuedLate
	}
	if holds() {
		return false
	}
	l.away.Store(true) // from now on, whoever makes a counter says so
	if holds() {
		l.away.Store(false)
		return false
	}
	return true
}

func (b *reporter) takeRevived() {
	s := &b.checker.strays
	s.mu.Lock()
	list := s.list
	s.list = nil
	s.mu.Unlock()
	for _, l := range list {
		if l.away.Swap(false) { // and has not been taken back since
			delete(b.formers.gone, l.ruleID)
			b.retire(l)
		}
	}
}

// keepStats puts down what a limiter that is let go has counted.
func (b *reporter) keepStats(l *Limiter) {
	s := l.stats(b.checker.o.Link == nil)
	l.owed.told.add(s)
	f := &b.formers
	if _, ok := b.checker.ruleset.Load().byName[l.name]; ok {
		if f.past == nil {
			f.past = make(map[string]RuleStats)
		}
		past := f.past[l.name]
		past.add(s)
		f.past[l.name] = past
		return
	}
	f.removed.add(f.past[l.name])
	f.removed.add(s)
	delete(f.past, l.name)
}

// limiters are all that may hold anything: those in force, in the order of their rules, those that
// have retired, and those of limits that requests have brought along.
func (b *reporter) limiters() iter.Seq[*Limiter] {
	return func(yield func(*Limiter) bool) {
		for _, e := range b.checker.ruleset.Load().entries {
			if !yield(e.limiter) {
				return
			}
		}
		for _, l := range b.formers.retired {
			if !yield(l) {
				return
			}
		}
		b.checker.inline.each(yield)
	}
}
