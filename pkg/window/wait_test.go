package window

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestWaitsAreTheLeast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, counts, now := windows(t)
		limit, cost := amounts().Draw(t, "limit"), amounts().Draw(t, "cost")
		if rapid.Bool().Draw(t, "possible") {
			cost = rapid.Int64Range(0, limit).Draw(t, "cost")
		}
		wait, ok := s.RetryAfter(counts, limit, cost, now)
		if ok != (cost <= limit) {
			t.Fatalf("ok = %v", ok)
		}
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

func TestWaitsAtTheEdges(t *testing.T) {
	const sec = int64(time.Second)
	minute := Shape{Length: time.Minute, Buckets: 1}
	fixed := Shape{Length: time.Minute, Buckets: 1, Fixed: true}
	fine := Shape{Length: time.Minute, Buckets: 6}
	log := Shape{Length: time.Minute, Buckets: 6, Kind: Log}
	const never = -1
	for _, tt := range []struct {
		why              string
		shape            Shape
		counts           []int64
		limit, cost, now int64
		retry, reset     time.Duration
	}{
		{"room is left", minute, []int64{2, 0}, 3, 1, 20 * sec, 0, 100 * time.Second},
		{"more than the limit never fits", minute, []int64{0, 0}, 3, 4, 0, never, 0},
		{"a limit of 0", minute, []int64{0, 0}, 0, 1, 0, never, 0},
		{"the previous minute must melt by one of two", minute, []int64{2, 2}, 4, 1, 70 * sec, 20 * time.Second, 110 * time.Second},
		{"rounded up to a whole nanosecond", minute, []int64{0, 7}, 7, 1, 60 * sec, 8_571_428_572, 60 * time.Second},
		{"six buckets: the third must leave, the second by half", fine, []int64{1, 2, 4, 0, 0, 0, 0}, 4, 2, 5 * sec, 50 * time.Second, 65 * time.Second},
		{"a log: the second of six buckets must leave altogether", log, []int64{1, 2, 4, 0, 0, 0, 0}, 4, 2, 5 * sec, 55 * time.Second, 65 * time.Second},
		{"fixed: the next minute", fixed, []int64{3}, 3, 1, 20 * sec, 40 * time.Second, 40 * time.Second},
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
