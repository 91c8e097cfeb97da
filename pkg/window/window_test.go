package window

import (
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestValidate(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		shape Shape
		want  string // part of the error; "" if valid
	}{
		{Shape{Length: time.Second, Buckets: 1}, ""},
		{Shape{Length: time.Second, Buckets: 1, Fixed: true}, ""},
		{Shape{Length: time.Hour, Buckets: 60}, ""},
		{Shape{Length: 24 * time.Hour, Buckets: MaxBuckets}, ""},
		{Shape{Length: ms, Buckets: 1}, ""},
		{Shape{Length: 1440 * ms, Buckets: 1440}, ""},
		{Shape{Length: MaxLength, Buckets: 366}, ""},
		{Shape{}, "want more than 0"},
		{Shape{Length: -time.Second, Buckets: 1}, "want more than 0"},
		{Shape{Length: MaxLength + ms, Buckets: 1}, "at most 366 days"},
		{Shape{Length: math.MaxInt64, Buckets: 1}, "at most 366 days"},
		{Shape{Length: time.Microsecond, Buckets: 1}, "whole number of milliseconds"},
		{Shape{Length: time.Second + 1, Buckets: 1}, "whole number of milliseconds"},
		{Shape{Length: time.Second}, "0 buckets"},
		{Shape{Length: time.Second, Buckets: -1}, "-1 buckets"},
		{Shape{Length: 24 * time.Hour, Buckets: MaxBuckets + 1}, "1441 buckets"},
		{Shape{Length: time.Second, Buckets: math.MaxInt}, "want 1 to 1440"},
		{Shape{Length: time.Second, Buckets: 60}, "1s cut into 60"},
		{Shape{Length: 59 * ms, Buckets: 60}, "59ms cut into 60"},
		{Shape{Length: time.Hour, Buckets: 60, Fixed: true}, "a fixed window has 1"},
		{Shape{Length: time.Second, Buckets: 100, Kind: Log}, ""},
		{Shape{Length: time.Second, Buckets: 50, Kind: Token}, ""},
		{Shape{Length: time.Second, Buckets: 1, Kind: Leaky}, ""},
		{Shape{Length: time.Second, Buckets: 1, Kind: Leaky + 1}, "kind 4"},
		{Shape{Length: time.Second, Buckets: 1, Kind: Log, Fixed: true}, "cannot be of kind 1 too"},
	} {
		err := tt.shape.Validate()
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: got %v, want %q", tt.shape, err, tt.want)
		}
	}
}

func TestDefaultBuckets(t *testing.T) {
	for _, tt := range []struct {
		kind   Kind
		length time.Duration
		want   int
	}{
		{Sliding, time.Second, 1},
		{Log, time.Second, 100},
		{Log, 59 * time.Millisecond, 59},
		{Log, 101 * time.Millisecond, 1}, // a prime number of ms
		{Log, time.Millisecond, 1},
		{Token, time.Second, 50},
		{Token, time.Hour, 60},
		{Leaky, time.Minute, 60},
		{Leaky, MaxLength, 60},
	} {
		got := DefaultBuckets(tt.kind, tt.length)
		if got != tt.want {
			t.Errorf("kind %d, %v: %d, want %d", tt.kind, tt.length, got, tt.want)
		}
		if err := (Shape{Length: tt.length, Buckets: got, Kind: tt.kind}).Validate(); err != nil {
			t.Error(err)
		}
	}
}

