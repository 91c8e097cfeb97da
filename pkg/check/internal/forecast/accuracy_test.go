package forecast

import "testing"

// bounds are what a count may stray from the limit, and how many hits may be denied wrongly, in per
// cent. They are up to 1.5 times what is measured over six seeds, where that is less than a per
// cent or two.
type bounds struct{ over, under, wrong float64 }

// unbounded is a bound for a time that begins with an empty window.
const unbounded = 100

// within lets traffic come for a while, and fails the test unless counts are within bounds all the
// time.
func (y *fleet) within(t *testing.T, b bounds, span int64, perMs float64, where func() int) {
	t.Helper()
	y.from, y.until = y.now, y.now+span
	y.most, y.least, y.wrong, y.hits = 0, limit, 0, 0
	y.run(span, perMs, where)
	got := bounds{100 * (y.most/limit - 1), 100 * (1 - y.least/limit), 100 * y.wrong / y.hits}
	expect(t, got.over <= b.over && got.under <= b.under && got.wrong <= b.wrong,
		"%d checkers, rounds of %d ms: %.2f, want at most %v", len(y.checkers), y.round/ms, got, b)
}

// anywhere sends each hit to any checker.
func (y *fleet) anywhere() int { return y.random.IntN(len(y.checkers)) }

// mostlyFirst sends nine of ten hits to the first one, and the tenth to any.
func (y *fleet) mostlyFirst() int {
	if y.random.IntN(10) > 0 {
		return 0
	}
	return y.anywhere()
}

// hopping sends hits to one checker for so many ms, then to another.
func (y *fleet) hopping(stay int64) func() int {
	return func() int { return int((y.now - noon) / (stay * ms) * 5 % int64(len(y.checkers))) }
}

// In fast rounds everybody knows more than in normal rounds.
func TestFiveTimesTheLimitIsHeldToIt(t *testing.T) {
	for _, test := range []struct {
		checkers           int
		round              int64
		first, over, under float64
	}{
		{1, fast, 0.1, 0.1, 0.6}, {2, fast, 0.9, 0.3, 0.6}, {8, fast, 1.2, 0.7, 0.9}, {50, fast, 1.2, 1.1, 1.9},
		{1, 8 * fast, 0.1, 0.1, 0.6}, {2, 8 * fast, 1.5, 0.5, 0.8}, {8, 8 * fast, 2, 1, 1.5},
		{50, 8 * fast, 3.6, 3, 2},
	} {
		for _, halves := range []bool{false, true} {
			y := newFleet(test.checkers, test.round)
			y.halves = halves
			y.within(t, bounds{test.first, unbounded, 0.2}, 1500*ms, 5, y.anywhere)
			y.within(t, bounds{test.over, test.under, 0}, 3000*ms, 5, y.anywhere)
		}
	}
}

// Where little more comes than may pass, or little less, next to nothing is denied.
func TestNearTheLimitFewAreDenied(t *testing.T) {
	for _, test := range []struct {
		checkers                  int
		perMs, over, under, share float64 // share of hits that are denied, in per cent
	}{{2, 1.2, 0.6, 2, 20}, {8, 1.2, 1, 2, 20}, {8, 0.9, 0, 20, 0}, {50, 0.8, 0, 30, 0}} {
		y := newFleet(test.checkers, fast)
		y.run(2500*ms, test.perMs, y.anywhere)
		denied := -y.total.denied.sum()
		y.within(t, bounds{test.over, test.under, 0}, 2000*ms, test.perMs, y.anywhere)
		if denied += y.total.denied.sum(); 100*denied > test.share*y.hits {
			t.Errorf("%+v: %v of %v denied", test, denied, y.hits)
		}
	}
}

// Checkers whose shares are not equal learn them, and do no worse.
func TestUnequalSharesAreLearnt(t *testing.T) {
	for _, n := range []int{2, 8, 50} {
		y := newFleet(n, fast)
		y.run(2500*ms, 5, y.mostlyFirst)
		y.within(t, bounds{0.4, 1.1, 0}, 3000*ms, 5, y.mostlyFirst)
		near(t, "the part of the one with nine of ten hits", y.checkers[0].share.part, 0.9+0.1/float64(n), 0.014)
	}
}

// All hits come to one checker, which is another one every so often. Nobody may take what comes
// here for its part of more that comes elsewhere.
func TestTrafficThatHopsIsNotMultiplied(t *testing.T) {
	for _, test := range []struct {
		checkers int
		stay     int64
	}{{2, 50}, {2, 100}, {2, 300}, {8, 100}, {8, 200}, {8, 300}, {50, 1000}} {
		y := newFleet(test.checkers, fast)
		where := y.hopping(test.stay)
		y.run(1500*ms, 5, where)
		y.within(t, bounds{0.45, 2, 0}, 3000*ms, 5, where)
	}
}

// Hits come thirty times as fast from one moment to the next. What is below the limit counts once
// they have had the time to reach it.
func TestSurgeIsHeldToTheLimit(t *testing.T) {
	for _, test := range []struct {
		checkers           int
		over, wrong, after float64
	}{{1, 0.1, 0, 0.1}, {2, 0.1, 0.1, 0.1}, {8, 1, 0.9, 0.25}, {50, 1.5, 1, 0.6}} {
		y := newFleet(test.checkers, fast)
		y.run(2000*ms, 0.5, y.anywhere)
		y.within(t, bounds{test.over, unbounded, test.wrong}, 100*ms, 15, y.anywhere)
		y.within(t, bounds{test.after, 1.3, 0}, 900*ms, 15, y.anywhere)
		y.run(1000*ms, 1.5, y.anywhere)
		y.within(t, bounds{1, 2, 0}, 900*ms, 1.5, y.anywhere)
	}
}
