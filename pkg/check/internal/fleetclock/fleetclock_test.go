package fleetclock

import (
	"testing"
	"time"
)

const (
	ms     = int64(time.Millisecond)
	second = int64(time.Second)
)

// noon is where tests count from.
var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC).UnixNano()

func TestSmallestRoundTripWins(t *testing.T) {
	var c Clock
	for _, s := range []struct{ sent, fleet, now int64 }{
		{0, 500, 100},                        // round trip 100: offset 450
		{1000, 2000, 1010},                   // round trip 10: offset 995
		{2000, 9000, 2900},                   // round trip 900
		{9000, 1, 8000},                      // answered before it was asked
		{0, 77, int64(LongestRoundTrip) + 1}, // too slow to mean anything
	} {
		c.Observe(s.sent, s.fleet, s.now, 0)
	}
	if c.target != 995 {
		t.Errorf("target of the smallest round trip: %d, want 995", c.target)
	}
}

// TestError: how far the fleet's time may be off is the sum that Error describes.
func TestError(t *testing.T) {
	var c Clock
	if c.Slew(noon); c.Error() != unknownError {
		t.Error("a clock that was never compared with another has an error")
	}
	const rest = int64(margin)
	steps := []struct {
		why               string
		sent, fleet, now  int64
		err               int64 // that the aggregator states
		want              int64
		slewUntil, slewed int64 // and after slewing until then
	}{
		{"half of the first round trip", noon, noon + 10*ms, noon + 20*ms, 0, 10*ms + rest, 0, 0},
		{"a shorter one, of an aggregator that has just started",
			noon + second, noon + second + 9*ms, noon + second + 2*ms, 12 * ms,
			10*ms + rest + (second-18*ms)/driftShare, 0, 0},
		{"a shorter one; the step of 1 ms is not slewed yet",
			noon + 2*second, noon + 2*second + 3*ms, noon + 2*second + 4*ms, 0,
			2*ms + ms + rest, noon + 2*second + 24*ms, 2*ms + rest + 20*ms/driftShare},
		{"a longer one changes nothing but the age of the best",
			noon + 4*second, noon + 4*second + 31*ms, noon + 4*second + 60*ms, 0,
			2*ms + rest + (2*second+56*ms)/driftShare, 0, 0},
		{"one that contradicts the best counts in full",
			noon + 6*second, noon + 6*second + 505*ms, noon + 6*second + 8*ms, 0,
			500*ms + 4*ms + rest + (4*second+4*ms)/driftShare, 0, 0},
	}
	equal := func(why string, want int64) {
		t.Helper()
		if got := c.Error(); got != want {
			t.Errorf("%s: %d ns, want %d", why, got, want)
		}
	}
	for _, step := range steps {
		c.Observe(step.sent, step.fleet, step.now, step.err)
		c.slewed = step.now
		equal(step.why, step.want)
		if step.slewUntil != 0 {
			c.Slew(step.slewUntil)
			equal(step.why+", slewed", step.slewed)
		}
	}
}

// TestCoarseTimeStepsWithTheClock, and there is none without ticks.
func TestCoarseTimeStepsWithTheClock(t *testing.T) {
	for _, ticks := range []bool{false, true} {
		var c Clock
		want := int64(0)
		if ticks {
			c.Tick(noon)
			want = noon + second
		}
		if step := c.Observe(noon, noon+second, noon, 0); step != second || c.Coarse() != want {
			t.Errorf("ticks %v: stepped by %d, coarse time %d, want %d", ticks, step, c.Coarse(), want)
		}
	}
}

// TestOnlyAClockFarBehindStepsAgain: if all of the last eight observations say so.
func TestOnlyAClockFarBehindStepsAgain(t *testing.T) {
	for _, test := range []struct {
		why    string
		behind int64
		n      int // observations after the first
		want   int64
	}{
		{"seven of eight", 3600 * second, 7, 0},
		{"all", 3600 * second, 8, 3600 * second},
		{"all, but not far", int64(stepForward) - 1, 20, 0},
		{"all, just far enough", int64(stepForward), 8, int64(stepForward)},
	} {
		var c Clock
		c.Observe(noon, noon, noon, 0)
		for range test.n {
			c.Observe(noon, noon+test.behind, noon, 0)
		}
		if got := int64(c.Offset()); got != test.want {
			t.Errorf("%s: offset %d, want %d", test.why, got, test.want)
		}
	}
}

// TestSlowAnswersSayNothing of the time.
func TestSlowAnswersSayNothing(t *testing.T) {
	var c Clock
	if c.Observe(noon, noon, noon+int64(LongestRoundTrip)+1, 0); c.Known() {
		t.Error("known from an answer that was too slow")
	}
	if c.Observe(noon, noon, noon+int64(LongestRoundTrip), 0); !c.Known() {
		t.Error("not known from one that was just fast enough")
	}
}

// TestOwnIsTheInverseOfFleet, by whatever offset.
func TestOwnIsTheInverseOfFleet(t *testing.T) {
	var c Clock
	c.Observe(noon, noon-5*second, noon+2*ms, 0)
	if got := c.Own(c.Fleet(noon)); got != noon || c.Fleet(noon) == noon {
		t.Errorf("own time %d, want %d", got, noon)
	}
}