func TestBucketsOfTime(t *testing.T) {
	const sec = int64(time.Second)
	sliding := Shape{Length: 10 * time.Second, Buckets: 10}
	fixed := Shape{Length: time.Second, Buckets: 1, Fixed: true}
	for _, tt := range []struct {
		why       string
		now, want int64
	}{
		{"the epoch starts bucket 0", 0, 0},
		{"its last nanosecond", sec - 1, 0},
		{"the next one's first", sec, 1},
		{"before the epoch", -1, -1},
		{"floor, not truncation", -sec, -1},
		{"floor, not truncation", -sec - 1, -2},
		{"the latest time", math.MaxInt64, math.MaxInt64 / sec},
		{"the earliest time", math.MinInt64, math.MinInt64/sec - 1},
	} {
		for _, s := range []Shape{sliding, fixed} {
			if got := s.Bucket(tt.now); got != tt.want {
				t.Errorf("%s: Bucket(%d) = %d, want %d", tt.why, tt.now, got, tt.want)
			}
		}
	}
	for _, tt := range []struct {
		why          string
		bucket, want int64
	}{
		{"the first", 0, sec},
		{"before the epoch", -1, 0},
		{"before the epoch", -2, -sec},
		{"the last with an end", math.MaxInt64/sec - 1, math.MaxInt64 / sec * sec},
		{"the one after it", math.MaxInt64 / sec, math.MaxInt64},
		{"absurd", math.MaxInt64, math.MaxInt64},
		{"the first with an end", math.MinInt64/sec - 1, math.MinInt64 / sec * sec},
		{"the one before it", math.MinInt64/sec - 2, math.MinInt64},
		{"absurd", math.MinInt64, math.MinInt64},
	} {
		if got := sliding.End(tt.bucket); got != tt.want {
			t.Errorf("%s: End(%d) = %d, want %d", tt.why, tt.bucket, got, tt.want)
		}
	}
	for _, tt := range []struct {
		why    string
		shape  Shape
		bucket int64
		want   bool
	}{
		{"the current bucket", sliding, 100, false},
		{"the oldest live bucket", sliding, 90, false},
		{"one that has just left", sliding, 89, true},
		{"a future bucket", sliding, 101, false},
		{"as far back as there is", sliding, math.MinInt64, true},
		{"as far ahead as there is", sliding, math.MaxInt64, false},
		{"the current bucket", fixed, 100, false},
		{"the one before it", fixed, 99, true},
	} {
		if got := tt.shape.Gone(tt.bucket, 100*sec); got != tt.want {
			t.Errorf("%s: Gone(%d) = %v", tt.why, tt.bucket, got)
		}
	}
}

// A bucket holds its own time and no other: what Bucket, End and Gone say agrees.
func TestBucketEndAndGoneAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := shapes().Draw(t, "shape")
		now := times().Draw(t, "now")
		b, size := s.Bucket(now), int64(s.BucketSize())
		if end := s.End(b); now >= end || now < end-size {
			t.Fatalf("now %d is outside of its bucket %d, which ends at %d", now, b, end)
		}
		if got, want := big.NewInt(b), floorDiv(now, size); got.Cmp(want) != 0 {
			t.Fatalf("Bucket = %v, want %v", got, want)
		}
		left := b - int64(s.Live()) // the newest that has left
		if !s.Gone(left, now) || s.Gone(left+1, now) {
			t.Fatalf("Gone(%d), Gone(%d) = %v, %v", left, left+1, s.Gone(left, now), s.Gone(left+1, now))
		}
	})
}

func shapes() *rapid.Generator[Shape] {
	return rapid.Custom(func(t *rapid.T) Shape {
		s := Shape{Buckets: rapid.OneOf(rapid.Just(1), rapid.IntRange(1, 8), rapid.Just(60), rapid.Just(MaxBuckets)).Draw(t, "buckets")}
		most := int64(MaxLength/time.Millisecond) / int64(s.Buckets)
		size := rapid.OneOf(rapid.Int64Range(1, 5), rapid.Int64Range(1, 60_000), rapid.Int64Range(1, most), rapid.Just(most)).Draw(t, "size")
		s.Length = time.Duration(size) * time.Millisecond * time.Duration(s.Buckets)
		s.Fixed = s.Buckets == 1 && rapid.Bool().Draw(t, "fixed")
		if !s.Fixed && rapid.Bool().Draw(t, "log") {
			s.Kind = Log
		}
		if err := s.Validate(); err != nil {
			t.Fatal(err)
		}
		return s
	})
}

// times leaves room below the largest int64 for the longest wait.
func times() *rapid.Generator[int64] {
	const far = math.MaxInt64 - 3*int64(MaxLength)
	return rapid.OneOf(rapid.Int64Range(-far, far), rapid.Int64Range(-1e10, 1e10), rapid.Just(int64(0)),
		rapid.Just(int64(-far)), rapid.Just(int64(far)))
}

func amounts() *rapid.Generator[int64] {
	return rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 20), rapid.Int64Range(0, MaxCount), rapid.Just(MaxCount))
}

func countsOf(s Shape) *rapid.Generator[[]int64] {
	if s.Live() <= 10 {
		return rapid.SliceOfN(amounts(), s.Live(), s.Live())
	}
	return rapid.Custom(func(t *rapid.T) []int64 { // few drawn values: long slices are slow to draw
		counts := make([]int64, s.Live())
		for range rapid.IntRange(0, 5).Draw(t, "filled") {
			counts[rapid.IntRange(0, s.Live()-1).Draw(t, "at")] = amounts().Draw(t, "count")
		}
		counts[s.Buckets] = amounts().Draw(t, "oldest")
		return counts
	})
}

// floorDiv is floor(a/b) for b > 0, by other means than the code under test.
func floorDiv(a, b int64) *big.Int {
	return new(big.Int).Div(big.NewInt(a), big.NewInt(b)) // Euclidean: floor, as b > 0
}
