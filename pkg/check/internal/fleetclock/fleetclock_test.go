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

// TestSmallestRoundTripWins, and an answer that was too slow says nothing of the time.
func TestSmallestRoundTripWins(t *testing.T) {
	var c Clock
	if c.Observe(0, 77, int64(LongestRoundTrip)+1, 0); c.Known() {
		t.Error("known from an answer that was too slow")
	}
	for _, s := range []struct{ sent, fleet, now, target int64 }{
		{0, int64(LongestRoundTrip), int64(LongestRoundTrip), int64(LongestRoundTrip) / 2}, // just fast enough
		{0, 500, 100, 450},
		{1000, 2000, 1010, 995},
		{2000, 9000, 2900, 995},
		{9000, 1, 8000, 995}, // answered before it was asked
	} {
		if c.Observe(s.sent, s.fleet, s.now, 0); !c.Known() || c.target != s.target {
			t.Errorf("after a round trip of %d: target %d, want %d", s.now-s.sent, c.target, s.target)
		}
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

// TestErrorRemembersContradictions: a slow answer that contradicts nothing does not clear what a
// good one has shown. (Permits were spent for 227 ms too long.)
func TestErrorRemembersContradictions(t *testing.T) {
	var c Clock
	c.Observe(noon, noon, noon+2*ms, 0)
	c.Observe(noon+2*second, noon+2*second+228*ms, noon+2*second+2*ms, 0) // the machine was asleep
	before := c.Error()
	c.Observe(noon+4*second, noon+4*second+552*ms, noon+4*second+651*ms, 0)
	if after := c.Error(); before < 227*ms || after < before {
		t.Errorf("the error is %d µs, and %d µs after a slow answer", before/1000, after/1000)
	}
}

// TestBadObservationsDoNotPullAGoodClock, however many there are: it stays within its error of the
// fleet's time, which grows with the drift alone, until they are better than that.
func TestBadObservationsDoNotPullAGoodClock(t *testing.T) {
	var c Clock
	c.Observe(noon, noon+ms, noon+2*ms, 0)
	for after := 2 * second; after < 600*second; after += 2 * second {
		now := noon + after
		c.Observe(now-900*ms, now-890*ms, now, 0) // the answer waited for 880 ms
		c.Slew(now)
		if off, most := distance(c.Fleet(now), now), ms+int64(margin)+after/driftShare; off != 0 || c.Error() > most {
			t.Fatalf("after %d s: %d off, and says %d", after/second, off, c.Error())
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

// TestAClockFarOffStepsAgain: if all of the last eight observations say so. Only a step back moves
// hits.
func TestAClockFarOffStepsAgain(t *testing.T) {
	for _, test := range []struct {
		why    string
		behind int64
		n      int // observations after the first
		want   int64
	}{
		{"seven of eight", 3600 * second, 7, 0},
		{"all", 3600 * second, 8, 3600 * second},
		{"all, but not far", int64(farOff) - 1, 20, 0},
		{"all, just far enough", int64(farOff), 8, int64(farOff)},
		{"seven of eight, ahead", -60 * second, 7, 0},
		{"all, ahead", -60 * second, 8, -60 * second},
		{"all, ahead, but not far", 1 - int64(farOff), 20, 0},
		{"all, ahead, just far enough", -int64(farOff), 8, -int64(farOff)},
	} {
		var c Clock
		c.Observe(noon, noon, noon, 0)
		var moved int64
		for range test.n {
			moved += c.Observe(noon, noon+test.behind, noon, 0)
		}
		if got := int64(c.Offset()); got != test.want || moved != min(test.want, 0) {
			t.Errorf("%s: offset %d, hits moved by %d, want %d", test.why, got, moved, test.want)
		}
	}
	var c Clock
	c.Observe(noon, noon, noon, 0)
	for i := range int64(40) { // aggregators that contradict each other
		c.Observe(noon, noon+(2*(i%2)-1)*60*second, noon, 0)
	}
	if c.Offset() != 0 {
		t.Errorf("offset %v after observations on both sides", c.Offset())
	}
}

// TestABetterLookCorrectsAGuess at once, in either direction, if it proves it wrong and slewing
// would take long.
func TestABetterLookCorrectsAGuess(t *testing.T) {
	look := func(c *Clock, trip, offset int64, err int64) int64 {
		return c.Observe(noon, noon+trip/2+offset, noon+trip, err)
	}
	for _, sign := range []int64{1, -1} {
		for _, test := range []struct {
			why            string
			trip, off, err int64
			want           int64
		}{
			{"proved wrong", 10 * ms, 530 * ms, 0, 530 * ms},
			{"proved wrong, beyond the error of the guess", 10 * ms, 2 * second, 0, 2 * second},
			{"a little off", 10 * ms, 50 * ms, 0, 0},
			{"within the error of the better one", 1500 * ms, 700 * ms, 0, 0},
			{"a worse one", 1900 * ms, 2500 * ms, 300 * ms, 0},
			{"a faster one of an aggregator that knows less", 10 * ms, 2500 * ms, 2 * second, 0},
		} {
			var c Clock
			if step := look(&c, 2*second, 0, 100*ms); step != 0 || c.Error() < second {
				t.Fatalf("the guess: stepped by %d, error %d", step, c.Error())
			}
			if step := look(&c, test.trip, sign*test.off, test.err); step != sign*test.want || int64(c.Offset()) != sign*test.want {
				t.Errorf("%s: stepped by %d, offset %d, want %d", test.why, step, c.Offset(), sign*test.want)
			}
		}
		// Once a good observation has confirmed it, a clock is no guess any more.
		var c Clock
		look(&c, 2*second, 0, 0)
		look(&c, 10*ms, 3*ms, 0)
		if step := look(&c, 10*ms, sign*530*ms, 0); step != 0 {
			t.Errorf("a confirmed clock steps by %d", step)
		}
		look(&c, 2*ms, 2*ms, 0)
		if step := look(&c, ms, sign*50*ms, 0) + look(&c, 2*second, sign*2*second, 0); step != 0 {
			t.Errorf("a clock that slews steps by %d, after a look that is worse than the best", step)
		}
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

// Of a clock that many looks agree on, one better look proves nothing, however far off it says that
// the clock is: only all of the last ones do.
func TestOneLookDoesNotStepAGoodClock(t *testing.T) {
	for _, off := range []int64{60 * ms, -60 * ms, 3600 * second} {
		var c Clock
		for range 30 {
			c.Observe(noon, noon+ms/2, noon+ms, 0)
		}
		if step := c.Observe(noon, noon+ms*45/100+off, noon+ms*9/10, 0); step != 0 || c.Offset() != 0 {
			t.Errorf("a look that is %d ms off: a step of %d ns, offset %v", off/ms, step, c.Offset())
		}
	}
}

// TestDrift: crystals are good to 100 ppm, those of this machine and of the aggregator's, and the
// fleet's time may return to the store's by 20 ppm. Then it is off by less than Error, even
// where all hellos but the first are slow.
func TestDrift(t *testing.T) {
	var c Clock
	for after := int64(0); after < 16*second; after += 2 * second {
		fleet := noon + after + 22*after/100_000
		trip := min(after, 100*ms)
		c.Observe(noon+after-trip, fleet-trip/2, noon+after, 0)
		c.Slew(noon + after)
		if off := distance(c.Fleet(noon+after), fleet); off > c.Error()-int64(margin) {
			t.Errorf("after %d s it is %d off, and says %d, beside the margin", after/second, off, c.Error()-int64(margin))
		}
	}
}

// TestTwoNewerOnesRefuteTheBest: the fleet's time has moved, maybe while answers were slow, and a
// checker follows from the second answer on that says so, even if none is better than the best of
// before. (It took until that had left the last eight, 16 s.) One alone moves nothing, and two on
// both sides do not.
func TestTwoNewerOnesRefuteTheBest(t *testing.T) {
	for _, test := range []struct {
		why  string
		offs []int64 // of answers that are as good as the first, in ms; 1000 is a slow one
		want int64
	}{
		{"one", []int64{95}, 0},
		{"two", []int64{95, 95}, 95},
		{"two, behind", []int64{-95, -95}, -95},
		{"two while it moves", []int64{50, 95, 95}, 95},
		{"two on both sides", []int64{95, -95}, 0},
		{"two that agree with the first", []int64{3, 3}, 0},
		{"a slow one after two", []int64{95, 95, 1000}, 95},
		{"one that was wrong", []int64{95, 0, 0}, 0},
		{"two that are far off", []int64{5000, 5000}, 0},
		{"one that is far off and one that is not", []int64{6000, 95}, 0},
		{"two after one that is far off", []int64{6000, 95, 95}, 95},
		{"two after two that are far off", []int64{6000, 6000, 95, 95}, 95},
	} {
		var c Clock
		c.Observe(noon, noon+2*ms, noon+4*ms, 0)
		now := noon
		for _, off := range test.offs {
			now += 2 * second
			trip := 4 * ms
			if off == 1000 {
				trip, off = second, test.want+400
			}
			c.Observe(now-trip, now-trip/2+off*ms, now, 0)
		}
		if c.target != test.want*ms {
			t.Errorf("%s: it goes to %d ms, want %d", test.why, c.target/ms, test.want)
		}
		if c.Slew(now + 4*second); c.Offset() != time.Duration(test.want*ms) {
			t.Errorf("%s: offset %v, want %d ms", test.why, c.Offset(), test.want)
		}
	}
}

// TestATooSlowAnswerRefutesNothing, whatever the one before it did.
func TestATooSlowAnswerRefutesNothing(t *testing.T) {
	var c Clock
	c.Observe(noon, noon, noon+2*ms, 0)
	if c.Observe(noon+ms, noon+second, noon+3*ms, 0); !c.Refuted() {
		t.Fatal("an answer that is 1 s off does not refute the best one")
	}
	if c.Observe(noon, noon, noon+int64(LongestRoundTrip)+1, 0); c.Refuted() {
		t.Error("an answer that says nothing of the time refutes the best one")
	}
}
