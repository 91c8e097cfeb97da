package forecast

import (
	"math"
	"testing"
)

// update is one of a round, so many ms after noon, that was made in its moment and comes 3 ms
// later.
func update(round float64, news float64) Update {
	return Update{Now: fromNoon(round + 3), Made: fromNoon(round), Round: fast, News: news}
}

// hearing is a key that 10 hits per ms are expected of, in updates that tell of so many, and of all
// of them.
func hearing(k *Key, updates ...Update) *Key {
	for _, w := range updates {
		w.Bucket, w.Since, w.Admitted = 1, w.Made, Totals{float64((w.Made - noon) * 10 / ms)}
		k.Observe(w, of(2))
	}
	return k
}

// unheard is what others are expected to have admitted, at so many ms after noon.
func (k *Key) unheard(at float64) float64 {
	now := fromNoon(at)
	o := k.Look(now, Window{Limit: 1e6, Free: 1e6}, of(2))
	return 1e6 - margin - o.Free
}

// 10 hits per ms are expected, of others too, since nothing is known of the share.
func TestAnchor(t *testing.T) {
	late := func(made float64) Update {
		return Update{Now: fromNoon(8), Made: fromNoon(made), Round: fast, News: 100}
	}
	normal := func(made, news float64) Update { // a round of 32 ms, and updates in fast rounds between
		return Update{Now: fromNoon(made + 3), Made: fromNoon(made), Round: 8 * fast, News: news}
	}
	margin := carryHits + carryMargin*math.Sqrt(40) // of the 40 hits that are expected in 4 ms
	for _, test := range []struct {
		why     string
		updates []Update
		at      float64
		want    float64
		give    float64
	}{
		{"no update: all since the beginning", nil, 8, 80, 1e-6},
		{"a complete round: all since then", []Update{update(4, 40)}, 8, 40, 1e-6},
		{"the next one: all since that", []Update{update(4, 40), update(8, 40)}, 12, 40, 1e-6},
		{"more was told than expected", []Update{update(4, 70)}, 8, 40, 1e-6},
		{"half is missing: it is carried on, less what may be chance", []Update{update(4, 20)}, 8, 60 - margin, 0.1},
		{"until the round's last update may have come", []Update{update(4, 20)}, 12.9, 109 - margin, 0.1},
		{"and no longer", []Update{update(4, 20)}, 13, 90, 1e-6},
		{"all of it is missing", []Update{update(4, 0)}, 8, 80 - margin, 0.1},
		{"a second update of the round tells of some", []Update{update(4, 20), update(4, 10)}, 8, 50 - margin, 0.1},
		{"and of more than was missing: that is not of later hits", []Update{update(4, 20), update(4, 50)}, 8, 40, 1e-6},
		{"an update between rounds tells of hits since the round", []Update{update(4, 40), update(7, 15)}, 12, 65, 1e-6},
		{"several of them", []Update{update(4, 40), update(7, 15), update(7.5, 5)}, 12, 60, 1e-6},
		{"more than everything", []Update{update(4, 40), update(7, 500)}, 12, 0, 0},
		{"with the next round they are done with", []Update{update(4, 40), update(7, 15), update(8, 25)}, 12, 40, 1e-6},
		{"and count for what was expected of it", []Update{update(4, 40), update(7, 40), update(8, 0)}, 12, 40, 1e-6},
		{"between rounds, what was missing before comes first", []Update{update(4, 20), update(7, 20)}, 12, 80 - margin, 0.1},
		{"but not once they can come no longer", []Update{update(4, 20), update(11, 20)}, 16, 100, 0.1},
		{"from that moment on",
			[]Update{update(4, 20), {Now: fromNoon(13), Made: fromNoon(11), Round: fast, News: 20}}, 16, 100, 0.1},
		{"a second update that was made late in its round",
			[]Update{update(4, 20), {Now: fromNoon(8), Made: fromNoon(6), Round: fast, News: 10}}, 8, 50 - margin, 0.1},
		{"an older round's update sets nothing back", []Update{update(8, 80), update(4, 10)}, 12, 30, 1e-6},
		{"a report comes a little after the moment of its round", []Update{late(5.9)}, 8, 21, 1e-6},
		{"up to half of a fast interval", []Update{late(6)}, 8, 20, 1e-6},
		{"later it is of somebody who missed the round: others' hits are in it", []Update{late(6.1)}, 8, 0, 0},
		{"at the end of that interval too", []Update{late(7.9)}, 8, 0, 0},
		{"between normal rounds an update tells of some of the hits since",
			[]Update{normal(32, 320), normal(36, 10)}, 40, 70, 1e-6},
		{"the next normal round", []Update{normal(32, 320), normal(36, 10), normal(64, 310)}, 68, 40, 0.1},
		{"what one round misses may come with the next", []Update{update(4, 0), update(8, 77)}, 12, 40, 1e-6},
		{"half of what is missing may be no delay at all", []Update{update(4, 0), update(8, 40)}, 11, 42, 6},
	} {
		k := hearing(newKey(10), test.updates...)
		k.share.own = 0 // else a few full rounds would teach it
		near(t, test.why, k.unheard(test.at), test.want, test.give)
	}
}

