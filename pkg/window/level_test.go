package window

import (
	"math"
	"math/big"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestDrainRemainingIsTheLargestCostThatFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drains().Draw(t, "drain")
		k := knownOf(d).Draw(t, "known")
		// Parts of a hit are whole: the level is rounded up to one.
		want := levelOf(d, k)
		want.Mul(want, big.NewRat(int64(d.Shape.Buckets), 1))
		got := new(big.Rat).SetInt64(d.Level(k.level, k.counts, k.now))
		off := got.Sub(got, want)
		require(t, off.Sign() >= 0 && off.Cmp(big.NewRat(1, 1)) < 0, "Level is off by %v parts", off)
		queued, _ := queuedOf(d, k).Float64()
		count := d.Count(k.level, k.counts, k.now)
		require(t, math.Abs(count-queued) <= 1+1e-9*queued, "Count = %v, want %v", count, queued)
		room := float64(d.Limit)
		if d.Shape.Kind == Token {
			room = float64(d.Shape.Buckets) * float64(d.Burst)
		}
		use := float64(d.Level(k.level, k.counts, k.now)) / room
		used := d.Use(k.level, k.counts, k.now)
		require(t, math.Abs(used-use) <= 1e-9*use, "Use = %v, want %v", used, use)
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

func TestDrainWaitsAreTheLeast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drains().Draw(t, "drain")
		k := knownOf(d).Draw(t, "known")
		cost := rapid.Int64Range(1, d.Burst).Draw(t, "cost")
		_, ever := d.RetryAfter(k.level, k.counts, d.Burst+1, k.now)
		require(t, !ever, "more than the burst would fit some time")
		retry, ok := d.RetryAfter(k.level, k.counts, cost, k.now)
		require(t, ok, "no more than the burst would never fit")
		for what, wait := range map[string]struct {
			time.Duration
			isOver func(then known) bool
		}{
			"RetryAfter": {retry, func(then known) bool { return roomFor(d, then, cost) }},
			"Reset":      {d.Reset(k.level, k.counts, k.now), func(then known) bool { return levelOf(d, then).Sign() == 0 }},
			"Turn":       {d.Turn(k.level, k.counts, k.now), func(then known) bool { return queuedOf(d, then).Sign() == 0 }},
		} {
			if d.Shape.Bucket(k.now+int64(wait.Duration))-k.level.Bucket > 3000 {
				continue // slow to work out the slow way
			}
			isLeast(t, what, wait.Duration, func(after int64) bool { return wait.isOver(k.at(d, k.now+after)) })
		}
	})
}

// A level is what it is, however often and whenever it was settled, and which of the counts were
// known then.
func TestSettlingDoesNotChangeTheLevel(t *testing.T) {
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
			got := d.Level(l, known, k.now)
			require(t, got == want, "settled at %+v: level %d, want %d", l, got, want)
		}
	})
}

