package window

import (
	"math"
	"math/big"
	"testing"
	"time"

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

func TestRemainingAtTheEdges(t *testing.T) {
	minute := Shape{Length: time.Minute, Buckets: 1}
	longest := Shape{Length: MaxLength, Buckets: 1}
	fixed := Shape{Length: time.Minute, Buckets: 1, Fixed: true}
	const sec = int64(time.Second)
	for _, tt := range []struct {
		why        string
		shape      Shape
		counts     []int64
		limit, now int64
		want       int64
	}{
		{"88·45/60 + 12 = 78", minute, []int64{12, 88}, 100, 75 * sec, 22},
		{"400·15/60 + 250 = 350: the next makes 351 and is admitted", minute, []int64{250, 400}, 500, 105 * sec, 150},
		{"a negative limit lets nothing pass", minute, []int64{0, 0}, -5, 0, 0},
		{"far over", minute, []int64{MaxCount, MaxCount}, 5, 0, 0},
		{"one nanosecond on, 3 is still 3 when rounded up", minute, []int64{0, 3}, 5, 60*sec + 1, 2},
		{"and the least share there is rounds up too", minute, []int64{0, 1}, 5, 120*sec - 1, 4},
		{"a product over 64 bits", longest, []int64{0, MaxCount}, MaxCount, int64(MaxLength) + 1, 0},
		{"a product over 64 bits, in the middle", longest, []int64{0, MaxCount}, MaxCount, int64(MaxLength) * 3 / 2, MaxCount / 2},
		{"counts beyond the bound neither wrap nor panic", minute, []int64{math.MaxInt64, math.MaxInt64}, MaxCount, 0, 0},
		{"the oldest beyond the bound", longest, []int64{0, math.MaxInt64}, MaxCount, 1, 0},
		{"fixed: the previous bucket is forgotten", fixed, []int64{2}, 5, 60 * sec, 3},
		{"fixed: further counts are not looked at", fixed, []int64{2, 9}, 5, 60 * sec, 3},
		{"missing counts are 0", minute, nil, 5, 0, 5},
		{"missing counts are 0", minute, []int64{1}, 5, 0, 4},
	} {
		if got := tt.shape.Remaining(tt.counts, tt.limit, tt.now); got != tt.want {
			t.Errorf("%s: got %d, want %d", tt.why, got, tt.want)
		}
	}
}
