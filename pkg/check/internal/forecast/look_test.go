package forecast

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestLookLetsAPartPassNearTheLimit(t *testing.T) {
	for _, test := range []struct {
		why         string
		perMs       float64
		w           Window
		least, most float64 // part
	}{
		{"far from the limit all pass", 5, wide(900), 1, math.Inf(1)},
		{"without a demand too", 0, wide(900), 1, math.Inf(1)},
		{"known to be full: none pass", 5, wide(0), math.Inf(-1), 0},
		{"nor without a demand", 0, wide(0), math.Inf(-1), 0},
		{"over the limit", 5, wide(-20), math.Inf(-1), 0},
		{"near the limit a part passes", 5, wide(10), 0.01, 0.99},
		{"full, but half of what comes leaves", 5, Window{Limit: 1000, Free: margin, Freed: 2.5e-6}, 0.45, 0.55},
		{"over the limit by what would leave: none", 5, Window{Limit: 1000, Free: -8, Freed: 2.5e-6}, math.Inf(-1), 0},
		{"in the band a part passes", 10, wide(margin + 10), 10.0/15 - 1e-9, 10.0/15 + 1e-9},
		{"half the band where hits leave at once", 10, Window{Limit: 1000, Free: margin + 5, Soon: 1e-6}, 5/7.5 - 1e-9, 5/7.5 + 1e-9},
		{"more leave than come: all pass", 5, Window{Limit: 1000, Free: 3.5, Freed: 6e-6}, 1, math.Inf(1)},
	} {
		o := newKey(test.perMs).Look(noon, test.w, of(2))
		between(t, test.why+": part", o.Part, test.least, test.most)
		near(t, test.why+": demand", o.Demand*1e6, test.perMs, 1e-9)
	}
}

// When no hit can be unheard of, because they are rare or have ended, the last one that fits
// passes.
func TestReserveIsGivenBack(t *testing.T) {
	for _, test := range []struct {
		why           string
		perMs, silent float64 // ms
		all           bool
	}{
		{"1000/s", 1, 0, false},
		{"1000/s until 500 ms ago, which may be a pause between bursts", 1, 500, false},
		{"1000/s until 10 s ago", 1, 10_000, true},
		{"10/s", 0.01, 0, false},
		{"1/s", 0.001, 0, true},
		{"2000 a day", 2000.0 / 86_400_000, 0, true},
	} {
		k := newKey(test.perMs)
		k.demand.observed = true
		o := k.Look(fromNoon(test.silent), wide(1), of(2))
		all := o.Part >= 1
		expect(t, all == test.all, "%s: of the last hit that fits %v passes", test.why, o.Part)
	}
}

// A part is a number however long a key was silent.
func TestLongSilence(t *testing.T) {
	for seconds := 600.0; seconds < 1000; seconds++ {
		for _, perMs := range []float64{0.001, 0.003, 0.01, 5} {
			k := newKey(perMs)
			k.demand.observed = true
			o := k.Look(fromNoon(seconds*1000), Window{Limit: 1000, Free: -10, Freed: 1e-6}, of(2))
			require(t, !math.IsNaN(o.Part), "%v per ms, %v s ago: %+v", perMs, seconds, o)
		}
	}
}

// What is free is less what others took, and less a small margin, which grows with the fleet, not
// with what is free.
func TestFreeIsLessWhatOthersTookAndAMargin(t *testing.T) {
	free := func(at, free, checkers float64) float64 {
		return newKey(10).Look(fromNoon(at), wide(free), of(checkers)).Free
	}
	near(t, "half is free", free(0, 1000, 2)-free(0, 500, 2), 500, 1e-9)
	near(t, "8 ms later", free(0, 1000, 2)-free(8, 1000, 2), 80, 1e-9)
	last := 1000.0
	for _, fleet := range []float64{1, 2, 50, 1000, 1e6} {
		if f := free(0, 1000, fleet); f > last || f < 1000*(1-mostAim) {
			t.Errorf("%v checkers: %v free of 1000, fewer checkers: %v", fleet, f, last)
		} else {
			last = f
		}
	}
}

// 100 hits leave a full window at once, 10 ms before anybody looks. With 10 hits a ms asked for,
// others have taken them by then, all but what the band keeps.
func TestOthersTakeTheRoomOfHitsThatLeft(t *testing.T) {
	free := func(told bool) float64 {
		k := newKey(10)
		k.Look(noon, wide(0), of(2))
		if told {
			k.leave(fromNoon(10), 100)
		}
		return k.Look(fromNoon(20), wide(100), of(2)).Free
	}
	between(t, "free where nobody could know that there was room", free(false), 90, 100)
	between(t, "free where all could", free(true), 0, 12)
}

