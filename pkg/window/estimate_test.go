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
		count := s.Count(counts, now)
		require(t, math.Abs(count-want) <= 1e-9*max(want, 1), "Count = %v, want %v", count, want)
	})
}

func TestWaitsAreTheLeast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, counts, now := windows(t)
		limit, cost := amounts().Draw(t, "limit"), amounts().Draw(t, "cost")
		if rapid.Bool().Draw(t, "possible") {
			cost = rapid.Int64Range(0, limit).Draw(t, "cost")
		}
		wait, ok := s.RetryAfter(counts, limit, cost, now)
		require(t, ok == (cost <= limit), "ok = %v", ok)
		if ok && cost > 0 { // else never, or nothing to wait for
			isLeast(t, "RetryAfter", wait, func(d int64) bool {
				return fits(s, later(s, counts, now, now+d), limit, cost, now+d)
			})
		}
		if s.Fixed {
			counts = counts[:1]
		}
		isLeast(t, "Reset", s.Reset(counts, now), func(d int64) bool {
			return estimate(s, later(s, counts, now, now+d), now+d).Sign() == 0
		})
	})
}

// What the random windows do not have: counts and limits beyond the bounds, and missing counts.
func TestWindowsAtTheEdges(t *testing.T) {
	const sec = int64(time.Second)
	minute := Shape{Length: time.Minute, Buckets: 1}
	longest := Shape{Length: MaxLength, Buckets: 1}
	fixed := Shape{Length: time.Minute, Buckets: 1, Fixed: true}
	six := Shape{Length: time.Minute, Buckets: 6}
	log := Shape{Length: time.Minute, Buckets: 6, Kind: Log}
	const never = -1
	for _, tt := range []struct {
		why          string
		shape        Shape
		counts       []int64
		limit, now   int64
		left         int64
		retry, reset time.Duration // of a hit of cost 1
	}{
		{"88·45/60 + 12 = 78", minute, []int64{12, 88}, 100, 75 * sec, 22, 0, 105 * time.Second},
		{"a negative limit lets nothing pass", minute, []int64{0, 0}, -5, 0, 0, never, 0},
		{"the product has 128 bits", longest, []int64{0, MaxCount}, MaxCount, int64(MaxLength) * 3 / 2, MaxCount / 2, 0, MaxLength / 2},
		{"3 is still 3 when rounded up", minute, []int64{0, 3}, 5, 60*sec + 1, 2, 0, time.Minute - 1},
		{"the wait is rounded up", minute, []int64{0, 7}, 7, 60 * sec, 0, 8_571_428_572, time.Minute},
		{"the third of six must melt by 3 of 4", six, []int64{1, 2, 4, 0, 0, 0, 0}, 5, 5 * sec, 0, 42500 * time.Millisecond, 65 * time.Second},
		{"in a log it must leave", log, []int64{1, 2, 4, 0, 0, 0, 0}, 5, 5 * sec, 0, 45 * time.Second, 65 * time.Second},
		{"counts beyond the bound", minute, []int64{math.MaxInt64, math.MaxInt64}, 1, 0, 0, 2 * time.Minute, 2 * time.Minute},
		{"the oldest beyond the bound", longest, []int64{0, math.MaxInt64}, MaxCount, 1, 0, 8783*time.Hour + 171_492_522_079, MaxLength - 1},
		{"more counts than are looked at", fixed, []int64{2, 9}, 5, 60 * sec, 3, 0, time.Minute},
		{"no counts", minute, nil, 5, 0, 5, 0, 0},
		{"one count is missing", minute, []int64{3}, 3, 20 * sec, 0, time.Minute, 100 * time.Second},
	} {
		left := tt.shape.Remaining(tt.counts, tt.limit, tt.now)
		retry, ok := tt.shape.RetryAfter(tt.counts, tt.limit, 1, tt.now)
		if !ok {
			retry = never
		}
		if reset := tt.shape.Reset(tt.counts, tt.now); left != tt.left || retry != tt.retry || reset != tt.reset {
			t.Errorf("%s: %d left, retry after %v, reset after %v", tt.why, left, retry, reset)
		}
	}
}
