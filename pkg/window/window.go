// Package window holds the arithmetic of a window: from the counts of its buckets
// and a time, whether a hit fits, what remains, and when to come again.
//
// A bucket is one aligned slice of time, floor(unix time / size). A sliding window
// of length W is made of B buckets of W/B. Its estimate is the B newest buckets in
// full, and the one before them weighted by the share of it that still lies in the
// window. B = 1 is the classic two-counter form: previous × overlap + current. A
// fixed window counts its current bucket and nothing else. A log counts every bucket
// that still touches the window in full, so that no stretch of W ever holds too many.
//
// A hit of some cost is admitted if and only if estimate + cost <= limit. This is
// decided in whole numbers, so that every party comes to the same answer.
//
// Token and leaky buckets are reckoned from counts of the same kind: see [Drain].
//
// Everything here is pure. Times are Unix nanoseconds, nothing reads a clock,
// allocates, or keeps state, and all of it may be called from any goroutine.
package window

import (
	"fmt"
	"math"
	"math/bits"
	"time"
)

const (
	// MaxLength is the longest window.
	MaxLength = 366 * 24 * time.Hour
	// MaxBuckets is the most buckets a window can be cut into: one a minute for a day.
	MaxBuckets = 1440
	// MaxCount is the largest limit, cost or count of a bucket that offpath accepts.
	// It is exact as a float64, which is what the store's Lua scripts compute with.
	MaxCount = int64(1e15)
)

// Kind is what the counts of a window's buckets come to.
type Kind uint8

const (
	// Sliding counts the full buckets, and the oldest one's share. It is the default.
	Sliding Kind = iota
	// Log counts every bucket in full that touches the window: never more than the limit in any
	// stretch of the window's length, and a hit is forgotten at most one bucket's length late.
	Log
	// Token is for a token bucket, which takes a [Drain].
	Token
	// Leaky is for a leaky bucket, a queue, which takes a [Drain].
	Leaky
)

// Shape is how a window is cut into buckets. Its methods hold for a shape that
// Validate accepts; for others their results mean nothing, and they may panic.
type Shape struct {
	// Length is how far back the window reaches; at most MaxLength.
	Length time.Duration
	// Buckets is how many buckets make up Length, from 1 to MaxBuckets. More follow
	// the true rolling count more closely, and cost memory and time in proportion.
	Buckets int
	// Fixed makes a fixed window: only the current bucket counts. Buckets must be 1, and Kind
	// Sliding.
	Fixed bool
	// Kind is what the counts come to.
	Kind Kind
}

// Drains reports whether hits leave at a constant rate, not when they are of some age: a token or a
// leaky bucket. Remaining, RetryAfter and Reset are not for such a shape; a [Drain] has others.
func (s Shape) Drains() bool { return s.Kind >= Token }

// DefaultBuckets returns the number of buckets of a window of this kind and length if none is
// given: 1 if it is sliding; else the most, up to 100 for a log and 60 for a token or leaky bucket,
// that are a whole number of milliseconds long each.
func DefaultBuckets(kind Kind, length time.Duration) int {
	most := 1
	switch kind {
	case Log:
		most = 100
	case Token, Leaky:
		most = 60
	}
	for most > 1 && length%(time.Duration(most)*time.Millisecond) != 0 {
		most--
	}
	return most
}

// Validate says what is wrong with the shape, or nil. A bucket must be a whole
// number of milliseconds, so that its number and its expiry agree everywhere.
func (s Shape) Validate() error {
	switch {
	case s.Length <= 0:
		return fmt.Errorf("window of %v: want more than 0", s.Length)
	case s.Length > MaxLength:
		return fmt.Errorf("window of %v: want at most 366 days", s.Length)
	case s.Length%time.Millisecond != 0:
		return fmt.Errorf("window of %v: want a whole number of milliseconds", s.Length)
	case s.Buckets < 1 || s.Buckets > MaxBuckets:
		return fmt.Errorf("%d buckets: want 1 to %d", s.Buckets, MaxBuckets)
	case s.Kind > Leaky:
		return fmt.Errorf("window of kind %d: there is none", s.Kind)
	case s.Fixed && s.Kind != Sliding:
		return fmt.Errorf("a fixed window cannot be of kind %d too", s.Kind)
	case s.Fixed && s.Buckets != 1:
		return fmt.Errorf("%d buckets: a fixed window has 1", s.Buckets)
	case s.Length%(time.Duration(s.Buckets)*time.Millisecond) != 0:
		return fmt.Errorf("%d buckets: %v cut into %d is not a whole number of milliseconds",
			s.Buckets, s.Length, s.Buckets)
	}
	return nil
}

// BucketSize is the length of one bucket.
func (s Shape) BucketSize() time.Duration {
	if s.Buckets == 1 {
		return s.Length // by far the commonest, and a division saved
	}
	return s.Length / time.Duration(s.Buckets)
}

// Live returns the number of buckets that a window can touch, and of the counts that the other
// methods take: Buckets and the bucket that is just leaving, or 1 if Fixed.
func (s Shape) Live() int {
	if s.Fixed {
		return 1
	}
	return s.Buckets + 1
}

// Bucket is the number of the bucket that now lies in: floor(now / size), also
// before 1970.
func (s Shape) Bucket(now int64) int64 {
	size := int64(s.BucketSize())
	bucket := now / size
	if now%size < 0 {
		bucket--
	}
	return bucket
}

// End is the first nanosecond after the bucket. Ends that no int64 can hold, which
// only an absurd bucket has, are cut to the nearest that it can.
func (s Shape) End(bucket int64) int64 {
	size := int64(s.BucketSize())
	if bucket >= 0 { // the commonest, and divisions saved
		high, low := bits.Mul64(uint64(bucket)+1, uint64(size))
		if high == 0 && low <= math.MaxInt64 {
			return int64(low)
		}
		return math.MaxInt64
	}
	if bucket < math.MinInt64/size-1 {
		return math.MinInt64
	}
	return (bucket + 1) * size
}

// Period is the number of the stretch of time, as long as a window, that a bucket is part of. The
// store bounds a rule's new keys per period.
func (s Shape) Period(bucket int64) int64 {
	n := int64(s.Buckets)
	return (bucket - (bucket%n+n)%n) / n
}

// PeriodEnd is when the period of a bucket ends, in Unix nanoseconds.
func (s Shape) PeriodEnd(bucket int64) int64 { return (s.Period(bucket) + 1) * int64(s.Length) }

// Gone reports whether the bucket has left every window that ends at now or later.
// A bucket of the future is not gone. Any number may be asked about.
func (s Shape) Gone(bucket, now int64) bool {
	// Not Bucket(now)-bucket >= Live(): with a bucket read from the wire that overflows.
	return bucket <= s.Bucket(now)-int64(s.Live())
}

// elapsed is how far now lies into its bucket, from 0 to size-1.
func elapsed(now, size int64) int64 {
	into := now % size
	if into < 0 {
		into += size
	}
	return into
}
