package forecast

import (
	"math"
	"testing"
)

// TestDeniedHitsOfSomeTimeBefore: when a word tells of denied hits for the first time, they may be of any age.
func TestDeniedHitsOfSomeTimeBefore(t *testing.T) {
	silent := func(at float64, admitted int64) Word {
		w := said(at, 1, admitted, 0)
		w.DeniedToo = false
		return w
	}
	d := heard(silent(0, 100), silent(8, 180), said(16, 1, 260, 500))
	near(t, "per ms, without the 500", d.rate()*1e6, 10, 1e-9)
	near(t, "in all", d.all, 160, 0)
	d.learn(said(24, 1, 340, 580), 80, true)
	near(t, "in all, with those denied since", d.all, 320, 0)
}

// TestRatesAreOfCompleteRounds: a word in between tells of some checkers only; but not for ever.
func TestRatesAreOfCompleteRounds(t *testing.T) {
	d := heard(said(0, 1, 0, 0), said(8, 1, 80, 0))
	d.learn(said(16, 1, 90, 0), 80, false)
	near(t, "in between", d.rate()*1e6, 10, 1e-9)
	d.learn(said(24, 1, 240, 0), 80, true)
	near(t, "complete", d.rate()*1e6, 10, 1e-9)
	for at := 32.0; at < 100; at += 8 {
		d.learn(said(at, 1, 240, 0), 80, false)
	}
	if r := d.rate() * 1e6; r > 8 {
		t.Errorf("70 ms without a hit: %v per ms", r)
	}
}

// TestTheFirstWordIsABeginning: until more is known the rate is that of its buckets.
func TestTheFirstWordIsABeginning(t *testing.T) {
	w := said(0, 1, 600, 150)
	w.Admitted[1], w.Denied[1], w.Since = 200, 50, noon-1000*ms
	d := heard(w)
	near(t, "asked for per ms", d.rate()*1e6, 1, 1e-9)
	near(t, "of them admitted", d.passed.per()/d.rate(), 0.8, 1e-9)
}

// TestAJumpIsOfAdmittedHits: denied ones are told in lumps, and may have come long before.
func TestAJumpIsOfAdmittedHits(t *testing.T) {
	d := heard(said(0, 1, 0, 0), said(8, 1, 80, 0))
	d.learn(said(16, 1, 480, 4000), 80, true)
	near(t, "per ms", d.rate()*1e6, 50, 1e-9)
}

// TestSeldomHitsAreRememberedLonger: where one comes every 100 ms, 300 ms without any mean little.
func TestSeldomHitsAreRememberedLonger(t *testing.T) {
	d := newDemand(noon, tick)
	for i := range int64(100) {
		d.learn(said(float64(100*i), 1, i, 0), 1, true)
	}
	d.learn(said(10_200, 1, 99, 0), 3, true)
	if r := d.rate() * 100e6; r < 0.8 || r > 1 {
		t.Errorf("%v hits per 100 ms", r)
	}
}

// TestOwnHitsAreSinceTheOwnReport: of a round this checker's report may be made before others', and what it
// admits then is in no word.
func TestOwnHitsAreSinceTheOwnReport(t *testing.T) {
	k := newKey(10)
	round := func(at, news float64) {
		k.Reported(fromNoon(at+0.2), of(2))
		k.Note(fromNoon(at+1), 30, 30)
		hearing(k, Word{Now: fromNoon(at + 3), Made: fromNoon(at + 1.9), Round: tick, News: news})
	}
	round(4, 100)
	// 21 are expected since 5.9, and nearly all of the 30 were admitted here since 4.2.
	near(t, "elsewhere", k.unheard(8), 0, 0.1)
	k.expect(fromNoon(8))
	round(8, 0)
	// Of the 40 between the two words about 29 were from here. What is missing is more than chance.
	carried := 40 - 28.5 - doubtful*math.Sqrt(40)
	near(t, "carried on", k.carry, max(carried, 0), 3)
	near(t, "elsewhere, a ms later", k.unheard(12), max(carried, 0), 3)
}

// TestLargeFleetsOfFewHits: where each checker has hardly a hit between two calm rounds, these save no report.
func TestLargeFleetsOfFewHits(t *testing.T) {
	for fleet, want := range map[float64]bool{10: false, 50: false, 500: false, 1000: true} {
		w := wide(900)
		w.Pace = 1e-6 // 32 in a calm round
		k := newKey(0)
		if got := k.Urgent(noon, k.Look(noon, w, of(fleet)), w, of(fleet), 32*ms); got != want {
			t.Errorf("%v checkers: urgent: %v", fleet, got)
		}
	}
}

// TestTheMarginIsBounded by a part of the limit, however many checkers round.
func TestTheMarginIsBounded(t *testing.T) {
	last := 1000.0
	for _, fleet := range []float64{1, 2, 50, 1000, 1e6} {
		free := newKey(0).Look(noon, wide(1000), of(fleet)).Free
		if free > last || free < 990 {
			t.Errorf("%v checkers: %v free of 1000, fewer checkers: %v", fleet, free, last)
		}
		last = free
	}
}

// TestAShareThatIsNotKnownContradictsNothing: fewer hits than all are no sign of more.
func TestAShareThatIsNotKnownContradictsNothing(t *testing.T) {
	s := share{part: 0.1}
	if s.contradicts(100, 60) || !s.contradicts(100, 150) {
		t.Errorf("60 of 100: %v, 150 of 100: %v", s.contradicts(100, 60), s.contradicts(100, 150))
	}
	near(t, "estimate", s.estimate(100, 60), 100, 0)
}
