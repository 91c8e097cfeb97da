package rulelabel

import (
	"fmt"
	"testing"
)

func TestAllHaveALabelWhereThereIsRoom(t *testing.T) {
	var l Labels
	if got := l.Of("a"); got != Other {
		t.Errorf("before anything is known: %q", got)
	}
	l.Assign([]Activity{{"a", 3}, {"idle", 0}})
	for _, rule := range []string{"a", "idle"} {
		if got := l.Of(rule); got != rule {
			t.Errorf("label of %s: %q", rule, got)
		}
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
	if n := own(); n != 0 {
		t.Fatalf("%d idle rules have a label: which of them would be chance", n)
	}

	rules[7].Count = 1
	l.Assign(rules)
	if n := own(); n != 1 || l.Of("r7") != "r7" {
		t.Fatalf("%d labels, that of r7 is %q", n, l.Of("r7"))
	}

	for i := range rules {
		rules[i].Count += int64(i) // the last are the busiest
	}
	l.Assign(rules)
	if n := own(); n != Most {
		t.Fatalf("%d labels, want %d", n, Most)
	}
	if l.Of("r7") != "r7" {
		t.Error("r7 lost its label: its counter would go backwards")
	}
	last, first := rules[len(rules)-1].Rule, rules[8].Rule
	if l.Of(last) != last || l.Of(first) != Other {
		t.Errorf("labels of the busiest and of the idlest: %q, %q", l.Of(last), l.Of(first))
	}

	rules[8].Count = 1 << 40
	l.Assign(rules)
	if l.Of(first) != Other {
		t.Error("a rule moved from one label to another: the counter of other would go backwards")
	}
}

// TestLabelsOfRulesThatAreGone: rules that are renamed again and again do not use labels up, and
// those that were counted among the rest stay there.
func TestLabelsOfRulesThatAreGone(t *testing.T) {
	var l Labels
	for i := range 10 * Most {
		rules := []Activity{{fmt.Sprint("r", i), 1}}
		l.Assign(rules)
		l.Keep(rules)
		if got := l.Of(rules[0].Rule); got != rules[0].Rule {
			t.Fatalf("%s is called %s", rules[0].Rule, got)
		}
	}

	rules := []Activity{{"late", 1}}
	for i := range Most {
		rules = append(rules, Activity{fmt.Sprint("r", i), 2})
	}
	l = Labels{}
	for _, rules := range [][]Activity{rules, rules[:2], rules[:2]} { // all but two go
		l.Assign(rules)
		l.Keep(rules)
		if got := l.Of("late"); got != Other {
			t.Errorf("late moved to %s: the counter of other would go backwards", got)
		}
	}
	l.Assign([]Activity{{"new", 1}})
	if got := l.Of("new"); got != "new" {
		t.Errorf("new is called %s, with labels left", got)
	}
	l.Free("new")
	if got := l.Of("new"); got != Other {
		t.Errorf("new is called %s without a label", got)
	}
}
