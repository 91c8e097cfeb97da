package evaluation

import (
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/ruleset"
	"github.com/offpath-io/offpath/pkg/identity"
)

// blockMatching returns bars if the key that a rule makes of a request is blocked, and applies if
// not. A block bars the caller even if lists or overrides allow it.
func (q *ruleDecision) blockMatching(a *evaluation, e *ruleset.Entry, attrs identity.Attributes, now int64) applicability {
	if q.makeKey(a, e.Rule, attrs) != applies { // match calls makeKey again
		q.retry = 0
		return applies
	}
	v := q.block(textAt(a.text, q.from, q.to), now)
	a.text, q.from, q.to = a.text[:q.from], 0, 0
	return v
}

// block returns bars if a key, as counters have it, is blocked.
func (q *ruleDecision) block(text string, now int64) applicability {
	until, ok := q.origin.Blocks[text]
	if !ok || now >= until {
		return applies
	}
	q.retry = time.Duration(until - now)
	return bars
}

// explainBlock is blockMatching without the memory of an evaluation.
func (q *ruleDecision) explainBlock(e *ruleset.Entry, attrs identity.Attributes, now int64) bool {
	if e.Limits.Blocks == nil {
		return false
	}
	text, ok := q.limiter.Group.Host.AppendKey(nil, e.Rule, attrs)
	return ok && q.block(string(text), now) == bars
}

// blockAlone sets barred if the key of the only decision is blocked.
func (a *evaluation) blockAlone(now int64) {
	q := &a.decisions[0]
	q.barred = q.origin.Blocks != nil && q.block(a.key(0), now) == bars
}
