package evaluation

import (
	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/check/internal/ruleset"
	"github.com/offpath-io/offpath/pkg/identity"
)

// LineID identifies a line of callers: by the key, and by the capacity that decides their hits. A
// class with all of the limit may pass when a class with a share of it may not, so the two have
// different lines.
type LineID struct {
	Limiter  *ruleset.Limiter
	Key      string
	Capacity int64
}

// LineAlone returns the line for a hit against a key without attributes.
func LineAlone(l *ruleset.Limiter, key string) LineID {
	return LineID{l, key, l.Current.Load().Class(nil).Capacity}
}

// Queued describes a request under a rule that lets callers wait: the rule, its line, and its cost
// there.
type Queued struct {
	Rule string
	LineID
	Cost int64
}

// EachQueued calls yield for each rule that limits a request and lets callers wait, until yield
// returns false. If a rule bars the request, it does not call yield.
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
