package evaluation

import (
	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/check/internal/ruleset"
	"github.com/offpath-io/offpath/pkg/identity"
)

// LineID is a key, and the limit that those who wait are decided by: a class with all of the limit
// may pass when one with a share of it may not, and does not stand behind it.
type LineID struct {
	Limiter  *ruleset.Limiter
	Key      string
	Capacity int64
}

// LineAlone is that of a hit against a key, whatever else is known of its caller.
func LineAlone(l *ruleset.Limiter, key string) LineID {
	return LineID{l, key, l.Current.Load().Class(nil).Capacity}
}

// Queued is what a request is decided by under a rule that lets callers wait.
type Queued struct {
	Rule string
	LineID
	Cost int64
}

// EachQueued calls yield with the rules that limit a request and let callers wait, until that
// returns false; with none if a rule bars the request.
func EachQueued(
	h *counter.Host, p *ruleset.Compiled, now int64, attrs identity.Attributes, cost int64, yield func(Queued) bool,
) {
	a := newEvaluation(h)
	defer a.free()
	if !a.match(p, attrs, now, cost, peeking) {
		return
	}
	for i := range a.decisions {
		q := &a.decisions[i]
		if q.barred || !q.limits.Rule.OnLimit.Queue {
			continue
		}
		key, ok := q.limits.Rule.AppendKey(nil, attrs)
		if ok && !yield(Queued{q.limits.Name, LineID{q.limiter, string(key), q.matched.Capacity}, q.Cost}) {
			return
		}
	}
}
