package check

import (
	"testing"

	"pgregory.net/rapid"
)

// TestStandingIsPartOfExplain: it says what Explain does, of the rules that apply.
func TestStandingIsPartOfExplain(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := ofYAML(t, Options{}, anyClauses(rt))
		now, attrs := noon, anyRequest(rt)
		for range rapid.IntRange(0, 30).Draw(rt, "hits") {
			now += rapid.Int64Range(0, 300*ms).Draw(rt, "later")
			c.RecordAt(now, attrs, 1)
		}
		now += rapid.Int64Range(0, 5*second).Draw(rt, "ahead")
		_, all := c.ExplainAt(now, attrs, 1)
		some, _ := c.StandingAt(now, attrs)
		for _, want := range all {
			if want.Why != "" {
				continue
			}
			want.Decides = false
			if len(some) == 0 || some[0] != want {
				rt.Fatalf("got %+v, want %+v", some, want)
			}
			some = some[1:]
		}
		if len(some) > 0 {
			rt.Fatalf("beyond what Explain says: %+v", some)
		}
	})
}
