package check

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/offpath-io/offpath/pkg/rules"
)

// It says what Explain says, of the rules that apply.
func TestStandingIsPartOfExplain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set, err := rules.Parse([]byte(anyClauses(t)))
		if err != nil {
			t.Fatal(err)
		}
		c, err := New(Options{Rules: set})
		if err != nil {
			t.Fatal(err)
		}
		now := int64(1_800_000_000_000_000_000)
		attrs := anyRequest(t)
		for range rapid.IntRange(0, 30).Draw(t, "hits") {
			now += rapid.Int64Range(0, int64(300*time.Millisecond)).Draw(t, "later")
			c.RecordAt(now, attrs, 1)
		}
		now += rapid.Int64Range(0, int64(5*time.Second)).Draw(t, "ahead")
		_, all := c.ExplainAt(now, attrs, 1)
		some, _ := c.StandingAt(now, attrs)
		for _, want := range all {
			if want.Why != "" {
				continue
			}
			want.Decides = false
			if len(some) == 0 || some[0] != want {
				t.Fatalf("got %+v, want %+v", some, want)
			}
			some = some[1:]
		}
		if len(some) > 0 {
			t.Fatalf("beyond what Explain says: %+v", some)
		}
	})
}
