package rules

import "testing"

func TestSame(t *testing.T) {
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
	if !first[0].Same(first[0]) || !first[0].Same(second[1]) || first[0].Same(first[1]) || first[0].Same(second[0]) {
		t.Error("not the same, or the same")
	}
}