// The more of what is expected was admitted here, the less is elsewhere.
func TestOwnHitsAreNotOfOthers(t *testing.T) {
	for _, test := range []struct {
		why         string
		part        float64
		own         int64
		least, most float64
	}{
		{"half of 80 here, of a half", 0.5, 40, 39.9, 40.1},
		{"nothing here, of a half: there are few", 0.5, 0, 0, 10},
		{"everything here, of all", 1, 80, 0, 1e-6},
		{"far more, of a half: as many elsewhere", 0.5, 400, 399, 401},
		{"far more, of a fifth", 0.2, 400, 1599, 1601},
		{"far more than expected, of what share? They have moved here", 0, 400, 0, 0},
		{"fewer, of what share? The rest is elsewhere", 0, 30, 50, 50},
	} {
		k := newKey(10)
		if test.part > 0 {
			k.knowing(test.part)
		}
		k.expect(fromNoon(8)) // whatever comes now was not expected before
		k.Note(fromNoon(8), test.own, test.own)
		between(t, test.why+": elsewhere", k.unheard(8), test.least-1e-6, test.most+1e-6)
	}
}

// Of a round this checker's report may be made before others', and what it admits then is in no
// update.
func TestOwnHitsAreSinceTheOwnReport(t *testing.T) {
	k := newKey(10)
	round := func(at, news float64) {
		k.Reported(fromNoon(at+0.2), of(2))
		k.Note(fromNoon(at+1), 30, 30)
		hearing(k, Update{Now: fromNoon(at + 3), Made: fromNoon(at + 1.9), Round: fast, News: news})
	}
	round(4, 100)
	// 21 are expected since 5.9, and nearly all of the 30 were admitted here since 4.2.
	near(t, "elsewhere", k.unheard(8), 0, 0.1)
	k.expect(fromNoon(8))
	round(8, 0)
	// Of the 40 between the two updates about 29 were from here. What is missing is more than
	// chance.
	carried := 40 - 28.5 - carryHits - carryMargin*math.Sqrt(40)
	near(t, "carried on", k.carry, max(carried, 0), 3)
	near(t, "elsewhere, a ms later", k.unheard(12), max(carried, 0), 3)
}

// Hits that an allowance has let pass are noted with the report that they are in. Its answer comes
// after further reports.
func TestOwnHitsOfAReportAreInItsAnswer(t *testing.T) {
	k := newKey(0).knowing(0.5)
	for at := 4.0; at <= 12; at += 4 {
		k.Note(fromNoon(at+0.02), 25, 25)
		k.Reported(fromNoon(at+0.02), of(2))
	}
	k.Observe(Update{Now: fromNoon(13), Made: fromNoon(4.02), Round: fast, News: 25}, of(2))
	near(t, "own hits in no answer", k.sinceUpdate().admitted, 50, 1e-6)
	k.Observe(Update{Now: fromNoon(14), Made: fromNoon(12.02), Round: fast, News: 50}, of(2))
	near(t, "all answered", k.sinceUpdate().admitted, 0, 1e-6)
}

// The history does not reach back to an update that comes very late, so that it seems to be about
// later hits, too. The next one, of an own report with fewer, takes nothing back.
func TestLateUpdatesTakeNothingBack(t *testing.T) {
	for _, late := range []float64{3, 50, 80, 150} {
		k := newKey(10).knowing(0.5)
		k.Note(fromNoon(8), 40, 40)
		k.Reported(fromNoon(8), of(2))
		k.Note(fromNoon(9), 5000, 5000)
		k.Observe(Update{Now: fromNoon(9 + late), Made: fromNoon(4), Round: fast}, of(2))
		k.Observe(Update{Now: fromNoon(9.5 + late), Made: fromNoon(8), Round: fast}, of(2))
		between(t, "own hits in no answer", k.sinceUpdate().admitted, 0, 5000)
		between(t, "free", k.Look(fromNoon(9.5+late), wide(1000), of(2)).Free, -1e6, 1000)
	}
}

