package evaluation

import (
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/ruleset"
	"github.com/offpath-io/offpath/pkg/identity"
)

// blockMatching says whether the key that a rule makes of a request is blocked: then the rule bars
// the request, whatever its lists and overrides say of the caller.
func (q *ruleDecision) blockMatching(a *evaluation, e *ruleset.Entry, attrs identity.Attributes, now int64) applicability {
	if q.makeKey(a, e.Rule, attrs) != applies { // it is asked again
		q.retry = 0
		return applies
	}
	v := q.block(textAt(a.text, q.from, q.to), now)
	a.text, q.from, q.to = a.text[:q.from], 0, 0
	return v
}

// block says whether a key, as counters have it, is blocked.
func (q *ruleDecision) block(text string, now int64) applicability {
	until, ok := q.origin.Blocks[text]
	if !ok || now >= until {
		return applies
	}
	q.retry = time.Duration(until - now)
	return bars
}

// explainBlock is blockMatching without a place for keys.
func (q *ruleDecision) explainBlock(e *ruleset.Entry, attrs identity.Attributes, now int64) bool {
	if e.Limits.Blocks == nil {
		return false
	}
	text, ok := q.limiter.Group.Host.AppendKey(nil, e.Rule, attrs)
	return ok && q.block(string(text), now) == bars
}

// blockAlone bars the one limiter that is asked from a key that is blocked.
func (a *evaluation) blockAlone(now int64) {
	q := &a.decisions[0]
	q.barred = q.origin.Blocks != nil && q.block(a.key(0), now) == bars
}
