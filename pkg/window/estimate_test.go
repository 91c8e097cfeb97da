package window

import (
	"math"
	"math/big"
	"testing"
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

func TestRemainingIsTheLargestCostThatFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := shapes().Draw(t, "shape")
		now := times().Draw(t, "now")
		counts := countsOf(s).Draw(t, "counts")
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
		if got := s.Count(counts, now); math.Abs(got-want) > 1e-9*max(want, 1) {
			t.Fatalf("Count = %v, want %v", got, want)
		}
	})
}

// While no hit comes, and within one bucket, the estimate only falls.
func TestTimeOnlyFrees(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := shapes().Draw(t, "shape")
		counts := countsOf(s).Draw(t, "counts")
		limit := amounts().Draw(t, "limit")
		end := s.End(s.Bucket(times().Draw(t, "now")))
		size := int64(s.BucketSize())
		early := end - rapid.Int64Range(1, size).Draw(t, "early")
		late := end - rapid.Int64Range(1, end-early).Draw(t, "late")
		if a, b := s.Remaining(counts, limit, early), s.Remaining(counts, limit, late); a > b {
			t.Fatalf("Remaining fell from %d to %d", a, b)
		}
		if a, b := s.Count(counts, early), s.Count(counts, late); a < b {
			t.Fatalf("Count rose from %v to %v", a, b)
		}
	})
}

func TestRemainingAtTheEdges(t *testing.T) {
	minute := Shape{Length: time.Minute, Buckets: 1}
	longest := Shape{Length: MaxLength, Buckets: 1}
	fixed := Shape{Length: time.Minute, Buckets: 1, Fixed: true}
	const sec = int64(time.Second)
	for _, tt := range []struct {
		why        string
		shape      Shape
		counts     []int64
		limit, now int64
		want       int64
	}{
		{"no hits", minute, []int64{0, 0}, 5, 0, 5},
		{"no limit, no hits", minute, []int64{0, 0}, 0, 0, 0},
		{"a negative limit lets nothing pass", minute, []int64{0, 0}, -5, 0, 0},
		{"far over", minute, []int64{MaxCount, MaxCount}, 5, 0, 0},
		{"previous bucket in full at the very start", minute, []int64{0, 3}, 5, 60 * sec, 2},
		{"one nanosecond on, 3 is still 3 when rounded up", minute, []int64{0, 3}, 5, 60*sec + 1, 2},
		{"a third of a minute on, 3 is just 2", minute, []int64{0, 3}, 5, 80 * sec, 3},
		{"one nanosecond earlier it is not", minute, []int64{0, 3}, 5, 80*sec - 1, 2},
		{"in the last nanosecond something is left", minute, []int64{0, 3}, 5, 120*sec - 1, 4},
		{"and the least share there is rounds up too", minute, []int64{0, 1}, 5, 120*sec - 1, 4},
		{"before 1970", minute, []int64{1, 3}, 5, -40 * sec, 2},
		{"a product over 64 bits", longest, []int64{0, MaxCount}, MaxCount, int64(MaxLength) + 1, 0},
		{"a product over 64 bits, in the middle", longest, []int64{0, MaxCount}, MaxCount, int64(MaxLength) * 3 / 2, MaxCount / 2},
		{"counts beyond the bound neither wrap nor panic", minute, []int64{math.MaxInt64, math.MaxInt64}, MaxCount, 0, 0},
		{"the oldest beyond the bound", longest, []int64{0, math.MaxInt64}, MaxCount, 1, 0},
		{"fixed: the previous bucket is forgotten", fixed, []int64{2}, 5, 60 * sec, 3},
		{"fixed: further counts are not looked at", fixed, []int64{2, 9}, 5, 60 * sec, 3},
		{"missing counts are 0", minute, nil, 5, 0, 5},
		{"missing counts are 0", minute, []int64{1}, 5, 0, 4},
	} {
		if got := tt.shape.Remaining(tt.counts, tt.limit, tt.now); got != tt.want {
			t.Errorf("%s: got %d, want %d", tt.why, got, tt.want)
		}
	}
}

func TestNothingAllocates(t *testing.T) {
	s := Shape{Length: time.Hour, Buckets: 60}
	counts := make([]int64, s.Live())
	counts[3], counts[60] = 70, 50
	now := int64(1_700_000_000_123_456_789)
	for name, call := range map[string]func(){
		"Bucket":     func() { sink = s.Bucket(now) },
		"Gone":       func() { _ = s.Gone(5, now) },
		"Remaining":  func() { sink = s.Remaining(counts, 100, now) },
		"Count":      func() { sink = int64(s.Count(counts, now)) },
		"RetryAfter": func() { d, _ := s.RetryAfter(counts, 100, 40, now); sink = int64(d) },
		"Reset":      func() { sink = int64(s.Reset(counts, now)) },
	} {
		if n := testing.AllocsPerRun(100, call); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

var sink int64

func BenchmarkRemaining(b *testing.B) {
	for _, bm := range []struct {
		name   string
		shape  Shape
		oldest int64
	}{
		{"B=1", Shape{Length: time.Second, Buckets: 1}, 40},
		{"B=1/oldest=0", Shape{Length: time.Second, Buckets: 1}, 0},
		{"B=1/128-bit", Shape{Length: MaxLength, Buckets: 1}, 1e6},
		{"B=60", Shape{Length: time.Hour, Buckets: 60}, 40},
		{"fixed", Shape{Length: time.Second, Buckets: 1, Fixed: true}, 0},
	} {
		b.Run(bm.name, func(b *testing.B) {
			counts := make([]int64, bm.shape.Live())
			for i := range counts {
				counts[i] = 3
			}
			if !bm.shape.Fixed {
				counts[bm.shape.Buckets] = bm.oldest
			}
			now := int64(1_700_000_000_123_456_789)
			b.ReportAllocs()
			for b.Loop() {
				now += 1000
				sink = bm.shape.Remaining(counts, 1e9, now)
			}
		})
	}
}
