package window

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// later is what the counts have become at the time then, if nothing has come since now.
func later(s Shape, counts []int64, now, then int64) []int64 {
	moved := make([]int64, s.Live())
	shift := s.Bucket(then) - s.Bucket(now)
	for i, count := range counts {
		if at := int64(i) + shift; at < int64(len(moved)) {
			moved[at] = count
		}
	}
	return moved
}

func TestRetryAfterIsTheLeastWait(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := shapes().Draw(t, "shape")
		now := times().Draw(t, "now")
		counts := countsOf(s).Draw(t, "counts")
		limit := amounts().Draw(t, "limit")
		cost := amounts().Draw(t, "cost")
		if rapid.Bool().Draw(t, "possible") {
			cost = rapid.Int64Range(0, limit).Draw(t, "cost")
		}
		d, ok := s.RetryAfter(counts, limit, cost, now)
		if ok != (cost <= limit) {
			t.Fatalf("ok = %v", ok)
		}
		if !ok || cost == 0 {
			return // never, or nothing to wait for
		}
		then := now + int64(d)
		if d < 0 || !fits(s, later(s, counts, now, then), limit, cost, then) {
			t.Fatalf("after %d ns it does not fit", d)
		}
		if d > 0 && fits(s, later(s, counts, now, then-1), limit, cost, then-1) {
			t.Fatalf("after %d ns it fits already", d-1)
		}
	})
}

func TestResetIsWhenNothingIsLeft(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := shapes().Draw(t, "shape")
		now := times().Draw(t, "now")
		counts := countsOf(s).Draw(t, "counts")
		if s.Fixed {
			counts = counts[:1]
		}
		d := s.Reset(counts, now)
		then := now + int64(d)
		if d < 0 || estimate(s, later(s, counts, now, then), then).Sign() != 0 {
			t.Fatalf("after %d ns something is left", d)
		}
		if d > 0 && estimate(s, later(s, counts, now, then-1), then-1).Sign() == 0 {
			t.Fatalf("after %d ns nothing is left already", d-1)
		}
	})
}

func TestWaits(t *testing.T) {
	const sec = int64(time.Second)
	minute := Shape{Length: time.Minute, Buckets: 1}
	fixed := Shape{Length: time.Minute, Buckets: 1, Fixed: true}
	fine := Shape{Length: time.Minute, Buckets: 6}
	const never = -1
	for _, tt := range []struct {
		why              string
		shape            Shape
		counts           []int64
		limit, cost, now int64
		retry, reset     time.Duration
	}{
		{"nothing has come", minute, []int64{0, 0}, 3, 1, 0, 0, 0},
		{"room is left", minute, []int64{2, 0}, 3, 1, 20 * sec, 0, 100 * time.Second},
		{"more than the limit never fits", minute, []int64{0, 0}, 3, 4, 0, never, 0},
		{"a limit of 0", minute, []int64{0, 0}, 0, 1, 0, never, 0},
		{"full: one of three melts in a third of the next minute", minute, []int64{3, 0}, 3, 1, 20 * sec, 60 * time.Second, 100 * time.Second},
		{"full: room for all three only when the next minute is over", minute, []int64{3, 0}, 3, 3, 20 * sec, 100 * time.Second, 100 * time.Second},
		{"the previous minute must melt by one of two", minute, []int64{2, 2}, 4, 1, 70 * sec, 20 * time.Second, 110 * time.Second},
		{"rounded up to a whole nanosecond", minute, []int64{0, 7}, 7, 1, 60 * sec, 8_571_428_572, 60 * time.Second},
		{"six buckets: the third must leave, the second by half", fine, []int64{1, 2, 4, 0, 0, 0, 0}, 4, 2, 5 * sec, 50 * time.Second, 65 * time.Second},
		{"fixed: the next minute", fixed, []int64{3}, 3, 1, 20 * sec, 40 * time.Second, 40 * time.Second},
		{"before 1970", minute, []int64{3, 0}, 3, 1, -40 * sec, 60 * time.Second, 100 * time.Second},
		{"counts beyond the bound neither wrap nor panic", minute, []int64{math.MaxInt64, math.MaxInt64}, 1, 1, 0, 120 * time.Second, 120 * time.Second},
		{"missing counts are 0", minute, []int64{3}, 3, 1, 20 * sec, 60 * time.Second, 100 * time.Second},
		{"missing counts are 0", minute, nil, 3, 1, 20 * sec, 0, 0},
	} {
		retry, ok := tt.shape.RetryAfter(tt.counts, tt.limit, tt.cost, tt.now)
		if !ok {
			retry = never
		}
		if retry != tt.retry {
			t.Errorf("%s: RetryAfter = %v, want %v", tt.why, retry, tt.retry)
		}
		if got := tt.shape.Reset(tt.counts, tt.now); got != tt.reset {
			t.Errorf("%s: Reset = %v, want %v", tt.why, got, tt.reset)
		}
	}
}