// It shrinks with the time in which others may have come.
func TestPartGrowsWithWhatIsFreeAndWhatLeaves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		perMs := rapid.Float64Range(0.1, 100).Draw(t, "demand")
		w := Window{
			Limit: rapid.Float64Range(100, 1e6).Draw(t, "limit"),
			Freed: rapid.Float64Range(0, 1e-4).Draw(t, "freed"),
		}
		w.Free = w.Limit * rapid.Float64Range(-0.1, 1).Draw(t, "free")
		at := rapid.Float64Range(0, 50).Draw(t, "at")
		part := func(at float64, w Window) float64 { return newKey(perMs).Look(fromNoon(at), w, of(2)).Part }
		more, freed := w, w
		more.Free += 0.01 * w.Limit
		freed.Freed += 1e-6
		p := part(at, w)
		if part(at, more) <= p || part(at, freed) <= p || part(at+1, w) >= p {
			t.Fatalf("a part of %v; with more room %v, with more leaving %v, a ms later %v",
				p, part(at, more), part(at, freed), part(at+1, w))
		}
	})
}

// Expectations follow the last outlook: where nothing was free, nothing is expected of others.
func TestLookGoesOnFromWhatItSaw(t *testing.T) {
	expected := func(w Window) float64 {
		k := newKey(10)
		k.Look(noon, w, of(2))
		k.expect(fromNoon(10))
		return k.history.since(noon).expected
	}
	near(t, "much room: all that come", expected(wide(900)), 100, 1e-9)
	near(t, "none", expected(wide(-20)), 0, 1e-9)
	near(t, "none but what leaves", expected(Window{Limit: 1000, Free: margin, Freed: 2e-6}), 20, 1e-6)
	between(t, "a room of 7", expected(wide(margin+7)), 2, 7)
}

func TestEaseIsAnEighthOfTheWayToTheLimit(t *testing.T) {
	for _, test := range []struct {
		why          string
		part, free   float64
		perMs        float64
		fewest, many float64 // hits
		least, most  float64 // ms
	}{
		{"an eighth of the room at most, of what comes here", 0.5, 500, 10, 20, 31, 5, 6.3},
		{"more of it, if more comes here", 1, 500, 10, 40, 63, 5, 6.3},
		{"half the time at twice the rate", 0.5, 500, 20, 20, 31, 2, 3.2},
		{"no demand: no end", 0.5, 500, 0, 20, 31, 1e9, 1e13},
		{"near the limit: none", 0.5, 15, 10, 0, 0, 0, 0},
		{"over it: none", 0.5, -15, 10, 0, 0, 0, 0},
		{"room without end, as before any look: nothing overflows", 1, math.MaxFloat64, 1e-9, math.MaxInt32, math.MaxInt32, 1e12, 1e13},
	} {
		k := newKey(test.perMs).knowing(test.part)
		k.Look(noon, wide(test.free), of(2))
		hits, span := k.Ease()
		between(t, test.why+": hits", float64(hits), test.fewest, test.many)
		between(t, test.why+": ms", float64(span)/1e6, test.least, test.most)
	}
}

func TestUrgent(t *testing.T) {
	normal := 32 * ms
	for _, test := range []struct {
		why   string
		perMs float64
		w     Window
		fleet float64
		own   int64 // hits of a half, just now
		want  bool
	}{
		{"nothing comes", 0, wide(500), 2, 0, false},
		{"nothing comes, and none may pass", 0, wide(0), 2, 0, false},
		{"far from the limit", 1, wide(900), 2, 0, false},
		{"more than half of the room may be gone by the next normal round", 10, wide(500), 2, 0, true},
		{"it may not", 5, wide(500), 2, 0, false},
		{"the room is used up, and nothing leaves it: none pass", 10, wide(0), 2, 0, false},
		{"few hits leave it", 5, Window{Limit: 1000, Free: 3, Freed: 1e-6}, 2, 0, false},
		{"so many leave it that chance matters", 50, Window{Limit: 1000, Free: 3, Freed: 10e-6}, 2, 0, true},
		{"a large limit: chance matters less", 50, Window{Limit: 10_000, Free: 30, Freed: 10e-6}, 2, 0, false},
		{"in a large fleet, what is lost in rounding", 5, Window{Limit: 1000, Free: 3, Freed: 0.5e-6}, 2, 0, false},
		{"nearly all pass: nothing is lost in rounding", 3.2, Window{Limit: 3500, Free: margin, Freed: 3.168e-6, Pace: 1}, 1000, 0, false},
		{"a small limit: more than six hits of chance matter", 0.2, Window{Limit: 100, Free: 1, Freed: 0.16e-6}, 2, 0, true},
		{"fewer do not", 0.18, Window{Limit: 100, Free: 1, Freed: 0.144e-6}, 2, 0, false},
		{"a small limit: chance is not much of a hit", 0.1, Window{Limit: 100, Free: 60}, 2, 0, false},
		{"far more own hits than expected", 1, wide(500), 2, 100, true},
		{"far more, but there is room for a thousand times as many", 1, Window{Limit: 1e6, Free: 5e5}, 2, 100, false},
		{"no more than expected", 1, wide(900), 2, 2, false},
	} {
		k := newKey(test.perMs).knowing(0.5)
		k.expect(fromNoon(1))
		k.Look(fromNoon(1), test.w, of(2))
		k.Note(fromNoon(1), test.own, test.own)
		o := k.Look(fromNoon(1), test.w, of(2))
		o.Demand = test.perMs / 1e6 // what own hits say of it is not the matter here
		got := k.Urgent(fromNoon(1), o, test.w, of(test.fleet), normal)
		expect(t, got == test.want, "%s: urgent: %v (%+v)", test.why, got, o)
	}
}

