package main

import (
	"sync"

	"github.com/offpath-io/offpath/internal/rulelabel"
	"github.com/offpath-io/offpath/pkg/check"
)

// ruleSums sums the rules' counters by the rules' labels, at each scrape. None goes backwards when rules go: what a rule counted that had
// no label of its own stays with the rest, what one with a label counted goes to those removed. So the sum over all labels misses
// none.
type ruleSums struct {
	mu     sync.Mutex
	labels rulelabel.Labels
	rest   map[string]check.RuleStats // those without a label of their own, as of the last scrape
	left   check.RuleStats            // what those of them counted that are gone
}

// of takes a snapshot, and sums it. Snapshots have to be taken in here, one after the other.
func (r *ruleSums) of(snapshot func() check.Stats) (check.Stats, map[string]check.RuleStats) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := snapshot()
	return s, r.byLabel(s)
}

// byLabel sums a snapshot. The lock is held.
func (r *ruleSums) byLabel(s check.Stats) map[string]check.RuleStats {
	busy := make([]rulelabel.Activity, len(s.Rules))
	for i, of := range s.Rules {
		// Not the decisions alone: the snapshot may have caught a hit before its decision.
		busy[i] = rulelabel.Activity{Rule: of.Rule, Count: of.Allowed + of.Denied + of.Charged}
	}
	r.labels.Assign(busy)
	sums, rest := make(map[string]check.RuleStats), make(map[string]check.RuleStats)
	for _, of := range s.Rules {
		label := r.labels.Of(of.Rule)
		addTo(sums, label, 1, of)
		if label == rulelabel.Other && of.Rule != rulelabel.Other {
			rest[of.Rule] = of
		}
	}
	r.labels.Keep(busy)
	r.leave(rest)
	if r.left != (check.RuleStats{}) {
		addTo(sums, rulelabel.Other, 1, r.left)
		addTo(sums, rulelabel.Removed, -1, r.left)
	}
	if s.Removed != (check.RuleStats{}) {
		addTo(sums, rulelabel.Removed, 1, s.Removed)
	}
	return sums
}

// leave notes which rules of the rest are gone, also if one of the same name has begun anew.
func (r *ruleSums) leave(rest map[string]check.RuleStats) {
	for name, before := range r.rest {
		if now, ok := rest[name]; ok && now.Charged >= before.Charged && now.Denied >= before.Denied {
			continue
		}
		before.Pending, before.InFlight = 0, 0
		left := map[string]check.RuleStats{"": r.left}
		addTo(left, "", 1, before)
		r.left = left[""]
	}
	r.rest = rest
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
