package window

import (
	"math"
	"math/big"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

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

func TestDrainRemainingIsTheLargestCostThatFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drains().Draw(t, "drain")
		k := knownOf(d).Draw(t, "known")
		// Parts of a hit are whole: the level is rounded up to one.
		want := levelOf(d, k)
		want.Mul(want, big.NewRat(int64(d.Shape.Buckets), 1))
		got := new(big.Rat).SetInt64(d.Level(k.level, k.counts, k.now))
		if off := got.Sub(got, want); off.Sign() < 0 || off.Cmp(big.NewRat(1, 1)) >= 0 {
			t.Fatalf("Level is off by %v parts", off)
		}
		left := d.Remaining(k.level, k.counts, k.now)
		switch {
		case left < 0 || left > d.Burst:
			t.Fatalf("Remaining = %d", left)
		case left > 0 && !roomFor(d, k, left):
			t.Fatalf("Remaining = %d, which does not fit", left)
		case roomFor(d, k, left+1):
			t.Fatalf("Remaining = %d, but one more fits", left)
		}
	})
}

func TestDrainRetryAfterIsTheLeastWait(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drains().Draw(t, "drain")
		k := knownOf(d).Draw(t, "known")
		k.level.Bucket = max(k.level.Bucket, d.Shape.Bucket(k.now)-1000)
		cost := rapid.Int64Range(1, d.Burst).Draw(t, "cost")
		if _, ok := d.RetryAfter(k.level, k.counts, d.Burst+1, k.now); ok {
			t.Fatal("more than the burst would fit some time")
		}
		wait, ok := d.RetryAfter(k.level, k.counts, cost, k.now)
		then := k.now + int64(wait)
		if !ok || wait < 0 {
			t.Fatalf("wait %v, %v", wait, ok)
		}
		if d.Shape.Bucket(then)-d.Shape.Bucket(k.now) > 1000 {
			return // slow to work out the slow way
		}
		if !roomFor(d, k.at(d, then), cost) {
			t.Fatalf("after %d ns it does not fit", wait)
		}
		if wait > 0 && roomFor(d, k.at(d, then-1), cost) {
			t.Fatalf("after %d ns it fits already", wait-1)
		}
	})
}

func TestDrainResetAndTurn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drains().Draw(t, "drain")
		k := knownOf(d).Draw(t, "known")
		for what, wait := range map[string]time.Duration{
			"reset": d.Reset(k.level, k.counts, k.now), "turn": d.Turn(k.level, k.counts, k.now),
		} {
			left := func(then int64) int {
				if what == "reset" {
					return levelOf(d, k.at(d, then)).Sign()
				}
				return queuedOf(d, k.at(d, then)).Sign()
			}
			then := k.now + int64(wait)
			if d.Shape.Bucket(then)-d.Shape.Bucket(k.now) > 1000 { // slow to work out the slow way
				continue
			}
			if wait < 0 || left(then) != 0 {
				t.Fatalf("%s: after %d ns something is left", what, wait)
			}
			if wait > 0 && left(then-1) == 0 {
				t.Fatalf("%s: after %d ns nothing is left already", what, wait-1)
			}
		}
	})
}

// A level is what it is, however often and whenever it was settled, by whom who knew which of the counts
// before.
func TestSettlingChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drains().Draw(t, "drain")
		k := knownOf(d).Draw(t, "known")
		current := d.Shape.Bucket(k.now)
		want := d.Level(k.level, k.counts, k.now)
		l := k.level
		for range rapid.IntRange(1, 4).Draw(t, "times") {
			to := current - rapid.Int64Range(1, int64(len(k.counts))+3).Draw(t, "age")
			before := l
			if l = d.Settle(l, k.counts, current, to); l.Bucket != max(to, before.Bucket) {
				t.Fatalf("settled to %d: %+v after %+v", to, l, before)
			}
			known := k.counts[:min(int64(len(k.counts)), current-l.Bucket)] // it needs no others any more
			if got := d.Level(l, known, k.now); got != want {
				t.Fatalf("settled at %+v: level %d, want %d", l, got, want)
			}
		}
	})
}

// exact is a token bucket by the book: the times of all hits, and no buckets.
type exact struct {
	d     Drain
	level *big.Rat // in hits
	at    int64
}

func (e *exact) drainTo(now int64) {
	gone := big.NewRat(e.d.Limit, int64(e.d.Shape.Length))
	e.level.Sub(e.level, gone.Mul(gone, new(big.Rat).SetInt64(now-e.at)))
	if e.level.Sign() < 0 {
		e.level.SetInt64(0)
	}
	e.at = now
}

// The level is never below that of a token bucket that knows every hit's time, and above it by what drains
// in one bucket, at most: so no more pass, and a hit is turned away only if it would have been within that much.
func TestLevelAgainstExactTokenBucket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drains().Draw(t, "drain")
		d.Limit = rapid.Int64Range(1, 2000).Draw(t, "limit")
		size := int64(d.Shape.BucketSize())
		now := rapid.Int64Range(0, 10*size).Draw(t, "start")
		e := exact{d: d, level: new(big.Rat), at: now}
		counts := map[int64]int64{}
		settled := Level{Bucket: d.Shape.Bucket(now) - 1}
		slack := big.NewRat(d.Limit+1, int64(d.Shape.Buckets)) // and a part of a hit, by rounding
		for range rapid.IntRange(1, 60).Draw(t, "hits") {
			now += rapid.OneOf(rapid.Int64Range(0, size), rapid.Int64Range(0, 3*int64(d.Shape.Length)), rapid.Just(int64(0))).Draw(t, "wait")
			e.drainTo(now)
			level := new(big.Rat).SetFrac64(d.Level(settled, live(counts, d.Shape, now, settled), now), int64(d.Shape.Buckets))
			if level.Cmp(e.level) < 0 {
				t.Fatalf("level %v, exactly %v", level, e.level)
			}
			if most := new(big.Rat).Add(e.level, slack); level.Cmp(most) > 0 {
				t.Fatalf("level %v, exactly %v, and %v drains in a bucket", level, e.level, slack)
			}
			cost := rapid.Int64Range(0, 5).Draw(t, "cost")
			counts[d.Shape.Bucket(now)] += cost
			e.level.Add(e.level, new(big.Rat).SetInt64(cost))
		}
	})
}

