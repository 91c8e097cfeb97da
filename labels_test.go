package offpath

import (
	"fmt"
	"testing"

	"github.com/offpath-io/offpath/internal/rulelabel"
	"github.com/offpath-io/offpath/pkg/check"
)

// scrape sums a snapshot by label, as each scrape does, and adds all labels up.
func scrape(r *labels, s check.Stats) (byLabel map[string]check.RuleStats, all check.RuleStats) {
	_, byLabel = r.sums(func() check.Stats { return s })
	sum := make(map[string]check.RuleStats)
	for _, one := range byLabel {
		addTo(sum, "", 1, one)
	}
	return byLabel, sum[""]
}

// TestManyRules: of more rules than labels, the busiest have one of their own and keep it, and no
// counter goes backwards. One rule is called like the rest together.
func TestManyRules(t *testing.T) {
	var stats check.Stats
	want := int64(400) // the rule of that name
	for i := range int64(500) {
		one := check.RuleStats{Rule: fmt.Sprint("r", i), Allowed: i, Charged: i}
		stats.Rules = append(stats.Rules, one)
		if i < 300 {
			want += i
		}
	}
	stats.Rules[400].Rule = rulelabel.Other
	var r labels
	before, _ := scrape(&r, stats)
	if n := len(before); n != rulelabel.Most && n != rulelabel.Most+1 {
		t.Errorf("%d labels", n)
	}
	busiest, rest := before["r499"].Allowed, before[rulelabel.Other].Allowed
	if busiest != 499 || rest != want {
		t.Errorf("the busiest: %d, want 499; the rest: %d, want %d", busiest, rest, want)
	}
	for i := range stats.Rules {
		stats.Rules[i].Allowed += int64(1000 - i) // the idlest are the busiest now
	}
	after, _ := scrape(&r, stats)
	for label, was := range before {
		if now := after[label]; now.Allowed < was.Allowed || now.Charged < was.Charged {
			t.Errorf("%s went from %+v to %+v", label, was, now)
		}
	}
}

// TestRemovedRules: no hit is missing from the sum over all rules when rules go, and one may have
// the name of them all.
func TestRemovedRules(t *testing.T) {
	stats := check.Stats{Rules: []check.RuleStats{{Rule: "r", Charged: 1, Denied: 2}}}
	var r labels
	if all, _ := scrape(&r, stats); len(all) != 1 {
		t.Errorf("nothing has been removed: %+v", all)
	}
	stats.Removed = check.RuleStats{Charged: 30, Denied: 4}
	all, _ := scrape(&r, stats)
	if all["r"].Charged != 1 || all[rulelabel.Removed] != stats.Removed {
		t.Errorf("%+v", all)
	}
	stats.Rules = append(stats.Rules, check.RuleStats{Rule: rulelabel.Removed, Charged: 500})
	if all, _ := scrape(&r, stats); all[rulelabel.Removed].Charged != 530 {
		t.Errorf("with a rule of that name: %+v", all)
	}
}

// TestRulesThatGo: half of many rules go, of those with a label of their own and of the rest, and
// one comes back. No counter goes backwards, and the sum over all of them stays right.
func TestRulesThatGo(t *testing.T) {
	var stats check.Stats
	for i := range 2 * rulelabel.Most {
		one := check.RuleStats{Rule: fmt.Sprint("r", i), Charged: 10, Answered: 8, Pending: 2}
		stats.Rules = append(stats.Rules, one)
	}
	var r labels
	before, _ := scrape(&r, stats)

	var stay []check.RuleStats
	for i, one := range stats.Rules {
		if i%2 == 0 {
			stay = append(stay, one)
			continue
		}
		stats.Removed.Charged += 11 // one more since
		stats.Removed.Answered += 11
	}
	stats.Rules = stay
	after, sum := scrape(&r, stats)
	equal(t, "hits", sum.Charged, int64(21*rulelabel.Most))

	stats.Rules = append(stats.Rules,
		check.RuleStats{Rule: "r1", Charged: 1, Answered: 1},
		check.RuleStats{Rule: "new", Charged: 1, Answered: 1})
	again, sum := scrape(&r, stats)
	equal(t, "hits", sum.Charged, int64(21*rulelabel.Most+2))
	const other = rulelabel.Other
	b, a, c := before[other].Charged, after[other].Charged, again[other].Charged
	if a < b || c < a {
		t.Errorf("other went from %d to %d to %d", b, a, c)
	}
	equal(t, "a new rule, with half of the labels left", again["new"].Charged, 1)
}
