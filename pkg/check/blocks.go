package check

import (
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
	text, ok := q.limiter.group.Host.AppendKey(nil, e.rule, attrs)
	return ok && q.block(string(text), now) == bars
}

// blockAlone bars the one limiter that is asked from a key that is blocked.
func (a *evaluation) blockAlone(now int64) {
	q := &a.decisions[0]
	q.barred = q.origin.blocks != nil && q.block(a.key(0), now) == bars
}
