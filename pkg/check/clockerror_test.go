package check

import (
	"testing"
)

func TestClockError(t *testing.T) {
	var c clock
	c.judge(noon)
	expect(t, c.err.Load() == unknownError, "a clock that was never held against another has an error")
	margin := int64(clockMargin)
	steps := []struct {
		why               string
		sent, fleet, now  int64
		want              int64
		slewUntil, slewed int64 // and after slewing until then
	}{
		{"half of the first round trip", noon, noon + 10*ms, noon + 20*ms, 10*ms + margin, 0, 0},
		{"a shorter one; the step of 1 ms is not slewed yet", noon + 2*second, noon + 2*second + 3*ms, noon + 2*second + 4*ms,
			2*ms + ms + margin, noon + 2*second + 24*ms, 2*ms + margin + 20*ms/driftShare},
		{"a longer one changes nothing but the age of the best", noon + 4*second, noon + 4*second + 31*ms, noon + 4*second + 60*ms,
			2*ms + margin + (2*second+56*ms)/driftShare, 0, 0},
		{"one that contradicts the best counts in full", noon + 6*second, noon + 6*second + 505*ms, noon + 6*second + 8*ms,
			500*ms + 4*ms + margin + (4*second+4*ms)/driftShare, 0, 0},
	}
	for _, step := range steps {
		c.observe(step.sent, step.fleet, step.now)
		c.slewed = step.now
		equal(t, c.err.Load(), step.want, "%s: ns", step.why)
		if step.slewUntil != 0 {
			c.slew(step.slewUntil)
			equal(t, c.err.Load(), step.slewed, "%s: ns when slewed", step.why)
		}
	}
}
