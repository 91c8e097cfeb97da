package window

import (
	"testing"
	"time"
)

// A token bucket of 4 that gets one token a second: 60 per minute, burst 4. With 600 buckets per window time
// is as fine as a tenth of a second.
func TestTokenBucketOfFour(t *testing.T) {
	d := Drain{Shape: Shape{Length: time.Minute, Buckets: 600, Kind: Token}, Limit: 60, Burst: 4}
	counts := map[int64]int64{}
	start := at(t, "03:00:00")
	settled := Level{Bucket: d.Shape.Bucket(start) - 1}
	for _, step := range []struct {
		after time.Duration
		cost  int64
		pass  bool
		left  int64
		retry time.Duration
		why   string
	}{
		{0, 1, true, 3, 0, "full: 4 tokens"},
		{0, 2, true, 1, 0, "3 tokens"},
		{0, 1, true, 0, 0, "the last"},
		{0, 1, false, 0, 1100 * time.Millisecond, "none; the hits count as of the end of their tenth of a second"},
		{1099 * time.Millisecond, 1, false, 0, time.Millisecond, "not yet one"},
		{1100 * time.Millisecond, 1, true, 0, 0, "one"},
		{3200 * time.Millisecond, 3, false, 2, 900 * time.Millisecond, "two"},
		{4200 * time.Millisecond, 3, true, 0, 0, "three"},
		{20 * time.Second, 5, false, 4, -1, "it overflows at 4, so 5 never pass"},
		{20 * time.Second, 4, true, 0, 0, "all 4 at once"},
		{time.Hour, 4, true, 0, 0, "long after, 4 and no more"},
		{time.Hour, 1, false, 0, 1100 * time.Millisecond, "though an hour's tokens would be 3600"},
	} {
		now := start + int64(step.after)
		known := live(counts, d.Shape, now, settled)
		left := d.Remaining(settled, known, now)
		pass := left >= step.cost
		if pass {
			counts[d.Shape.Bucket(now)] += step.cost
			left -= step.cost
		}
		retry, ok := d.RetryAfter(settled, known, step.cost, now)
		if !ok {
			retry = -1
		}
		if pass != step.pass || left != step.left || retry != step.retry {
			t.Errorf("after %v, cost %d: got %v, %d left, retry in %v; want %v, %d, %v: %s",
				step.after, step.cost, pass, left, retry, step.pass, step.left, step.retry, step.why)
		}
	}
}

// A leaky bucket that lets out one hit a second, with room for 3: whatever comes in, and whenever, comes out a
// second apart.
func TestLeakyBucketOfThree(t *testing.T) {
	d := Drain{Shape: Shape{Length: time.Minute, Buckets: 600, Kind: Leaky}, Limit: 60, Burst: 3}
	counts := map[int64]int64{}
	start := at(t, "03:00:00")
	settled := Level{Bucket: d.Shape.Bucket(start) - 1}
	const fine = 100 * time.Millisecond // a bucket
	for _, step := range []struct {
		after time.Duration
		joins bool
		turn  time.Duration // after the start
		why   string
	}{
		{0, true, 0, "the first of an empty queue goes at once"},
		{0, true, 1 * time.Second, "the second when the first has drained"},
		{0, true, 2 * time.Second, ""},
		{0, false, 0, "3 are in it"},
		{900 * time.Millisecond, false, 0, "still"},
		{1 * time.Second, true, 3 * time.Second, "one has drained"},
		{2500 * time.Millisecond, true, 4 * time.Second, "room for one more: two have drained, and a half"},
		{2500 * time.Millisecond, false, 0, "which is not two"},
		{10 * time.Second, true, 10 * time.Second, "long empty"},
		{10500 * time.Millisecond, true, 11 * time.Second, "half of the one before is in it"},
	} {
		now := start + int64(step.after)
		known := live(counts, d.Shape, now, settled)
		joins := d.Remaining(settled, known, now) >= 1
		if joins != step.joins {
			t.Errorf("after %v: joins %v: %s", step.after, joins, step.why)
		}
		if !joins {
			continue
		}
		turn := step.after + d.Turn(settled, known, now)
		if turn > step.turn || turn < step.turn-fine {
			t.Errorf("after %v: its turn comes after %v, want %v, or a bucket's length earlier: %s", step.after, turn, step.turn, step.why)
		}
		counts[d.Shape.Bucket(now)]++
	}
}
