package forecast

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// Of hits of cost 1 every 1/part-th passes, from the first on: that is not a matter of chance. As
// each checker of a fleet has a phase of its own, they admit their first hits one after the other,
// and together what they may, give or take one.
func TestPassLetsThePartPass(t *testing.T) {
	for _, part := range []float64{0, 0.001, 0.01, 0.2, 1.0 / 3, 0.5, 0.77, 0.999} {
		for _, phase := range []float64{0, 0.25, 0.5, 0.999} {
			k := New(noon, of(2), phase, 1)
			passed := 0.0
			for n := 1.0; n <= 5000; n++ {
				if k.Pass(part, 1) {
					passed++
				}
				if exact := n*part + phase; part > 0 && (passed > exact+1e-6 || passed <= exact-1-1e-6) {
					t.Fatalf("part %v, phase %v: of %v hits %v passed", part, phase, n, passed)
				}
			}
			expect(t, part != 0 || passed <= 0, "phase %v: %v hits passed where none may", phase, passed)
		}
	}
}

// Of what all hits cost, the parts pass that they were given, give or take the largest.
func TestPassLetsThePartOfTheCostsPass(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := New(noon, of(2), rapid.Float64Range(0, 0.99).Draw(t, "phase"), 1)
		passed, want, largest := 0.0, 0.0, 1.0
		for range rapid.IntRange(1, 100).Draw(t, "hits") {
			part := rapid.Float64Range(0.001, 0.999).Draw(t, "part")
			cost := rapid.Int64Range(1, 20).Draw(t, "cost")
			largest = max(largest, float64(cost))
			want += part * float64(cost)
			if k.Pass(part, cost) {
				passed += float64(cost)
			}
			require(t, math.Abs(passed-want) <= largest+1e-6, "%v passed, want %v; the largest hit was %v", passed, want, largest)
		}
	})
}

// However much credit earlier hits have left.
func TestNoneMayPass(t *testing.T) {
	for _, part := range []float64{0, -0.3, math.Inf(-1)} {
		k := New(noon, of(2), 0.9, 1)
		k.Pass(0.45, 10) // leaves nearly enough for one that costs 10
		for _, cost := range []int64{1, 1, 10, 1} {
			expect(t, !k.Pass(part, cost), "part %v: a hit of cost %d passed", part, cost)
		}
		k.Denied(part, 1000)
		between(t, "credit", k.credit, -6, 6)
	}
}

// So that they can be made without it, and all in one.
func TestDenialsAreThoseThatPassWouldMake(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := New(noon, of(2), rapid.Float64Range(0, 0.99).Draw(t, "phase"), 1)
		for range rapid.IntRange(0, 20).Draw(t, "before") {
			k.Pass(rapid.Float64Range(0, 0.99).Draw(t, "earlier part"), rapid.Int64Range(1, 5).Draw(t, "cost"))
		}
		part := rapid.Float64Range(0.001, 0.99).Draw(t, "part")
		asked, atOnce := *k, *k
		denials := k.Denials(part)
		for n := range denials {
			if asked.Pass(part, 1) {
				if asked.credit < -0.5+1e-9 { // by a hair: sums are rounded
					return
				}
				t.Fatalf("part %v, credit %v: hit %d of %d denials passes", part, k.credit, n+1, denials)
			}
		}
		if next := asked; !next.Pass(part, 1) && next.credit < 0.5-1e-9 {
			t.Fatalf("part %v, credit %v: the hit after %d denials does not pass", part, k.credit, denials)
		}
		atOnce.Denied(part, denials)
		require(t, math.Abs(atOnce.credit-asked.credit) <= 1e-9*float64(denials+1),
			"credit %v after %d denials, at once %v", asked.credit, denials, atOnce.credit)
	})
}

func TestDenialsAtTheEdges(t *testing.T) {
	for _, test := range []struct {
		credit, part float64
		want         int64
	}{
		{-0.5, 0.25, 3}, {0.25, 0.25, 0}, {-0.5, 1, 0}, {-0.5, 1.0 / 1024, 1023}, // these are exact
		{-0.5, 1e-300, math.MaxInt32}, {-50, 1.5, 0}, // nearly nothing, and all, after a dear hit
		{5, 0, math.MaxInt32}, {5, math.Inf(-1), math.MaxInt32}, // none, whatever credit there is
	} {
		got := (&Key{credit: test.credit}).Denials(test.part)
		expect(t, got == test.want, "credit %v, part %v: %d denials, want %d", test.credit, test.part, got, test.want)
	}
}

// A hit that is turned away elsewhere leaves everything as it was, however many of them come.
func TestReturnTakesAPassBack(t *testing.T) {
	for _, part := range []float64{0.01, 0.2, 0.5, 0.9} {
		for _, cost := range []int64{1, 7} {
			k := New(noon, of(2), 0.5, 1)
			before := k.credit
			for !k.Pass(part, cost) {
				before = k.credit
			}
			for range 1000 {
				k.Return(part, cost)
				require(t, k.Pass(part, cost), "part %v, cost %d: what was given back does not pass", part, cost)
			}
			k.Return(part, cost)
			near(t, "credit after a thousand hits that did not count", k.credit, before, 1e-6)
		}
	}
	k := New(noon, of(2), 0.5, 1)
	k.Return(1, 5) // all may pass: Pass was not asked
	k.Return(3, 5)
	near(t, "credit", k.credit, 0, 0)
}
