package window

import (
	"math"
	"math/big"
	"time"

	"pgregory.net/rapid"
)

// estimate is the definition, computed the slow way: every bucket weighs as much as
// the share of it that lies in the window, or 1 in a log if any does; the current one weighs 1.
func estimate(s Shape, counts []int64, now int64) *big.Rat {
	size := int64(s.BucketSize())
	current := floorDiv(now, size)
	sum := new(big.Rat)
	for i, count := range counts {
		if s.Fixed && i > 0 {
			break
		}
		// The part of bucket current-i that is later than now-Length.
		end := new(big.Int).Add(current, big.NewInt(int64(1-i)))
		end.Mul(end, big.NewInt(size))
		inside := end.Sub(end, big.NewInt(now)).Int64() + int64(s.Length)
		if s.Fixed {
			inside = size
		}
		inside = min(max(inside, 0), size)
		if s.Kind == Log && inside > 0 {
			inside = size
		}
		weight := big.NewRat(inside, size)
		sum.Add(sum, weight.Mul(weight, new(big.Rat).SetInt64(count)))
	}
	return sum
}

// fits is the rule of admission: estimate + cost <= limit.
func fits(s Shape, counts []int64, limit, cost, now int64) bool {
	sum := estimate(s, counts, now)
	return sum.Add(sum, new(big.Rat).SetInt64(cost)).Cmp(new(big.Rat).SetInt64(limit)) <= 0
}

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

// isLeast fails the test unless it is so after the wait, and not a nanosecond earlier.
func isLeast(t *rapid.T, what string, wait time.Duration, isSo func(after int64) bool) {
	t.Helper()
	require(t, wait >= 0 && isSo(int64(wait)), "%s: after %d ns it is not so", what, wait)
	require(t, wait <= 0 || !isSo(int64(wait)-1), "%s: after %d ns it is so already", what, wait-1)
}

// windows draws a window as of some time.
func windows(t *rapid.T) (s Shape, counts []int64, now int64) {
	s = shapes().Draw(t, "shape")
	return s, countsOf(s).Draw(t, "counts"), times().Draw(t, "now")
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

func drains() *rapid.Generator[Drain] {
	return rapid.Custom(func(t *rapid.T) Drain {
		buckets := rapid.OneOf(rapid.IntRange(1, 8), rapid.Just(50), rapid.Just(60)).Draw(t, "buckets")
		size := time.Duration(rapid.OneOf(rapid.Int64Range(1, 20), rapid.Int64Range(1, 60_000)).Draw(t, "size")) * time.Millisecond
		d := Drain{Shape: Shape{Length: size * time.Duration(buckets), Buckets: buckets, Kind: Token}}
		if rapid.Bool().Draw(t, "leaky") {
			d.Shape.Kind = Leaky
		}
		amounts := rapid.OneOf(rapid.Int64Range(1, 10), rapid.Int64Range(1, 2000), rapid.Int64Range(1, MaxCount), rapid.Just(MaxCount))
		d.Limit, d.Burst = amounts.Draw(t, "limit"), amounts.Draw(t, "burst")
		if err := d.Shape.Validate(); err != nil {
			t.Fatal(err)
		}
		return d
	})
}

// known are a settled level and the counts of the buckets after it, as of now.
type known struct {
	level  Level
	counts []int64
	now    int64
}

func knownOf(d Drain) *rapid.Generator[known] {
	return rapid.Custom(func(t *rapid.T) known {
		const most = MaxCount / 10 // a level of more than MaxCount is cut, and none of this holds
		now := rapid.OneOf(rapid.Int64Range(-1e10, 1e10), rapid.Int64Range(-1e18, 2e18)).Draw(t, "now")
		amounts := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 2*min(d.Limit, most)/int64(d.Shape.Buckets)+2), rapid.Int64Range(0, most))
		k := known{counts: rapid.SliceOfN(amounts, 0, 6).Draw(t, "counts"), now: now}
		k.level.Bucket = d.Shape.Bucket(now) - rapid.OneOf(rapid.Int64Range(1, 10), rapid.Int64Range(1, 1<<40)).Draw(t, "age")
		k.level.Parts = min(rapid.OneOf(rapid.Just(int64(0)), amounts).Draw(t, "level"), MaxCount) * int64(d.Shape.Buckets)
		return k
	})
}

// levelOf is the definition, in fractions of a hit, bucket by bucket.
func levelOf(d Drain, k known) *big.Rat {
	size := int64(d.Shape.BucketSize())
	current := floorDiv(k.now, size).Int64()
	most := new(big.Rat).SetInt64(MaxCount)
	level := big.NewRat(k.level.Parts, int64(d.Shape.Buckets))
	drain := func(ns, buckets int64) {
		gone := new(big.Rat).Mul(big.NewRat(d.Limit, int64(d.Shape.Length)), new(big.Rat).SetInt64(ns))
		level.Sub(level, gone.Mul(gone, new(big.Rat).SetInt64(buckets)))
		if level.Sign() < 0 {
			level.SetInt64(0)
		}
	}
	add := func(bucket int64) {
		if i := current - bucket; i < int64(len(k.counts)) {
			level.Add(level, new(big.Rat).SetInt64(min(k.counts[i], MaxCount)))
		}
	}
	bucket := k.level.Bucket
	if first := current - int64(len(k.counts)) - 1; first > bucket { // nothing came in these
		drain(size, first-bucket)
		bucket = first
	}
	for bucket++; bucket < current; bucket++ {
		drain(size, 1)
		add(bucket)
		if level.Cmp(most) > 0 {
			level.Set(most)
		}
	}
	drain(new(big.Int).Sub(big.NewInt(k.now), new(big.Int).Mul(big.NewInt(current), big.NewInt(size))).Int64(), 1)
	add(current)
	return level
}

// queuedOf is what of it counts against the burst.
func queuedOf(d Drain, k known) *big.Rat {
	level := levelOf(d, k)
	if d.Shape.Kind == Leaky {
		level.Sub(level, big.NewRat(d.Limit, int64(d.Shape.Buckets)))
	}
	if level.Sign() < 0 {
		level.SetInt64(0)
	}
	return level
}

func roomFor(d Drain, k known, cost int64) bool {
	sum := queuedOf(d, k)
	return sum.Add(sum, new(big.Rat).SetInt64(cost)).Cmp(new(big.Rat).SetInt64(d.Burst)) <= 0
}

// at is what is known once it is later, if nothing has come since.
func (k known) at(d Drain, then int64) known {
	counts := make([]int64, d.Shape.Bucket(then)-d.Shape.Bucket(k.now))
	return known{k.level, append(counts, k.counts...), then}
}

type tester interface { // also rapid's
	Helper()
	Errorf(string, ...any)
	Fatalf(string, ...any)
}

func expect(t tester, ok bool, found string, args ...any) {
	if !ok {
		t.Helper()
		t.Errorf(found, args...)
	}
}

func require(t tester, ok bool, found string, args ...any) {
	if !ok {
		t.Helper()
		t.Fatalf(found, args...)
	}
}
