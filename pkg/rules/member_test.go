package rules

import "testing"

func TestPlaceAndEqual(t *testing.T) {
	const a, b = "{name: a, key: [user], limit: 1/second}", "{name: b, match: {api: x}, key: [user], limit: 2/second}"
	one, err := Parse([]byte("rules: [" + a + "," + b + "]"))
	if err != nil {
		t.Fatal(err)
	}
	two, err := Parse([]byte("rules: [" + b + "," + a + "]"))
	if err != nil {
		t.Fatal(err)
	}
	first, second := one.Rules(), two.Rules()
	for i := range 2 {
		if first[i].Place() != i || second[i].Place() != i {
			t.Errorf("rule %d is at %d and %d", i, first[i].Place(), second[i].Place())
		}
	}
	if c := *first[1]; c.Place() != -1 || new(Rule).Place() != -1 {
		t.Errorf("a copy is at %d, a rule of no set at %d", c.Place(), new(Rule).Place())
	}
	if !first[0].Equal(first[0]) || !first[0].Equal(second[1]) || first[0].Equal(first[1]) || first[0].Equal(second[0]) {
		t.Error("not the same, or the same")
	}
}
