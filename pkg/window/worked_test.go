package window

import (
	"testing"
	"time"
)

// The worked examples: each row is a step of a script, with its reason.

// limiter is the least that can be made of this package: it counts the hits of one key under one
// rule.
type limiter struct {
	shape  Shape
	limit  int64
	counts map[int64]int64 // by bucket
}

// allow charges the hit if it fits.
func (l limiter) allow(now int64) bool {
	settled := Level{Bucket: l.shape.Bucket(now) - int64(l.shape.Live())}
	fits := l.shape.Remaining(live(l.counts, l.shape, now, settled), l.limit, now) >= 1
	if fits {
		l.counts[l.shape.Bucket(now)]++
	}
	return fits
}

// at reads a time of one certain day.
func at(t *testing.T, clock string) int64 {
	when, err := time.Parse(time.DateTime, "2026-03-05 "+clock)
	if err != nil {
		t.Fatal(err)
	}
	return when.UnixNano()
}

func TestThreePerMinute(t *testing.T) {
	type step struct {
		at   string
		pass bool
		why  string
	}
	for _, script := range []struct {
		name  string
		shape Shape
		steps []step
	}{
		{"fixed window", Shape{Length: time.Minute, Buckets: 1, Fixed: true}, []step{
			{"03:00:00", true, "first of this minute"},
			{"03:00:10", true, "second"},
			{"03:01:05", true, "first of a new minute"},
			{"03:01:20", true, "second"},
			{"03:01:45", true, "third"},
			{"03:01:50", false, "fourth"},
		}},
		{"sliding, B = 1", Shape{Length: time.Minute, Buckets: 1}, []step{
			{"03:00:00", true, "0 + 1"},
			{"03:00:10", true, "1 + 1"},
			{"03:01:05", true, "2·55/60 + 1 = 2.83"},
			{"03:01:20", false, "2·40/60 + 1 + 1 = 3.33"},
			{"03:01:45", true, "2·15/60 + 1 + 1 = 2.5, as the denied hit was not charged"},
			{"03:01:50", false, "2·10/60 + 2 + 1 = 3.33"},
		}},
		{"sliding, B = 60", Shape{Length: time.Minute, Buckets: 60}, []step{
			{"03:00:00", true, "0 + 1"},
			{"03:00:10", true, "1 + 1"},
			{"03:01:05", true, "3:00:00 has left: 1 + 1"},
			{"03:01:20", true, "3:00:10 has left: 1 + 1"},
			{"03:01:45", true, "2 + 1"},
			{"03:01:50", false, "3:01:05, 3:01:20 and 3:01:45 are in: 3 + 1"},
		}},
		{"sliding log", Shape{Length: time.Minute, Buckets: 60, Kind: Log}, []step{
			{"03:00:30", true, "first"},
			{"03:00:50", true, "second"},
			{"03:01:10", true, "third"},
			{"03:01:25", false, "all three are within a minute"},
			{"03:01:30", false, "the first leaves when its whole second has"},
			{"03:01:31", true, "as now"},
			{"03:01:32", false, "3:00:50 is still there"},
			{"03:05:00", true, "all have left"},
		}},
	} {
		l := limiter{script.shape, 3, map[int64]int64{}}
		for _, s := range script.steps {
			got := l.allow(at(t, s.at))
			expect(t, got == s.pass, "%s: %s: got %v, want %v: %s", script.name, s.at, got, s.pass, s.why)
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
		expect(t, joins == step.joins, "after %v: joins %v: %s", step.after, joins, step.why)
		if !joins {
			continue
		}
		turn := step.after + d.Turn(settled, known, now)
		expect(t, turn <= step.turn && turn >= step.turn-fine,
			"after %v: its turn comes after %v, want %v, or a bucket's length earlier: %s", step.after, turn, step.turn, step.why)
		counts[d.Shape.Bucket(now)]++
	}
}