// The level is never below that of a token bucket that knows every hit's time, and above it by what
// drains in one bucket, at most: so no more pass, and a hit is turned away only if it would have
// been within that much.
func TestLevelAgainstExactTokenBucket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drains().Draw(t, "drain")
		d.Limit = rapid.Int64Range(1, 2000).Draw(t, "limit")
		size := int64(d.Shape.BucketSize())
		now := rapid.Int64Range(0, 10*size).Draw(t, "start")
		exact := new(big.Rat) // the level of a token bucket by the book, in hits
		counts := map[int64]int64{}
		settled := Level{Bucket: d.Shape.Bucket(now) - 1}
		slack := big.NewRat(d.Limit+1, int64(d.Shape.Buckets)) // and a part of a hit, by rounding
		for range rapid.IntRange(1, 60).Draw(t, "hits") {
			long := rapid.Int64Range(0, 3*int64(d.Shape.Length))
			wait := rapid.OneOf(rapid.Int64Range(0, size), long, rapid.Just(int64(0))).Draw(t, "wait")
			now += wait
			gone := big.NewRat(d.Limit, int64(d.Shape.Length))
			if exact.Sub(exact, gone.Mul(gone, new(big.Rat).SetInt64(wait))); exact.Sign() < 0 {
				exact.SetInt64(0)
			}
			level := new(big.Rat).SetFrac64(d.Level(settled, live(counts, d.Shape, now, settled), now), int64(d.Shape.Buckets))
			require(t, level.Cmp(exact) >= 0 && level.Cmp(new(big.Rat).Add(exact, slack)) <= 0,
				"level %v, exactly %v, and %v drains in a bucket", level, exact, slack)
			cost := rapid.Int64Range(0, 5).Draw(t, "cost")
			counts[d.Shape.Bucket(now)] += cost
			exact.Add(exact, new(big.Rat).SetInt64(cost))
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

// In no stretch of a window's length does a log let more pass than the limit; and a hit passes at
// the latest one bucket's length after a list of all times would let it.
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
			require(t, fits || in(now-int64(s.Length)-size, now) >= limit, "at %d turned away, with %v of %d", now, passed, limit)
			if fits {
				counts[s.Bucket(now)]++
				passed = append(passed, now)
			}
			n := in(now-int64(s.Length), now)
			require(t, n <= limit, "%d within a window, of %d: %v", n, limit, passed)
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
		left := tt.drain.Remaining(tt.level, tt.counts, tt.now)
		retry, _ := tt.drain.RetryAfter(tt.level, tt.counts, 1, tt.now)
		expect(t, left == tt.left && retry == tt.retry, "%s: %d left, retry after %v", tt.why, left, retry)
	}
	full := Level{Bucket: 3, Parts: MaxCount * MaxBuckets}
	got := most.Settle(Level{}, []int64{MaxCount, MaxCount, MaxCount}, 3, 3)
	expect(t, got == full, "settled at %+v, want %+v and no more", got, full)
}

// A new limit is the rate from its own moment on, for who has settled up to then, and who has not.
func TestANewLimitDrainsFromItsMomentOn(t *testing.T) {
	const start = int64(1_800_000_000 * time.Second)
	shape := Shape{Length: time.Second, Buckets: 10, Kind: Token}
	for _, c := range []struct {
		after time.Duration // the change
		limit int64         // 1000 before
		at    time.Duration
		want  int64 // of 5000 hits in the bucket before the start
	}{
		{250 * time.Millisecond, 500, 200 * time.Millisecond, 4800},
		{250 * time.Millisecond, 500, 250 * time.Millisecond, 4750},
		{250 * time.Millisecond, 500, 450 * time.Millisecond, 4650},
		{250 * time.Millisecond, 500, 1250 * time.Millisecond, 4250},
		{250 * time.Millisecond, 2000, 1250 * time.Millisecond, 2750},
		{time.Second, 2000, 3 * time.Second, 0},
	} {
		before := Drain{Shape: shape, Limit: 1000, Burst: 10_000}
		d := before
		d.Past, d.Limit = before.After(c.limit, start+int64(c.after)), c.limit
		now, first := start+int64(c.at), shape.Bucket(start)-1
		counts := make([]int64, shape.Bucket(now)-first+1)
		counts[len(counts)-1] = 5000
		all := d.Level(Level{Bucket: first - 1}, counts, now) / int64(shape.Buckets)
		settled := before.Settle(Level{Bucket: first - 1}, []int64{5000}, first, first)
		got := d.Level(settled, nil, now) / int64(shape.Buckets)
		expect(t, got == c.want && all == c.want, "%+v: %d, and settled before %d", c, all, got)
		wait, _ := d.RetryAfter(settled, nil, d.Burst-c.want/2, now)
		expect(t, d.Level(settled, nil, now+int64(wait)) <= c.want/2*int64(shape.Buckets), "%+v: there is no room after %v", c, wait)
	}
}
