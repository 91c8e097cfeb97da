package window

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

func TestRemainingIsTheLargestCostThatFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, counts, now := windows(t)
		limit := amounts().Draw(t, "limit")
		if rapid.Bool().Draw(t, "close") { // a limit that the counts come near to
			sum := estimate(s, counts, now)
			whole := new(big.Int).Quo(sum.Num(), sum.Denom()).Int64()
			limit = max(whole+rapid.Int64Range(-2, 2).Draw(t, "off"), 0)
		}
		got := s.Remaining(counts, limit, now)
		switch {
		case got < 0:
			t.Fatalf("Remaining = %d", got)
		case got > 0 && !fits(s, counts, limit, got, now):
			t.Fatalf("Remaining = %d, which does not fit", got)
		case fits(s, counts, limit, got+1, now):
			t.Fatalf("Remaining = %d, but one more fits", got)
		}
		want, _ := estimate(s, counts, now).Float64()
		if got := s.Count(counts, now); math.Abs(got-want) > 1e-9*max(want, 1) {
			t.Fatalf("Count = %v, want %v", got, want)
		}
	})
}
