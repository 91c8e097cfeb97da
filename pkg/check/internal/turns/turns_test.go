package turns

import (
	"slices"
	"testing"
)

// TestFirstComeFirstServed: by the order of those who wait, not by when they enter; who leaves
// makes the next one the first.
func TestFirstComeFirstServed(t *testing.T) {
	var l Lines[string]
	yes := func() bool { return true }
	enter := func(order uint64, cost int64) *Place[string] { return l.Enter("a", order, cost, 3, yes) }
	second, third := enter(2, 20), enter(3, 30)
	first := enter(1, 10)
	if l.Cost("a") != 60 || l.Cost("b") != 0 || l.Len() != 1 {
		t.Errorf("cost %d and %d in %d lines", l.Cost("a"), l.Cost("b"), l.Len())
	}
	if enter(4, 1) != nil || l.Enter("b", 4, 1, 3, func() bool { return false }) != nil || l.Enter("b", 4, 1, 0, yes) != nil || l.Len() != 1 {
		t.Error("one too many is in line")
	}
	firsts := func() []bool { return []bool{first.IsFirst(), second.IsFirst(), third.IsFirst()} }
	// The second was the first before the one with a lower order came, and stays one.
	if !slices.Equal(firsts(), []bool{true, true, false}) {
		t.Errorf("first: %v", firsts())
	}
	l.Leave(second)
	if third.IsFirst() {
		t.Error("the third is first before the first has left")
	}
	l.Leave(first)
	if <-third.First(); !third.IsFirst() || l.Cost("a") != 30 {
		t.Errorf("first: %v, cost %d", firsts(), l.Cost("a"))
	}
	if l.Leave(third); l.Len() != 0 {
		t.Errorf("%d lines are left", l.Len())
	}
}
