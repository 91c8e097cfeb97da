// Package limits keeps what an aggregator believes about rules: the limits in force, and how many
// rules the checkers of one credential may report.
package limits

import (
	"maps"
	"sync"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/window"
)

// Revisions are the limits of the highest revisions of rules that were reported lately. When rules
// change, checkers take the new ones over one after the other; until the last one has, a batch may
// hold reports of the old ones alone, and would use their limit.
//
// Rules from a trusted source are kept apart: no report changes them, whatever its revision.
//
// The zero value knows no rules. Its methods are safe for concurrent use.
type Revisions struct {
	mu       sync.Mutex
	trusted  map[storage.RuleID]revision
	reported map[storage.RuleID]revision
	swept    int64 // fleet time
}

// revision is the highest revision of a rule.
type revision struct {
	limit, burst int64
	loose        bool          // of trusted rules only
	past         []window.Rate // of rules that drain
	number       uint64
	at           int64 // fleet time of the last report
}

const (
	// reportedFor is how long a revision is remembered that is no longer reported: long enough for
	// all checkers to get it, short enough that rules whose revisions start again are believed
	// soon.
	reportedFor = time.Minute
	// maxReported bounds the rules that are remembered.
	maxReported = 1 << 17
)

// Trust takes all rules from a trusted source, in place of those before.
func (r *Revisions) Trust(rules []storage.Rule, now int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.trusted
	r.trusted = make(map[storage.RuleID]revision, len(rules))
	for i := range rules {
		rule := &rules[i]
		id := storage.RuleID{Name: rule.Name, Shape: rule.Shape}
		was, known := before[id]
		r.trusted[id] = revision{
			rule.Limit, rule.Burst, rule.Loose, was.pastOf(rule, known, now), rule.Revision, now,
		}
		delete(r.reported, id)
	}
}

// pastOf are the past limits of a rule that follows this revision, if it is known.
func (h *revision) pastOf(rule *storage.Rule, known bool, now int64) []window.Rate {
	if !known || !rule.Shape.Drains() || rule.Revision == h.number {
		return h.past
	}
	before := window.Drain{Shape: rule.Shape, Limit: max(h.limit, 1), Past: h.past}
	return before.After(max(rule.Limit, 1), window.InForce(rule.Revision, now))
}

// Apply gives the rules of a batch the trusted limits, or else those of their highest revisions,
// and takes in new revisions. Untrusted rules without revisions stay as they are.
func (r *Revisions) Apply(rules []storage.Rule, now int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range rules {
		rule := &rules[i]
		id := storage.RuleID{Name: rule.Name, Shape: rule.Shape}
		if t, ok := r.trusted[id]; ok {
			rule.Limit, rule.Burst, rule.Revision, rule.Past = t.limit, t.burst, t.number, t.past
			rule.Loose = t.loose
			continue
		}
		h, known := r.reported[id]
		switch {
		case known && now-h.at < int64(reportedFor) && h.number > rule.Revision:
			rule.Limit, rule.Burst, rule.Revision, rule.Past = h.limit, h.burst, h.number, h.past
		case rule.Revision > 0 && (known || r.hasRoomLocked(now)):
			rule.Past = h.pastOf(rule, known, now)
			r.reported[id] = revision{rule.Limit, rule.Burst, false, rule.Past, rule.Revision, now}
		}
	}
}

// hasRoomLocked says whether one more rule may be remembered. Now and then it forgets the old ones
// first.
func (r *Revisions) hasRoomLocked(now int64) bool {
	if r.reported == nil {
		r.reported = make(map[storage.RuleID]revision)
	}
	if now-r.swept >= int64(reportedFor) {
		r.swept = now
		maps.DeleteFunc(r.reported, func(id storage.RuleID, h revision) bool {
			drained := time.Duration(0) // until then a level depends on the past limits
			if id.Shape.Drains() {
				drained = 2 * id.Shape.Length
			}
			return now-h.at >= int64(max(reportedFor, drained))
		})
	}
	return len(r.reported) < maxReported
}
