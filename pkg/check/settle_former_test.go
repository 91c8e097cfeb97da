package check

import (
	"testing"
	"time"
)

// TestSettleWhileTheRuleIsAway: a checker alone remembers what is settled of a rule that is not in force, or that has another
// window meanwhile, if it comes back as it was.
func TestSettleWhileTheRuleIsAway(t *testing.T) {
	was, other := rule("r", 20, time.Hour, 1), rule("s", 20, time.Hour, 1)
	longer := was
	longer.Window.Length = 2 * time.Hour
	for _, between := range []struct {
		why  string
		rule string
	}{{"away", "s"}, {"another", "r"}} {
		for _, cost := range []int64{0, 1, 9} {
			c := newChecker(t, Options{}, was)
			text := token(t, limiter(t, c, "r"), noon, "k", 5)
			if between.rule == "s" {
				reload(t, c, noon, other)
			} else {
				reload(t, c, noon, longer)
			}
			if err := c.SettleAt(noon, text, cost); err != nil {
				t.Fatal(err)
			}
			reload(t, c, noon, was)
			if got := left(limiter(t, c, "r"), noon, "k"); got != 20-cost {
				t.Errorf("%s, settled at %d: %d left of 20", between.why, cost, got)
			}
		}
	}
}
