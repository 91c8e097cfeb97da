package forecast

import "testing"

// bounds are what a count may stray from the limit, and how many hits may be denied wrongly, in per cent.
type bounds struct{ over, under, wrong float64 }

// within fails the test unless that is so in the time that is watched.
func (y *toy) within(t *testing.T, what string, b bounds) {
	t.Helper()
	got := bounds{100 * (y.most/y.limit - 1), 100 * (1 - y.least/y.limit), 100 * y.wrong / y.hits}
	if got.over > b.over || got.under > b.under || got.wrong > b.wrong {
		t.Errorf("%s, %d checkers, rounds of %d ms: %.2f, want at most %v", what, len(y.checkers), y.round/ms, got, b)
	}
}

// anywhere sends each hit to any checker.
func (y *toy) anywhere() int { return y.random.IntN(len(y.checkers)) }

// mostlyFirst sends nine of ten hits to the first one, and the tenth to any.
func (y *toy) mostlyFirst() int {
	if y.random.IntN(10) > 0 {
		return 0
	}
	return y.anywhere()
}

// hopping sends hits to one checker for so many ms, then to another.
func (y *toy) hopping(stay int64) func() int {
	return func() int { return int((y.now - noon) / (stay * ms) * 5 % int64(len(y.checkers))) }
}

// TestSteady: five times as many hits come as may pass. In ticks everybody knows more than in calm rounds.
func TestSteady(t *testing.T) {
	for _, test := range []struct {
		checkers int
		round    int64
		over     float64
	}{
		{1, tick, 0.1}, {2, tick, 0.3}, {8, tick, 0.7}, {50, tick, 1.2},
		{1, 8 * tick, 0.1}, {2, 8 * tick, 0.5}, {8, 8 * tick, 1}, {50, 8 * tick, 3},
	} {
		for _, halves := range []bool{false, true} {
			y := newToy(test.checkers, test.round)
			y.halves = halves
			y.watch(1500 * ms)
			y.run(1500*ms, 5, y.anywhere)
			y.within(t, "from the first hit on", bounds{test.over + 1, 100, 1})
			y.watch(3000 * ms)
			y.run(3000*ms, 5, y.anywhere)
			y.within(t, "steady", bounds{test.over, 2, 0.1})
		}
	}
}

// TestNearTheLimit: little more comes than may pass, or little less: then next to nothing may be denied.
func TestNearTheLimit(t *testing.T) {
	for _, test := range []struct {
		checkers     int
		perMs, under float64
		denied       float64 // of all, in per cent
	}{{2, 1.2, 2, 20}, {8, 1.2, 2, 20}, {8, 0.9, 20, 0.5}, {50, 0.8, 30, 0}} {
		y := newToy(test.checkers, tick)
		y.run(2500*ms, test.perMs, y.anywhere)
		y.watch(2000 * ms)
		before := y.denied[y.now/1e9+1]
		y.run(2000*ms, test.perMs, y.anywhere)
		y.within(t, "near the limit", bounds{1, test.under, 0.1})
		denied := -before
		for s := y.from / 1e9; s <= y.now/1e9; s++ {
			denied += y.denied[s]
		}
		if 100*denied > test.denied*y.hits {
			t.Errorf("%+v: %v of %v denied", test, denied, y.hits)
		}
	}
}

// TestOneSeesMost: checkers whose shares are not equal learn them, and do no worse.
func TestOneSeesMost(t *testing.T) {
	for _, n := range []int{2, 8, 50} {
		y := newToy(n, tick)
		y.run(2500*ms, 5, y.mostlyFirst)
		y.watch(3000 * ms)
		y.run(3000*ms, 5, y.mostlyFirst)
		y.within(t, "nine of ten hits at one", bounds{1.2, 2, 0.1})
		if part := y.checkers[0].share.part; part < 0.85 || part > 1 {
			t.Errorf("%d checkers: that one's part is %v", n, part)
		}
	}
}

// TestHop: all hits come to one checker, which is another one every so often. Nobody must take what comes here for
// its part of more that comes elsewhere.
func TestHop(t *testing.T) {
	for _, test := range []struct {
		checkers int
		stay     int64
	}{{2, 50}, {2, 100}, {2, 300}, {8, 100}, {8, 200}, {8, 300}, {50, 1000}} {
		y := newToy(test.checkers, tick)
		where := y.hopping(test.stay)
		y.run(1500*ms, 5, where)
		y.watch(3000 * ms)
		y.run(3000*ms, 5, where)
		y.within(t, "hopping", bounds{1, 3, 0.2})
	}
}

// TestSurge: hits come thirty times as fast from one moment to the next. What is below the limit counts once they
// have had the time to reach it.
func TestSurge(t *testing.T) {
	for _, n := range []int{1, 2, 8, 50} {
		y := newToy(n, tick)
		y.run(2000*ms, 0.5, y.anywhere)
		y.watch(100 * ms)
		y.run(100*ms, 15, y.anywhere)
		y.within(t, "surge", bounds{1.5, 100, 1})
		y.watch(900 * ms)
		y.run(900*ms, 15, y.anywhere)
		y.within(t, "after the surge", bounds{1.5, 2.5, 0.1})
		y.run(1000*ms, 1.5, y.anywhere)
		y.watch(900 * ms)
		y.run(900*ms, 1.5, y.anywhere)
		y.within(t, "when it is over", bounds{1.5, 2, 0.1})
	}
}