// After a long silence, of own hits and of expected ones the same time is compared.
func TestSilenceLeavesNothingMissing(t *testing.T) {
	k := newKey(10).knowing(0.5)
	for at := 1.0; at <= 5000; at++ {
		k.Note(fromNoon(at), 5, 5)
	}
	k.Observe(Update{Now: fromNoon(5002), Made: fromNoon(5000), Round: fast, News: 300}, of(2))
	between(t, "missing", k.carry, 0, 20)
}

// Hits may be bytes.
func TestLargeCosts(t *testing.T) {
	k := newKey(0)
	k.Note(fromNoon(2), 5e9, 5e9)
	k.Reported(fromNoon(4), of(2))
	k.Note(fromNoon(5), 7e9, 7e9)
	k.Observe(Update{Now: fromNoon(7), Made: fromNoon(4), Round: fast}, of(2))
	near(t, "own hits in no answer", k.sinceUpdate().admitted, 7e9, 1000)
}

// Only admitted ones are evidence that others have admitted some; and without updates for long,
// only those that no answer was about.
func TestWhichOwnHitsAreEvidence(t *testing.T) {
	for _, test := range []struct {
		why                         string
		at                          float64
		asked, admitted             int64
		unreported, elsewhere, give float64
		leastDemand                 float64 // per ms
	}{
		{"denied hits", 8, 500, 0, 0, 0, 1, 100},
		{"at the horizon, whatever is in no answer", float64(horizon / ms), 50, 50, 0, 50, 2, 0},
		{"after long, all answered", 200, 500, 500, 0, 0, 4, 0},
		{"after long, some not", 200, 500, 500, 50, 50, 5, 0},
	} {
		k := newKey(0).knowing(0.5)
		k.expect(fromNoon(test.at))
		k.Note(fromNoon(test.at), test.asked, test.admitted)
		o := k.Look(fromNoon(test.at), Window{Limit: 1000, Free: 1000, Unreported: test.unreported}, of(2))
		near(t, test.why+": elsewhere", 1000-margin-o.Free, test.elsewhere, test.give)
		between(t, test.why+": demand", o.Demand*1e6, test.leastDemand, 1000)
	}
}

// Without updates a demand fades, and so does what is expected of others, whatever rate it had.
func TestExpectationsEnd(t *testing.T) {
	k := newKey(10)
	k.unheard(60)
	near(t, "an hour later", k.unheard(3600e3), 0, 1e-3)
	near(t, "still expected", k.history.since(noon).expected, 0, 1e-3)
}

// An update moves the anchor, tells a rate, and completes a full round.
func TestToldTakesInAll(t *testing.T) {
	k := New(noon+1, of(2), 0, 1)
	for at := fast; at <= 4*FullInterval; at += fast {
		now := noon + at
		k.Note(now-1, 30, 20)
		k.Reported(now, of(2))
		total := float64(at / fast)
		k.Observe(Update{Now: now + ms, Made: now, Round: fast, Bucket: 1,
			Admitted: Totals{40 * total}, Denied: Totals{20 * total}, DeniedToo: true, News: 20}, of(2))
	}
	near(t, "per fast round", k.demand.rate()*float64(fast), 60, 0.01)
	near(t, "part", k.share.part, 0.5, 1e-6)
	expect(t, k.anchor == noon+4*FullInterval && k.share.isKnown(),
		"the anchor is %d ns after noon; share known: %v", k.anchor-noon, k.share.isKnown())
}

// Hits of others that came in no round are of what was expected then, and of nothing later.
func TestHitsBetweenRoundsAreForgottenInTime(t *testing.T) {
	k := newKey(0).knowing(0.5)
	w := Update{Now: fromNoon(9), Made: fromNoon(7), Round: 32 * ms, News: 300} // between two rounds
	k.Observe(w, of(2))
	k.Note(fromNoon(500), 40, 40)
	// As many as the own 40 have passed elsewhere.
	between(t, "free", k.Look(fromNoon(500), Window{Limit: 1000, Free: 100, Unreported: 40}, of(2)).Free, 0, 70)
}
