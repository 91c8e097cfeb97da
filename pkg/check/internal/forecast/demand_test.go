package forecast

import (
	"math"
	"testing"
)

// said is an update, of a bucket's totals at a time in ms after noon.
func said(at float64, bucket, admitted, denied int64) Update {
	return Update{Now: fromNoon(at + 3), Made: fromNoon(at), Round: fast, Bucket: bucket,
		Admitted: Totals{float64(admitted)}, Denied: Totals{float64(denied)}, DeniedToo: true, Since: noon}
}

// heard is what these updates tell, if all that was admitted was expected, and nothing is known of
// since when the first one's totals are.
func heard(updates ...Update) *demand {
	d := newDemand(noon, fast, 1)
	for i, w := range updates {
		if i == 0 && w.Since == noon {
			w.Since = w.Made
		}
		expected := 0.0
		if w.Bucket == d.bucket {
			expected = float64(max(w.Admitted[0]-d.admitted[0], 0))
		}
		d.learn(w, expected, true)
	}
	return &d
}

func TestRateFromWords(t *testing.T) {
	silent := func(at float64, admitted int64) Update { // it says nothing of denied hits
		w := said(at, 1, admitted, 0)
		w.DeniedToo = false
		return w
	}
	long, young := said(0, 1, 600, 150), said(100, 1, 200, 0)
	long.Admitted[1], long.Denied[1], long.Since = 200, 50, noon-1000*ms
	young.Young = Young{Since: fromNoon(80), Admitted: 150, Denied: 50}
	for _, test := range []struct {
		why            string
		updates        []Update
		passed, denied float64 // per ms
		all            float64
	}{
		{"nothing heard", nil, 0, 0, 0},
		{"the first update: its total may be of any age", []Update{said(8, 1, 800, 0)}, 0, 0, 0},
		{"until more is known the rate is that of its buckets", []Update{long}, 0.8, 0.2, 0},
		{"or of the newest hits: of a long time a surge would be no more than its average", []Update{young}, 7.5, 2.5, 0},
		{"updates of one round are too close to each other", []Update{said(0, 1, 100, 0), said(2, 1, 120, 0)}, 0, 0, 20},
		{"until they are far enough", []Update{said(0, 1, 100, 0), said(2, 1, 120, 0), said(8, 1, 180, 0)}, 10, 0, 80},
		{"just far enough", []Update{said(0, 1, 100, 0), said(leastLately/1e6, 1, 160, 0)}, 60e6 / leastLately, 0, 60},
		{"denied hits are asked for too", []Update{said(0, 1, 100, 0), said(8, 1, 116, 64)}, 2, 8, 80},
		{"a steady rate", []Update{said(0, 1, 0, 0), said(8, 1, 80, 0), said(16, 1, 160, 0), said(32, 1, 320, 0)}, 10, 0, 320},
		{"in a new bucket all is new", []Update{said(0, 1, 500, 90), said(8, 2, 48, 32)}, 6, 4, 80},
		{"an older bucket tells nothing", []Update{said(0, 2, 0, 0), said(4, 1, 999, 9), said(8, 2, 80, 0)}, 10, 0, 80},
		{"updates that overtook each other",
			[]Update{said(0, 1, 0, 0), said(8, 1, 60, 20), said(4, 1, 30, 10), said(16, 1, 120, 40)}, 7.5, 2.5, 160},
		{"a total that is behind takes nothing back",
			[]Update{said(0, 1, 0, 0), said(8, 1, 80, 0), said(9, 1, 70, 0), said(16, 1, 160, 0)}, 10, 0, 160},
		{"denied hits that are told for the first time may be of any age",
			[]Update{silent(0, 100), silent(8, 180), said(16, 1, 260, 500)}, 10, 0, 160},
		{"those denied since are not",
			[]Update{silent(0, 100), silent(8, 180), said(16, 1, 260, 500), said(24, 1, 340, 580)}, 10, 10, 320},
	} {
		d := heard(test.updates...)
		near(t, test.why+": admitted per ms", d.passed.per()*1e6, test.passed, 1e-9)
		near(t, test.why+": denied per ms", d.turned.per()*1e6, test.denied, 1e-9)
		near(t, test.why+": hits in all", d.all, test.all, 1e-9)
	}
	d := heard(said(0, 1, 0, 0), said(8, 1, 16, 64), said(5, 1, 16, 64))
	expect(t, d.asOf == fromNoon(8), "after an old update: as of %d ns after noon", d.asOf-noon)
}