// live are the counts since a settled level.
func live(counts map[int64]int64, s Shape, now int64, settled Level) []int64 {
	var newestFirst []int64
	for b := s.Bucket(now); b > settled.Bucket; b-- {
		newestFirst = append(newestFirst, counts[b])
	}
	return newestFirst
}

// In no stretch of a window's length does a log let more pass than the limit; and a hit passes at the latest
// one bucket's length after a list of all times would let it.
func TestLogAgainstListOfTimes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Shape{Buckets: rapid.IntRange(1, 20).Draw(t, "buckets"), Kind: Log}
		s.Length = time.Duration(s.Buckets) * time.Duration(rapid.IntRange(1, 30).Draw(t, "size")) * time.Millisecond
		limit := rapid.Int64Range(1, 8).Draw(t, "limit")
		size := int64(s.BucketSize())
		counts := map[int64]int64{}
		var passed []int64
		in := func(from, to int64) (n int64) {
			for _, at := range passed {
				if from < at && at <= to {
					n++
				}
			}
			return n
		}
		now := int64(0)
		for range rapid.IntRange(1, 60).Draw(t, "hits") {
			now += rapid.OneOf(rapid.Int64Range(0, size), rapid.Int64Range(0, int64(s.Length))).Draw(t, "wait")
			known := live(counts, s, now, Level{Bucket: s.Bucket(now) - int64(s.Live())})
			fits := s.Remaining(known, limit, now) >= 1
			if !fits && in(now-int64(s.Length)-size, now) < limit {
				t.Fatalf("at %d turned away, with %v of %d", now, passed, limit)
			}
			if fits {
				counts[s.Bucket(now)]++
				passed = append(passed, now)
			}
			if n := in(now-int64(s.Length), now); n > limit {
				t.Fatalf("%d within a window, of %d: %v", n, limit, passed)
			}
		}
	})
}

func TestDrainAtTheEdges(t *testing.T) {
	const sec = int64(time.Second)
	d := Drain{Shape: Shape{Length: 10 * time.Second, Buckets: 10, Kind: Token}, Limit: 20, Burst: 5}
	most := Drain{Shape: Shape{Length: MaxLength, Buckets: MaxBuckets, Kind: Token}, Limit: 1, Burst: MaxCount}
	for _, tt := range []struct {
		why    string
		drain  Drain
		level  Level
		counts []int64
		now    int64
		left   int64
		retry  time.Duration // of a hit of cost 1
	}{
		{"nothing has come", d, Level{}, nil, 100 * sec, 5, 0},
		{"five in this bucket: the first drains half a second into the next", d, Level{}, []int64{5}, 100 * sec, 0, 1500 * time.Millisecond},
		{"the same, a little later", d, Level{}, []int64{5}, 100*sec + 1, 0, 1500*time.Millisecond - 1},
		{"five in the last", d, Level{}, []int64{0, 5}, 100 * sec, 0, time.Second / 2},
		{"of which one has drained", d, Level{}, []int64{0, 5}, 100*sec + sec/2, 1, 0},
		{"settled two buckets ago at 7 hits", d, Level{97, 70}, nil, 100 * sec, 2, 0},
		{"and the counts of that bucket and before it are in it", d, Level{97, 70}, []int64{0, 0, 0, 99, 99}, 100 * sec, 2, 0},
		{"settled long ago, however much", d, Level{-1 << 43, 1e14}, []int64{0}, 100 * sec, 5, 0},
		{"by a clock that is ahead", d, Level{200, 50}, []int64{0}, 100 * sec, 0, time.Second / 2},
		{"settled as of this very bucket, whose count is in it", d, Level{100, 50}, []int64{5}, 100 * sec, 0, time.Second / 2},
		{"nonsense neither wraps nor panics", d, Level{98, 10 * MaxCount}, []int64{math.MaxInt64, math.MaxInt64}, 100 * sec, 0, time.Duration(longest)},
		{"nor does the slowest there is", most, Level{}, slices.Repeat([]int64{math.MaxInt64}, 5), int64(MaxLength), 0, time.Duration(longest)},
	} {
		if got := tt.drain.Remaining(tt.level, tt.counts, tt.now); got != tt.left {
			t.Errorf("%s: Remaining = %d, want %d", tt.why, got, tt.left)
		}
		if got, _ := tt.drain.RetryAfter(tt.level, tt.counts, 1, tt.now); got != tt.retry {
			t.Errorf("%s: RetryAfter = %v, want %v", tt.why, got, tt.retry)
		}
	}
	full := Level{Bucket: 3, Parts: MaxCount * MaxBuckets}
	if got := most.Settle(Level{}, []int64{MaxCount, MaxCount, MaxCount}, 3, 3); got != full {
		t.Errorf("settled at %+v, want %+v and no more", got, full)
	}
}
