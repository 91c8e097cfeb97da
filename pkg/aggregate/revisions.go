package aggregate

import (
	"maps"
	"sync"
	"time"

	"github.com/offpath-io/offpath/pkg/window"
)

// revisions are the limits of the highest revisions of rules that were heard of lately. When rules change, checkers
// take the new ones over one after the other; until the last one has, each fold may hold reports of the old ones
// alone, and would go by their limit.
type revisions struct {
	mu    sync.Mutex
	heard map[ruleID]heard
	swept int64 // fleet time
}

// heard is what was said of a rule by those who have its highest revision.
type heard struct {
	limit, burst int64
	past         []window.Rate // of what drains
	revision     uint64
	at           int64 // fleet time of the last time
}

const (
	// revisionFor is how long a revision is remembered that nobody speaks of any more: long enough for all
	// checkers to get it, short enough that rules whose revisions have started again are heard soon.
	revisionFor = time.Minute
	// mostRevisions bounds the rules that are remembered.
	mostRevisions = 1 << 17
)

// apply gives the rules of a fold the limits of their highest revisions, and takes in what is news in them.
// Rules without revisions are as the fold has them.
func (r *revisions) apply(rules []Rule, now int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range rules {
		rule := &rules[i]
		id := ruleID{name: rule.Name, shape: rule.Shape}
		h, known := r.heard[id]
		switch {
		case known && now-h.at < int64(revisionFor) && h.revision > rule.Revision:
			rule.Limit, rule.Burst, rule.Revision, rule.Past = h.limit, h.burst, h.revision, h.past
		case rule.Revision > 0 && (known || r.hasRoom(now)):
			if known && rule.Shape.Drains() {
				rule.Past = h.past
				if rule.Revision != h.revision {
					before := window.Drain{Shape: rule.Shape, Limit: max(h.limit, 1), Past: h.past}
					rule.Past = before.After(max(rule.Limit, 1), window.InForce(rule.Revision, now))
				}
			}
			r.heard[id] = heard{rule.Limit, rule.Burst, rule.Past, rule.Revision, now}
		}
	}
}

// hasRoom says whether one more rule may be remembered. Now and then it forgets the old ones first.
func (r *revisions) hasRoom(now int64) bool {
	if r.heard == nil {
		r.heard = make(map[ruleID]heard)
	}
	if now-r.swept >= int64(revisionFor) {
		r.swept = now
		maps.DeleteFunc(r.heard, func(id ruleID, h heard) bool {
			settled := time.Duration(0) // what drains goes by the limits of before until then
			if id.shape.Drains() {
				settled = 2 * id.shape.Length
			}
			return now-h.at >= int64(max(revisionFor, settled))
		})
	}
	return len(r.heard) < mostRevisions
}