// Updates that say nothing of denied hits may come in between.
func TestDeniedHitsAreOfTheirTime(t *testing.T) {
	d := heard(said(0, 1, 0, 0))
	for at := int64(8); at <= 400; at += 8 {
		w := said(float64(at), 1, 2*at, at/2)
		w.DeniedToo = at == 400
		if !w.DeniedToo {
			w.Denied = Totals{}
		}
		d.learn(w, 16, true)
	}
	near(t, "admitted per ms", d.passed.per()*1e6, 2, 1e-9)
	near(t, "denied per ms", d.turned.per()*1e6, 0.5, 1e-9)
}

// An update in between tells of some checkers only; but not for ever.
func TestRatesAreOfCompleteRounds(t *testing.T) {
	d := heard(said(0, 1, 0, 0), said(8, 1, 80, 0))
	d.learn(said(16, 1, 90, 0), 80, false)
	near(t, "in between", d.rate()*1e6, 10, 1e-9)
	d.learn(said(24, 1, 240, 0), 80, true)
	near(t, "complete", d.rate()*1e6, 10, 1e-9)
	for at := 32.0; at < 100; at += 8 {
		d.learn(said(at, 1, 240, 0), 80, false)
	}
	between(t, "70 ms without a hit", d.rate()*1e6, 0, 8)
}

// Hits that are missing show only after a while. At low rates chance alone makes such differences.
func TestHitsThatNobodyExpectedShowAtOnce(t *testing.T) {
	steady := func() *demand {
		d, total := newDemand(noon, fast, 1), int64(0)
		for at := 0.0; at <= 200; at += 8 {
			d.learn(said(at, 1, total, 0), 80, true)
			total += 80
		}
		return &d
	}
	for _, test := range []struct {
		why             string
		hits, expected  int64
		least, most     float64 // per ms
		settledExactly  bool
		afterTwoSeconds float64
	}{
		{"five times as many", 400, 80, 50, 50, true, 50},
		{"five times as many, as was expected", 400, 400, 11, 30, false, 50},
		{"a few more, as chance may have it", 100, 80, 10.1, 12, false, 12.5},
		{"a fifth", 16, 80, 8, 9.9, false, 2},
		{"fewer than usual, though more than expected", 70, 10, 9, 9.99, false, 8.75},
	} {
		d := steady()
		total := int64(d.admitted[0])
		at := 208.0
		next := func() {
			total += test.hits
			d.learn(said(at, 1, total, 0), float64(test.expected), true)
			at += 8
		}
		next()
		between(t, test.why+", after one update", d.rate()*1e6, test.least-1e-9, test.most+1e-9)
		kept := d.passed.span > 20e6
		expect(t, kept != test.settledExactly, "%s: a memory of %v ms", test.why, d.passed.span/1e6)
		for at < 2208 {
			next()
		}
		near(t, test.why+", after two seconds", d.rate()*1e6, test.afterTwoSeconds, 0.01)
	}
	// Denied ones are told in lumps, and may have come long before.
	d := heard(said(0, 1, 0, 0), said(8, 1, 80, 0))
	d.learn(said(16, 1, 480, 4000), 80, true)
	near(t, "with many denied hits: per ms", d.rate()*1e6, 50, 1e-9)
}

