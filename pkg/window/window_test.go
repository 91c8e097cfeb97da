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
		{Shape{Length: 24 * time.Hour, Buckets: MaxBuckets}, ""},
		{Shape{Length: ms, Buckets: 1}, ""},
		{Shape{Length: 1440 * ms, Buckets: 1440}, ""},
		{Shape{Length: MaxLength, Buckets: 366}, ""},
		{Shape{}, "want more than 0"},
		{Shape{Length: MaxLength + ms, Buckets: 1}, "at most 366 days"},
		{Shape{Length: math.MaxInt64, Buckets: 1}, "at most 366 days"},
		{Shape{Length: time.Second + 1, Buckets: 1}, "whole number of milliseconds"},
		{Shape{Length: time.Second}, "0 buckets"},
		{Shape{Length: time.Second, Buckets: -1}, "-1 buckets"},
		{Shape{Length: 24 * time.Hour, Buckets: MaxBuckets + 1}, "1441 buckets"},
		{Shape{Length: time.Second, Buckets: 60}, "1s cut into 60"},
		{Shape{Length: time.Hour, Buckets: 60, Fixed: true}, "a fixed window has 1"},
		{Shape{Length: time.Second, Buckets: 100, Kind: Log}, ""},
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
		expect(t, got == tt.want, "kind %d, %v: %d, want %d", tt.kind, tt.length, got, tt.want)
		if err := (Shape{Length: tt.length, Buckets: got, Kind: tt.kind}).Validate(); err != nil {
			t.Error(err)
		}
	}
}

func TestBucketsAtTheEdgesOfTime(t *testing.T) {
	const sec, first, last = int64(time.Second), math.MinInt64, math.MaxInt64
	s := Shape{Length: 10 * time.Second, Buckets: 10}
	for now, want := range map[int64]int64{-1: -1, -sec - 1: -2, last: last / sec, first: first/sec - 1} {
		got := s.Bucket(now)
		expect(t, got == want, "Bucket(%d) = %d, want %d", now, got, want)
	}
	for bucket, want := range map[int64]int64{
		-1: 0, last/sec - 1: last / sec * sec, last / sec: last, last: last,
		first/sec - 1: first / sec * sec, first/sec - 2: first, first: first,
	} {
		got := s.End(bucket)
		expect(t, got == want, "End(%d) = %d, want %d", bucket, got, want)
	}
	expect(t, s.Gone(first, 100*sec) && !s.Gone(last, 100*sec), "the first bucket is not gone, or the last is")
}

// A bucket holds its own time and no other: what Bucket, End and Gone say agrees.
func TestBucketEndAndGoneAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := shapes().Draw(t, "shape")
		now := times().Draw(t, "now")
		b, size := s.Bucket(now), int64(s.BucketSize())
		end := s.End(b)
		require(t, now < end && now >= end-size, "now %d is outside of its bucket %d, which ends at %d", now, b, end)
		got, want := big.NewInt(b), floorDiv(now, size)
		require(t, got.Cmp(want) == 0, "Bucket = %v, want %v", got, want)
		left := b - int64(s.Live()) // the newest that has left
		require(t, s.Gone(left, now) && !s.Gone(left+1, now),
			"Gone(%d), Gone(%d) = %v, %v", left, left+1, s.Gone(left, now), s.Gone(left+1, now))
	})
}
