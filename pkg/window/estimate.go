package window

import "math/bits"

// All methods below take the counts newest first: counts[i] is the count of bucket
// Bucket(now)-i, never negative. There are Live() of them; missing ones count as 0
// and further ones are not looked at.

// Remaining returns the largest cost that still fits at now, at least 0: the limit less the full
// buckets and the share of the oldest one, rounded up, or in a log all of it. It is exact for all
// counts.
//
// Between two hits it only grows, as long as now stays within one bucket.
func (s Shape) Remaining(counts []int64, limit, now int64) int64 {
	full := min(s.Buckets, len(counts))
	rest := limit
	for _, count := range counts[:full] {
		// Leaving as soon as nothing is left also keeps rest from overflowing.
		if rest -= count; rest <= 0 {
			return 0
		}
	}
	switch oldest := s.oldest(counts); {
	case oldest <= 0:
	case s.Kind == Log:
		rest -= oldest
	default:
		rest -= s.share(oldest, now)
	}
	return max(rest, 0)
}

// Count is the estimate of how many hits lie in the window at now, with its
// fraction. It is for people: decisions are Remaining's, which does not round.
func (s Shape) Count(counts []int64, now int64) float64 {
	estimate := 0.0
	for _, count := range counts[:min(s.Buckets, len(counts))] {
		estimate += float64(count)
	}
	switch oldest := s.oldest(counts); {
	case oldest <= 0:
	case s.Kind == Log:
		estimate += float64(oldest)
	default:
		size := int64(s.BucketSize())
		estimate += float64(oldest) * (float64(size-elapsed(now, size)) / float64(size))
	}
	return estimate
}

// oldest is the count of the bucket that is leaving the window, 0 if there is none.
func (s Shape) oldest(counts []int64) int64 {
	if s.Fixed || len(counts) <= s.Buckets {
		return 0
	}
	return counts[s.Buckets]
}

// share is how much of the oldest bucket's count, which is > 0, still lies in the
// window at now, rounded up.
func (s Shape) share(oldest, now int64) int64 {
	size := int64(s.BucketSize())
	hi, lo := bits.Mul64(uint64(oldest), uint64(size-elapsed(now, size)))
	if hi == 0 { // plain division: Div64 is slow on machines that lack the instruction
		return roundUp(lo/uint64(size), lo%uint64(size))
	}
	// hi < size, as the second factor is <= size: Div64 cannot overflow.
	return roundUp(bits.Div64(hi, lo, uint64(size)))
}

// mulDiv is a·b/c with its remainder, for factors that are not negative, and a quotient that an
// int64 has room for.
func mulDiv(a, b, c int64) (quotient, remainder uint64) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	return bits.Div64(hi, lo, uint64(c))
}

func roundUp(quotient, remainder uint64) int64 {
	if remainder > 0 {
		quotient++
	}
	return int64(quotient)
}
