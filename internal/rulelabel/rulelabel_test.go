package rulelabel

import (
	"fmt"
	"testing"
)

func TestAllHaveALabelWhereThereIsRoom(t *testing.T) {
	var l Labels
	equal(t, "before anything is known", l.Of("a"), Other)
	l.Assign([]Activity{{"a", 3}, {"idle", 0}})
	for _, rule := range []string{"a", "idle"} {
		equal(t, rule, l.Of(rule), rule)
	}
}

func TestTheBusiestHaveLabelsAndKeepThem(t *testing.T) {
	rules := make([]Activity, 3*Most)
	for i := range rules {
		rules[i] = Activity{Rule: fmt.Sprintf("r%d", i)}
	}
	var l Labels
	own := func() (n int) {
		for _, r := range rules {
			if l.Of(r.Rule) == r.Rule {
				n++
			}
		}
		return n
	}
	l.Assign(rules)
	equal(t, "idle rules with a label, which would be chance", own(), 0)

	rules[7].Count = 1
	l.Assign(rules)
	if n := own(); n != 1 || l.Of("r7") != "r7" {
		t.Fatalf("%d labels, that of r7 is %q", n, l.Of("r7"))
	}

	for i := range rules {
		rules[i].Count += int64(i) // the last are the busiest
	}
	l.Assign(rules)
	equal(t, "labels", own(), Most)
	equal(t, "r7, whose counter must not go backwards", l.Of("r7"), "r7")
	last, first := rules[len(rules)-1].Rule, rules[8].Rule
	if l.Of(last) != last || l.Of(first) != Other {
		t.Errorf("labels of the busiest and of the idlest: %q, %q", l.Of(last), l.Of(first))
	}

	rules[8].Count = 1 << 40
	l.Assign(rules)
	equal(t, "a rule that becomes busy, as the counter of others must not go backwards", l.Of(first), Other)
}

// TestLabelsOfRulesThatAreGone: rules that are renamed again and again do not use labels up, and
// those that were counted among the rest stay there.
func TestLabelsOfRulesThatAreGone(t *testing.T) {
	var l Labels
	for i := range 10 * Most {
		rules := []Activity{{fmt.Sprint("r", i), 1}}
		l.Assign(rules)
		l.Keep(rules)
		equal(t, "the only rule", l.Of(rules[0].Rule), rules[0].Rule)
	}

	rules := []Activity{{"late", 1}}
	for i := range Most {
		rules = append(rules, Activity{fmt.Sprint("r", i), 2})
	}
	l = Labels{}
	for _, rules := range [][]Activity{rules, rules[:2], rules[:2]} { // all but two go
		l.Assign(rules)
		l.Keep(rules)
		equal(t, "late, as the counter of others must not go backwards", l.Of("late"), Other)
	}
	l.Assign([]Activity{{"new", 1}})
	equal(t, "new, with labels left", l.Of("new"), "new")
	l.Free("new")
	equal(t, "new, without a label", l.Of("new"), Other)
}

// equal fails the test unless both are the same.
func equal[T comparable](t testing.TB, what any, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%v: got %v, want %v", what, got, want)
	}
}