// Where hits come seldom, they are remembered longer, and a few more may come by chance.
func TestRatesOfFewHits(t *testing.T) {
	for _, test := range []struct {
		why           string
		apart, before int64 // ms, and hits so far apart
		last          Update
		expected      float64
		least, most   float64 // hits in the time apart
	}{
		{"one every 100 ms, then 300 without any", 100, 100, said(10_200, 1, 99, 0), 3, 0.8, 1},
		{"one every 8 ms, then four instead of one", 8, 25, said(200, 1, 28, 0), 1, 1.1, 2},
	} {
		d := newDemand(noon, fast, 1)
		for i := range test.before {
			d.learn(said(float64(test.apart*i), 1, i, 0), 1, true)
		}
		d.learn(test.last, test.expected, true)
		between(t, test.why, d.rate()*float64(test.apart*ms), test.least, test.most)
	}
}

// Several updates may make up the time that a rate is taken from; what was expected in all of them
// is compared.
func TestExpectationsOfSeveralWordsAddUp(t *testing.T) {
	d := heard(said(0, 1, 0, 0), said(8, 1, 80, 0))
	d.learn(said(12, 1, 240, 0), 160, true)
	d.learn(said(16, 1, 400, 0), 160, true)
	near(t, "all of it expected: per ms", d.rate()*1e6, 25, 4)
	expect(t, d.lately == (rate{}) && d.expected == 0, "after settling: %+v, expected %v", d.lately, d.expected)
	d = heard(said(0, 1, 0, 0), said(8, 1, 80, 0))
	d.learn(said(12, 1, 240, 0), 10, true)
	d.learn(said(16, 1, 400, 0), 10, true)
	near(t, "not expected: per ms", d.rate()*1e6, 40, 1e-9)
}

func TestDemandFadesWithoutWords(t *testing.T) {
	d := heardOf(rate{1000, float64(100 * ms)})
	near(t, "after a round or two", d.after(10e6), d.rate(), 0)
	last := d.rate()
	for span := 0.0; span < 3e9; span += 5e6 {
		r := d.after(span)
		require(t, !math.IsNaN(r) && r <= last && r >= 0 && r >= last/2, "after %v ms: %v, 5 ms before %v", span/1e6, r, last)
		last = r
	}
	between(t, "after three seconds of silence", last, 0, 1e-9*d.rate())
	near(t, "after an hour", d.after(3600e9), 0, 0)
	// Where hits come seldom, it takes longer to miss some.
	seldom := heardOf(rate{10, float64(1000 * ms)})
	near(t, "one hit per 100 ms, after 300", seldom.after(300e6), seldom.rate(), 0)
	between(t, "after three seconds", seldom.after(3e9), 0, 0.1*seldom.rate())
	k := newKey(10)
	near(t, "as the updates told", k.demandAt(fromNoon(20))*1e6, 10, 1e-9)
	near(t, "a second later", k.demandAt(fromNoon(1000))*1e6, 0, 1e-6)
	between(t, "before the last update was made", k.demandAt(fromNoon(-3))*1e6, 0, 10)
}

// More own hits than the updates let expect are seen before the next update comes.
func TestOwnHitsShowADemand(t *testing.T) {
	for _, test := range []struct {
		why         string
		key         *Key
		own         int64
		least, most float64 // per ms
	}{
		{"its half of them", newKey(10).knowing(0.5), 40, 9.9, 10.1},
		{"more, within chance", newKey(10).knowing(0.5), 50, 10.5, 12.5},
		{"fewer", newKey(10).knowing(0.5), 20, 5, 7},
		{"far more", newKey(10).knowing(0.5), 400, 99, 101},
		{"far more, but of what share?", newKey(10), 400, 49.9, 50.1},
		{"no more than all, but of what share?", newKey(10), 80, 9.9, 10.1},
	} {
		test.key.Note(fromNoon(8), test.own, 0)
		between(t, test.why, test.key.Look(fromNoon(8), wide(1000), of(2)).Demand*1e6, test.least, test.most)
	}
	k := newKey(0).knowing(0.5)
	k.Note(noon+1, 3, 0)
	between(t, "three hits in a nanosecond", k.demandAt(noon+1)*1e6, 0, 10)
}
