package offpath

import (
	"sync"

	"github.com/offpath-io/offpath/internal/rulelabel"
	"github.com/offpath-io/offpath/pkg/check"
)

// labels sums the rules' counters by the rules' labels, so that a fleet of any number of rules has
// a bounded number of metrics. No sum goes backwards when rules go: what a rule without a label of
// its own counted stays with the rest, what one with a label counted goes to those removed. So the
// sum over all labels misses no hit.
type labels struct {
	mu       sync.Mutex
	assigned rulelabel.Labels
	rest     map[string]check.RuleStats // rules without a label of their own, at the last snapshot
	left     check.RuleStats            // what those of them counted that are gone
}

// sums takes a snapshot, and sums it. Snapshots have to be taken in here, one after the other.
func (l *labels) sums(snapshot func() check.Stats) (check.Stats, map[string]check.RuleStats) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := snapshot()
	return s, l.sumLocked(s)
}

func (l *labels) sumLocked(s check.Stats) map[string]check.RuleStats {
	busy := make([]rulelabel.Activity, len(s.Rules))
	for i, of := range s.Rules {
		// Not the decisions alone: the snapshot may have caught a hit before its decision.
		busy[i] = rulelabel.Activity{Rule: of.Rule, Count: of.Allowed + of.Denied + of.Charged}
	}
	l.assigned.Assign(busy)
	sums, rest := make(map[string]check.RuleStats), make(map[string]check.RuleStats)
	for _, of := range s.Rules {
		label := l.assigned.Of(of.Rule)
		addTo(sums, label, 1, of)
		if label == rulelabel.Other && of.Rule != rulelabel.Other {
			rest[of.Rule] = of
		}
	}
	l.assigned.Keep(busy)
	l.leaveLocked(rest)
	if l.left != (check.RuleStats{}) {
		addTo(sums, rulelabel.Other, 1, l.left)
		addTo(sums, rulelabel.Removed, -1, l.left)
	}
	if s.Removed != (check.RuleStats{}) {
		addTo(sums, rulelabel.Removed, 1, s.Removed)
	}
	return sums
}

// leaveLocked notes which rules of the rest are gone, also if one of the same name has begun anew.
func (l *labels) leaveLocked(rest map[string]check.RuleStats) {
	for name, before := range l.rest {
		now, ok := rest[name]
		if ok && now.Charged >= before.Charged && now.Denied >= before.Denied {
			continue
		}
		before.Pending, before.InFlight = 0, 0
		left := map[string]check.RuleStats{"": l.left}
		addTo(left, "", 1, before)
		l.left = left[""]
	}
	l.rest = rest
}

func addTo(sums map[string]check.RuleStats, label string, times int64, r check.RuleStats) {
	sum := sums[label]
	sum.Allowed += times * r.Allowed
	sum.Denied += times * r.Denied
	sum.Charged += times * r.Charged
	sum.Answered += times * r.Answered
	sum.InFlight += times * r.InFlight
	sum.Pending += times * r.Pending
	sum.Overflow += times * r.Overflow
	sum.Lost += times * r.Lost
	sum.BadCosts += times * r.BadCosts
	sum.Cancelled += times * r.Cancelled
	sum.FalseDenials += times * r.FalseDenials
	sums[label] = sum
}
