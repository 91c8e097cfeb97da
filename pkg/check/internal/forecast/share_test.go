package forecast

import (
	"math"
	"math/rand/v2"
	"testing"
)

// among is a share that is told of traffic round by round, as it would be in a fleet.
type among struct {
	share
	f         Fleet
	now       int64
	mine, all float64 // asked for and in a report
	known     float64 // of all, by the last update
	waiting   float64 // asked for here and in no report yet
}

func newAmong(checkers float64) *among {
	return &among{share: newShare(checkers), f: of(checkers), now: noon + fast}
}

// step lets so many hits come, here and elsewhere, and ends with a round, in which this checker
// reports or not. The update comes a while later.
func (a *among) step(own, others float64, reports bool) {
	a.asked += own
	a.waiting += own
	a.now += fast
	if reports {
		a.report(a.now+ms/10, a.f.FastInterval)
		a.mine += a.waiting
		a.all += a.waiting
		a.waiting = 0
	}
	a.all += others
	a.observe(Update{Now: a.now + 3*ms, Made: a.now + ms/10, Round: fast}, a.f, a.known)
	a.known = a.all
}

// fullRounds lets so many of them pass, with traffic at each fast round.
func (a *among) fullRounds(n int, traffic func() (own, others float64)) {
	for end := a.now + int64(n)*FullInterval; a.now < end; {
		own, others := traffic()
		a.step(own, others, true)
	}
}

// random is Poisson traffic of so many hits a fast round, of which a part comes here.
func random(r *rand.Rand, mean, part float64) func() (own, others float64) {
	return func() (float64, float64) { return poisson(r, mean*part), poisson(r, mean*(1-part)) }
}

func poisson(r *rand.Rand, mean float64) float64 {
	n, left := 0.0, r.ExpFloat64()
	for ; left < mean; n++ {
		left += r.ExpFloat64()
	}
	return n
}

func TestShareIsLearnt(t *testing.T) {
	for _, test := range []struct {
		why            string
		checkers, part float64
		mean           float64 // hits per fast round
		give           float64
	}{
		{"equal", 4, 0.25, 20, 0.03},
		{"equal, among many", 50, 0.02, 100, 0.006},
		{"nearly all here", 8, 0.9, 20, 0.04},
		{"nearly all elsewhere", 8, 0.02, 20, 0.02},
		{"few hits", 8, 0.125, 1, 0.06},
	} {
		r := rand.New(rand.NewPCG(1, 2))
		a := newAmong(test.checkers)
		near(t, test.why+": at first", a.part, 1/test.checkers, 0)
		known := a.isKnown()
		a.fullRounds(40, random(r, test.mean, test.part))
		near(t, test.why+": after five seconds", a.part, test.part, test.give)
		expect(t, !known && a.isKnown(), "%s: known before anything was heard: %v, and then: %v", test.why, known, a.isKnown())
		a.fullRounds(200, func() (float64, float64) {
			expect(t, a.now%FullInterval != 0 || a.unrest < restless, "%s: restless (%v) while the traffic is steady", test.why, a.unrest)
			return random(r, test.mean, test.part)()
		})
		near(t, test.why+": after half a minute", a.part, test.part, test.give)
	}
}

// Many own hits where few were expected are growth of the whole traffic where it is spread evenly.
// Where nearly all of it came to others, it has rather moved here.
func TestMovedTrafficIsNotTakenForGrown(t *testing.T) {
	for _, test := range []struct{ part, expected, own, all float64 }{
		{0.125, 20, 20, 160},
		{0.9, 20, 60, 67},
		{0.02, 20, 20, 20},
		{0.02, 20, 60, 60},
		{0.02, 20, 1, 25},
	} {
		a := newAmong(8)
		a.fullRounds(100, random(rand.New(rand.NewPCG(1, 2)), 40, test.part))
		got := a.estimate(test.expected, test.own)
		expect(t, a.isKnown() && math.Abs(got-test.all) <= test.all/10, "%+v: all are %.1f", test, got)
	}
}

// A client that goes to another checker every so often makes each of them see all or nothing. Once
// it stays, the share is believed again. (Between two checkers and in the very rhythm of the full
// rounds it is not noticed, and at half of it not always: two of these are looked at together.)
func TestHoppingTrafficIsNotReliedOn(t *testing.T) {
	for _, test := range []struct {
		checkers, stay int // how many full rounds at each
		most           float64
	}{{2, 2, 0.6}, {2, 3, 0.1}, {2, 5, 0.1}, {8, 1, 0.2}, {8, 3, 0.2}} {
		r := rand.New(rand.NewPCG(3, 4))
		a := newAmong(float64(test.checkers))
		relied, looks := 0.0, 0.0
		for hop := range 60 {
			here := 0.0
			if test.checkers == 2 && hop%2 == 0 || test.checkers > 2 && r.IntN(test.checkers) == 0 {
				here = 1
			}
			for range test.stay {
				a.fullRounds(1, random(r, 40, here))
				// Of a client that is somewhere else for long it is known that it is: that is no
				// mistake.
				if looks++; hop >= 6 && a.isKnown() && a.part > 0.1 {
					relied++
				}
			}
		}
		expect(t, relied <= test.most*looks, "%+v: relied on at %v of %v", test, relied, looks)
		a.fullRounds(60, random(r, 40, 0.5))
		if near(t, "after it has come to rest", a.part, 0.5, 0.05); !a.isKnown() {
			t.Errorf("%+v: still restless (%v) eight seconds after the last hop", test, a.unrest)
		}
	}
}

