package check

import (
	"maps"
	"slices"
	"time"

	"github.com/offpath-io/offpath/pkg/identity"
)

// Block keeps a key out for a time, whatever its count is, and whatever its rule's lists and
// overrides say.
type Block struct {
	// Rule is the rule's name. Those of its overrides are under it too.
	Rule string
	// Key is the key's text, as the rule makes it. With Options.KeyHash it may also be the hash of
	// it, which is all that those who look at the fleet from outside know.
	Key string
	// Until is when the block ends, by the fleet's time.
	Until time.Time
}

// blocks are the ends of blocks in Unix nanoseconds, by rule, and by key as counters have it. They
// never change: another set takes their place. Rules without any have none in their limits, and do
// not look; so checks pay nothing for what is not there.
type blocks map[string]map[string]int64

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
			next.add(b.Rule, string(c.appendText(nil, b.Key)), b.Until)
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
		p.entries[i].limiter.limits.Store(p.entries[i].limits)
	}
	c.ruleset.Store(&p)
	c.swaps.tell()
}

func (b blocks) add(rule, key string, until time.Time) {
	of := b[rule]
	if of == nil {
		of = make(map[string]int64)
		b[rule] = of
	}
	of[key] = max(of[key], until.UnixNano())
}

// addBlocks completes an entry's limits, which nobody uses yet.
func (e *entry) addBlocks(all blocks, hashes bool) {
	t := e.limits
	t.blocks = all[t.name]
	t.plain = t.clauses == nil && !hashes && t.blocks == nil
}

// blockMatching says whether the key that a rule makes of a request is blocked: then the rule bars
// the request, whatever its lists and overrides say of the caller.
func (q *ruleDecision) blockMatching(a *evaluation, e *entry, attrs identity.Attributes, now int64) applicability {
	if q.makeKey(a, e.rule, attrs) != applies { // it is asked again
		q.retry = 0
		return applies
	}
	v := q.block(textAt(a.text, q.from, q.to), now)
	a.text, q.from, q.to = a.text[:q.from], 0, 0
	return v
}

// block says whether a key, as counters have it, is blocked.
func (q *ruleDecision) block(text string, now int64) applicability {
	until, ok := q.origin.blocks[text]
	if !ok || now >= until {
		return applies
	}
	q.retry = time.Duration(until - now)
	return bars
}

// explainBlock is blockMatching without a place for keys.
func (q *ruleDecision) explainBlock(e *entry, attrs identity.Attributes, now int64) bool {
	if e.limits.blocks == nil {
		return false
	}
	text, ok := q.limiter.checker.appendKey(nil, e.rule, attrs)
	return ok && q.block(string(text), now) == bars
}

// blockAlone bars the one limiter that is asked from a key that is blocked.
func (a *evaluation) blockAlone(now int64) {
	q := &a.decisions[0]
	q.barred = q.origin.blocks != nil && q.block(a.key(0), now) == bars
}

// checkBlocked denies a hit of a blocked key; false if it is not blocked.
func (l *Limiter) checkBlocked(d *Decision, t *limits, now int64, key string, cost int64) bool {
	a := l.checker.scratch.Get().(*evaluation)
	defer l.checker.scratch.Put(a)
	a.askAlone(l, t, now, key, max(cost, 1), charging)
	if !a.decisions[0].barred {
		return false
	}
	a.decide(d, nil, now)
	d.ownShadow()
	return true
}
