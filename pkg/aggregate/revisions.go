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
//
// Rules that somebody more trusted than checkers has told of are by themselves: nothing that is
// heard of them counts, whatever its revision.
type revisions struct {
	mu    sync.Mutex
	known map[ruleID]heard
	heard map[ruleID]heard
	swept int64 // fleet time
}

// heard is what was said of a rule by those who have its highest revision.
type heard struct {
	limit, burst int64
	loose        bool          // only of those that are known
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

// know takes all rules of which no report is believed, in place of those before.
func (r *revisions) know(rules []Rule, now int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.known
	r.known = make(map[ruleID]heard, len(rules))
	for i := range rules {
		rule := &rules[i]
		id := ruleID{name: rule.Name, shape: rule.Shape}
		was, wasKnown := before[id]
		r.known[id] = heard{rule.Limit, rule.Burst, rule.Loose, was.after(rule, wasKnown, now), rule.Revision, now}
		delete(r.heard, id)
	}
}

// after are the limits of before of a rule that comes after this one, if there is one.
func (h *heard) after(rule *Rule, known bool, now int64) []window.Rate {
	if !known || !rule.Shape.Drains() || rule.Revision == h.revision {
		return h.past
	}
	before := window.Drain{Shape: rule.Shape, Limit: max(h.limit, 1), Past: h.past}
	return before.After(max(rule.Limit, 1), window.InForce(rule.Revision, now))
}

// apply gives the rules of a fold the limits that are known, or else those of their highest
// revisions, and takes in what is news in them. Rules without revisions, of which nothing is known,
// are as the fold has them.
func (r *revisions) apply(rules []Rule, now int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range rules {
		rule := &rules[i]
		id := ruleID{name: rule.Name, shape: rule.Shape}
		if k, ok := r.known[id]; ok {
			rule.Limit, rule.Burst, rule.Loose, rule.Revision, rule.Past = k.limit, k.burst, k.loose, k.revision, k.past
			continue
		}
		h, known := r.heard[id]
		switch {
		case known && now-h.at < int64(revisionFor) && h.revision > rule.Revision:
			rule.Limit, rule.Burst, rule.Revision, rule.Past = h.limit, h.burst, h.revision, h.past
		case rule.Revision > 0 && (known || r.hasRoom(now)):
			rule.Past = h.after(rule, known, now)
			r.heard[id] = heard{rule.Limit, rule.Burst, false, rule.Past, rule.Revision, now}
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
