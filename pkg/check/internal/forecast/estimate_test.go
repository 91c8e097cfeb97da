package forecast

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestEstimate(t *testing.T) {
	known := func(part float64) share { return share{part: part, own: 1000 * part, all: 1000} }
	unknown, restlessOne := share{part: 0.5}, share{part: 0.5, own: 500, all: 1000, unrest: restless}
	for _, test := range []struct {
		why         string
		s           share
		m, n        float64
		least, most float64
	}{
		{"what is seen agrees", known(0.5), 100, 50, 99.9, 100.1},
		{"a little more is seen", known(0.5), 100, 60, 101, 120},
		{"a little less is seen", known(0.5), 100, 40, 80, 99},
		{"nothing is seen of what had to be: next to nothing is there", known(0.5), 100, 0, 0, 10},
		{"nothing is seen by one who never sees much", known(0.01), 100, 0, 50, 99},
		{"all is seen here, and there is no more", known(1), 100, 100, 99.9, 100.1},
		{"far more: what is seen counts alone", known(0.5), 100, 400, 799, 801},
		{"nothing expected, nothing seen", known(0.5), 0, 0, 0, 0},
		{"nothing expected, a hit or two: perhaps chance", known(0.5), 0, 2, 0, 4},
		{"share unknown: what is seen is no evidence", unknown, 100, 50, 100, 100},
		{"share unknown, nothing seen", unknown, 100, 0, 100, 100},
		{"share unknown: those seen are there", unknown, 100, 400, 400, 400},
		{"share unknown: fewer than all are no sign of more", share{part: 0.1}, 100, 60, 100, 100},
		{"share unknown: more than chance has it", share{part: 0.1}, 100, 150, 150, 150},
		{"too few own hits to know the share", share{part: 0.5, own: fewest - 1, all: 1000}, 100, 400, 400, 400},
		{"just enough of them", share{part: 0.5, own: fewest, all: 1000}, 100, 400, 799, 801},
		{"restless", restlessOne, 100, 400, 400, 400},
		{"restless, as expected", restlessOne, 100, 50, 100, 100},
	} {
		between(t, test.why, test.s.estimate(test.m, test.n), test.least, test.most)
	}
}

// It grows with what is seen.
func TestEstimateLiesBetweenWhatIsExpectedAndSeen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := share{part: rapid.Float64Range(0.001, 1).Draw(t, "part"), own: 100, all: 1000}
		m := rapid.Float64Range(0, 1e5).Draw(t, "m")
		if m < 1e-9 {
			m = 0
		}
		n := float64(rapid.IntRange(0, 1e5).Draw(t, "n"))
		got := s.estimate(m, n)
		least, most := min(m, n/s.part), max(m, n/s.part)
		require(t, got >= least-1e-6*least && got <= most+1e-6*most, "expected %v, seen %v of %v: %v", m, n, s.part, got)
		more := s.estimate(m, n+1)
		require(t, more >= got-1e-9*got, "one more seen: %v after %v", more, got)
		require(t, !s.contradicts(m, n) || s.contradicts(m, n+1), "more hits contradict less")
		require(t, !s.contradicts(m, s.part*m) && !s.contradicts(m, 0), "what is expected contradicts itself")
		if d := s.deviation(m, n); math.IsNaN(d) || d < 0 || d > 4*(math.Sqrt(m+1)+math.Sqrt(n+1)/s.part) {
			t.Fatalf("expected %v, seen %v: a deviation of %v", m, n, d)
		}
	})
}

func TestDeviation(t *testing.T) {
	known := share{part: 0.5, own: 500, all: 1000}
	unknown := share{part: 0.5}
	near(t, "share unknown: that of chance", unknown.deviation(100, 50), 10, 0)
	near(t, "by own hits: ten of them are as many as 20 ± 6", known.deviation(20, 10), 6, 1.5)
	near(t, "far more than expected: by own hits alone", known.deviation(10, 400), 40, 1)
	between(t, "nothing seen of 20", known.deviation(20, 0), 0.5, 10)
	between(t, "nothing expected, nothing seen", known.deviation(0, 0), 0, 1)
}

// Chance with few hits is not unrest, and a part that is right stays known.
func TestUnrestIsOfManyHits(t *testing.T) {
	half := share{part: 0.5, own: 500, all: 1000}
	unrestful := func(s share, unrest float64) share { s.unrest = unrest; return s }
	for _, test := range []struct {
		why         string
		s           share
		own, all    float64
		least, most float64
	}{
		{"as it should be", half, 100, 200, 0, 0},
		{"as chance may have it", half, 110, 200, 0, 1},
		{"few hits, all here", half, 2, 2, 0, 1},
		{"many hits, all here", half, 400, 400, 2, mostUnrest},
		{"many hits, none here", half, 0, 400, 2, mostUnrest},
		{"one good full round after much unrest", unrestful(half, 50), 100, 200, 20, 49.9},
		{"five of ten hits at one who sees nearly all", share{part: 0.95, own: 950, all: 1000}, 5, 10, 0.3, 1},
		{"where nothing comes, that no harm was done proves nothing", share{part: 0.001, own: 1, all: 1000, unrest: 50}, 0, 100, 50, 50},
	} {
		test.s.learn(test.own, test.all, 2)
		between(t, test.why, test.s.unrest, test.least, test.most)
	}
	before := share{part: 0.5, own: 500, all: 1000, unrest: 5, lastOwn: 300, lastAll: 310}
	s := before
	if s.learn(0, 0, 2); s != before {
		t.Errorf("a full round of nothing taught %+v", s)
	}
	// Hits that were reported in the next full round instead of this one: two of them are looked at
	// together.
	s = half
	for _, own := range []float64{200, 120, 280} {
		s.learn(own, 400, 2)
		between(t, "unrest of a late report", s.unrest, 0, 2)
	}
	near(t, "part", s.part, 0.5, 0.03)
	// What was learnt while traffic moved is forgotten sooner.
	normal := share{part: 0.5, own: 5000, all: 10_000, lastOwn: 400, lastAll: 400}
	moved := unrestful(normal, 50)
	normal.learn(400, 400, 2)
	moved.learn(400, 400, 2)
	expect(t, normal.part < moved.part && normal.part > 0.5 && moved.part < 1, "calm: %v, unsteady: %v", normal.part, moved.part)
}