// What each checker rounds adds up; and where each has hardly a hit between two normal rounds,
// these save no report.
func TestUrgentInLargeFleets(t *testing.T) {
	for _, test := range []struct {
		perMs, part float64
		w           Window
		urgent      map[float64]bool // by checkers
	}{
		{10, 0.001, Window{Limit: 1000, Free: 6, Freed: 0.5e-6}, map[float64]bool{1: false, 2: false, 1000: true}},
		{0, 0.5, Window{Limit: 1000, Free: 900, Pace: 1e-6}, map[float64]bool{10: false, 50: false, 500: false, 1000: true}},
	} {
		for fleet, want := range test.urgent {
			k := newKey(test.perMs).knowing(test.part)
			got := k.Urgent(noon, k.Look(noon, test.w, of(2)), test.w, of(fleet), 32*ms)
			expect(t, got == want, "%v per ms, %v checkers: urgent: %v", test.perMs, fleet, got)
		}
	}
}

// TestMissingHitsMakeRoom: expected hits that were not in a round's updates leave room to all
// checkers at the same moment, and so are expected from then on.
func TestMissingHitsMakeRoom(t *testing.T) {
	k := newKey(10)
	k.Look(noon, wide(margin), of(2))
	k.carry, k.carryUntil = 30, fromNoon(12)
	for _, at := range []float64{5, 9, 40} {
		k.expect(fromNoon(at))
	}
	near(t, "until then", k.between(noon, fromNoon(12)).expected, 0, 1e-6)
	near(t, "from then on", k.history.since(fromNoon(12)).expected, 30, 0.5)
}

// TestLateUpdatesAreWaitedFor: in a large fleet a key's history and its demand last from one alarm
// to the next, and one more checker makes nothing forgotten.
func TestLateUpdatesAreWaitedFor(t *testing.T) {
	fleet := func(checkers float64) Fleet {
		return Fleet{Checkers: checkers, FastInterval: fast, Trail: 2*ms + int64(checkers)*10_000}
	}
	for _, had := range []Fleet{fleet(10_000), of(2)} {
		k := New(noon, had, 0.5, 1)
		k.Observe(Update{Now: fromNoon(1), Made: noon, Round: fast}, fleet(10_000))
		between(t, "the history", float64(k.history.horizon()), 204e6, 1e9)
		between(t, "the demand without an update", k.demand.believed(), 204e6, 1e9)
	}
	unheard := func(checkers float64) float64 {
		k := New(noon, fleet(5000), 0.5, 1)
		k.demand.passed = rate{4000, float64(400 * ms)}
		k.Look(noon, wide(5000), fleet(5000))
		k.Observe(Update{Now: fromNoon(40), Made: fromNoon(39), Round: 8 * fast}, fleet(checkers))
		return k.history.since(noon).expected
	}
	near(t, "expected of a fleet that has grown", unheard(5001), unheard(5000), 1e-6)
	near(t, "expected", unheard(5000), 400, 1)
}

// TestBandIsWideWhereUpdatesAreLate: in a large fleet, whose alarms are far apart, but never wider
// than a quarter of the limit.
func TestBandIsWideWhereUpdatesAreLate(t *testing.T) {
	for late, want := range map[int64]float64{0: 15, ms: 15, 80 * ms: 240, 200 * ms: 250} { // of a limit of 1000
		f := Fleet{Checkers: 2, FastInterval: fast, Trail: fast + late}
		k := newKey(10)
		o := k.Look(noon, wide(margin+7.5), f)
		near(t, "band", k.band, want, 1e-6)
		near(t, "part in the midst of the narrow one", o.Part, 7.5/want, 1e-6)
	}
}