// Traffic that moves once and stays is doubted at first, then known anew; and where none comes,
// nothing is known.
func TestShareFollows(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	a := newAmong(4)
	for _, step := range []struct {
		why                string
		fullRounds         int
		hits, here         float64
		known              bool
		part, give, unrest float64
	}{
		{"a quarter here", 40, 40, 0.25, true, 0.25, 0.04, restless},
		{"it has just moved here", 3, 40, 0.95, false, 0.5, 0.5, mostUnrest},
		{"it stays", 100, 40, 0.95, true, 0.95, 0.04, restless},
		{"it is gone", 100, 50, 0, false, 0, 0.01, mostUnrest},
		{"silence", 100, 0, 0, false, 0, 0.01, mostUnrest},
	} {
		a.fullRounds(step.fullRounds, random(r, step.hits, step.here))
		near(t, step.why+": part", a.part, step.part, step.give)
		near(t, step.why+": unrest", a.unrest, 0, step.unrest)
		expect(t, a.isKnown() == step.known, "%s: known: %v", step.why, a.isKnown())
	}
}

// What is compared is what both had been reported by the same full round, however traffic comes and
// whichever rounds this checker misses.
func TestFullRoundsPairOwnAndAll(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	a := newAmong(3)
	paired := 0
	var mine, all float64 // by the last full round
	for range 40 * int(FullInterval/fast) {
		taken := a.taken
		a.step(float64(r.IntN(30)), float64(r.IntN(60)), r.IntN(3) > 0)
		if a.now%FullInterval == 0 {
			mine, all = a.mine, a.all
		}
		if a.taken == taken {
			continue
		}
		if paired++; a.baseOwn != mine || a.baseAll != all {
			t.Fatalf("full round %d: %v of %v, want %v of %v", paired, a.baseOwn, a.baseAll, mine, all)
		}
	}
	expect(t, paired >= 38 && paired <= 40, "%d full rounds were worked out of 40", paired)
	// The hits of a missed round come later, those of others do not.
	near(t, "part", a.part, 1.0/3, 0.03)
}

// A report that is made after the full round does not count for it; one in the full round itself
// does, though it comes a little after its moment, even after an update by which the full round was
// noticed.
func TestReportsCountForTheirFullRound(t *testing.T) {
	const full = noon + FullInterval
	for _, test := range []struct {
		why     string
		updates []int64
		reports []int64
		atFull  float64
	}{
		{"before and after", nil, []int64{full - fast, full + fast}, 10},
		{"in its own round", nil, []int64{full - fast, full + ms}, 20},
		{"at the last moment of its own round", nil, []int64{full - fast, full + fast/2}, 20},
		{"and then in the next", nil, []int64{full - fast, full + ms, full + fast}, 20},
		{"only before", nil, []int64{full - fast}, 10},
		{"only long after", nil, []int64{full + 5*fast}, 0},
		{"in its own round, after an update", []int64{full + ms/2}, []int64{full + ms}, 10},
		{"after it, and after an update", []int64{full + ms/2}, []int64{full + fast}, 0},
	} {
		s := newShare(2)
		s.report(noon, fast) // the first full round is where counting begins
		for _, at := range test.updates {
			s.cross(at)
		}
		for _, at := range test.reports {
			s.asked += 10
			s.report(at, fast)
		}
		s.cross(full + 10*fast)
		expect(t, s.open && s.fullAt == full, "%s: the full round is not open", test.why)
		near(t, test.why, s.atFull, test.atFull, 0)
	}
}

// What all asked for is only complete with an update of a later round.
func TestAnUpdateOfALaterRoundCompletesTheFullOne(t *testing.T) {
	const full = noon + FullInterval
	s := newShare(2)
	s.report(noon, fast)
	s.asked = 10
	s.report(full, fast)
	for i, made := range []int64{full - fast, full, full + ms, full + fast/2, full + fast, full + 2*fast} {
		s.observe(Update{Now: made + 3*ms, Made: made}, of(2), float64(20+i))
		if complete := made >= full+fast; s.open == complete || s.taken == 1 != complete {
			t.Errorf("an update made %d ms after the full round completes it: %v, %d times", (made-full)/ms, !s.open, s.taken)
		}
	}
	if s.baseOwn != 10 || s.baseAll != 24 || s.part != 0.5 || s.own != 0 || s.unrest != 0 { // the first tells nothing of the share
		t.Errorf("after an update of the next round: %+v", s)
	}
}
