package check

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/check/internal/fleetclock"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// draining is a rule of a token or leaky bucket.
func draining(name string, a rules.Algorithm, limit, burst int64, length time.Duration, buckets int) rules.Rule {
	r := rule(name, limit, length, buckets)
	r.Algorithm, r.Burst = a, burst
	return r
}

func TestLocalTokenBucket(t *testing.T) {
	_, l := checkerAndLimiter(t, Options{}, draining("r", rules.TokenBucket, 60, 4, time.Minute, 600))
	for _, step := range []struct {
		at, cost int64 // ms after noon
		allowed  bool
		left     int64
		retry    time.Duration
		why      string
	}{
		{0, 1, true, 3, 0, "the first of four"},
		{0, 3, true, 0, 0, "the others"},
		{50, 1, false, 0, 950 * time.Millisecond, "a token a second"},
		{60, 1, false, 0, 940 * time.Millisecond, "by the block"},
		{1000, 1, true, 0, 0, "the first that has come back"},
		{1200, 5, false, 0, Never, "5 never fit"},
		{60_000, 4, true, 0, 0, "full, not more"},
		{60_000, 1, false, 0, time.Second, "none left"},
	} {
		d := atTime(noon+step.at*ms, l).Check("k", step.cost)
		expect(t, d.Allowed == step.allowed && d.Remaining == step.left && d.RetryAfter == step.retry && d.Limit == 4,
			"at %d ms, cost %d (%s): got %+v", step.at, step.cost, step.why, d)
		want := 4100 * time.Millisecond
		expect(t, d.Reset == want, "at %d ms: reset in %v, want %v, which the largest level takes", step.at, d.Reset, want)
	}
}

// TestLocalLeakyBucketPassesAtAConstantRate: hits pass one at a time, as far apart as the limit
// says, to the nanosecond if there is one checker.
func TestLocalLeakyBucketPassesAtAConstantRate(t *testing.T) {
	for _, buckets := range []int{1, 10, 50, 100} {
		_, l := checkerAndLimiter(t, Options{}, draining("r", rules.LeakyBucket, 20, 5, time.Second, buckets))
		for at := int64(0); at < 3*second; at += 5 * ms {
			d := atTime(noon+at, l).Check("k", 1)
			turn := at%(50*ms) == 0
			require(t, d.Allowed == turn && d.Remaining == 0 && d.Limit == 5,
				"%d buckets, at %v: %+v", buckets, time.Duration(at), d)
			wait := time.Duration(50*ms - at%(50*ms))
			require(t, turn || d.RetryAfter == wait,
				"%d buckets, at %v: wait %v, want %v", buckets, time.Duration(at), d.RetryAfter, wait)
		}
		wantHit(t, l, noon+10*second, 5, true, "five at once")
		d := wantHit(t, l, noon+10*second, 1, false, "five turns are taken")
		expect(t, d.RetryAfter == 250*time.Millisecond, "%+v", d)
		d = atTime(noon+20*second, l).Check("k", 6)
		expect(t, !d.Allowed && d.RetryAfter == Never, "more than the queue holds: %+v", d)
	}
}

// TestTokensComeBackInTime: a checker alone gives each token back at most a tenth of what one takes
// late, or a tick of the clock, never early, and says so, however long a bucket of time is.
func TestTokensComeBackInTime(t *testing.T) {
	for _, tt := range []struct {
		limit, burst int64
		length       time.Duration
	}{
		{10, 1, time.Second}, {10, 10, time.Second}, {1, 1, time.Second}, {1000, 1, time.Minute}, {1000, 20, time.Minute},
		{1000, 1000, time.Minute}, {15, 15, time.Minute}, {5000, 5000, 24 * time.Hour},
	} {
		_, l := checkerAndLimiter(t, Options{}, draining("r", rules.TokenBucket, tt.limit, tt.burst, tt.length, 0))
		takes := int64(tt.length) / tt.limit
		late := max(takes/10, int64(fleetclock.TickEvery))
		for _, begin := range []int64{noon, noon + 3*int64(tt.length)*max(tt.burst/tt.limit, 1) + takes/3} { // where in a bucket
			at := begin
			for n := int64(1); n <= tt.burst+2*min(tt.limit, 200); n++ {
				if n <= tt.burst {
					wantHit(t, l, at, 1, true, "a token of a full bucket")
					continue
				}
				d := wantHit(t, l, at, 1, false, fmt.Sprintf("%+v: no token before it has come", tt))
				at += int64(d.RetryAfter)
				due := begin + (n-tt.burst)*takes
				require(t, at >= due && at <= due+late, "%+v: token %d comes %v after it should", tt, n, time.Duration(at-due))
				require(t, !atTime(at-1, l).try(Peek, "k", 1).Allowed, "%+v: token %d comes sooner than was said", tt, n)
				wantHit(t, l, at, 1, true, fmt.Sprintf("%+v: token %d", tt, n))
			}
		}
	}
}

// TestLocalTokenBucketIsTheArithmetic: however hits are charged and settled, a checker alone lets
// nothing pass that does not fit by all true costs so far and their times, all that fits by the
// counts of buckets, and what fits by the times of hits that are not settled no later than it dates
// them, by parts of a hit.
func TestLocalTokenBucketIsTheArithmetic(t *testing.T) {
	type open struct {
		receipt          string
		bucket, estimate int64
		hit              int // its place among all
	}
	type hit struct{ at, cost int64 }
	property := func(t *rapid.T, settles bool, longest int64) { // time between hits
		buckets := rapid.IntRange(1, 12).Draw(t, "buckets")
		r := draining("r", rules.TokenBucket, rapid.Int64Range(1, 50).Draw(t, "limit"), rapid.Int64Range(1, 80).Draw(t, "burst"),
			time.Duration(buckets)*10*time.Millisecond, buckets)
		c, l := checkerAndLimiter(&testing.T{}, Options{}, r)
		d := l.Rule().Drain()
		now, all, receipts := noon, map[int64]int64{}, []open(nil)
		var hits []hit
		fits := func(cost int64) bool { // in as many parts of a hit as a window has ns, of which the limit drain in each
			level, size, last := int64(0), int64(r.Window.Length), noon
			for _, h := range append(slices.Clone(hits), hit{now, cost}) {
				level, last = max(level-(h.at-last)*r.Limit, 0)+h.cost*size, h.at
			}
			return level <= r.Burst*size
		}
		takes := int64(r.Window.Length) / r.Limit
		late := max(takes/10, int64(fleetclock.TickEvery)) + takes/int64(buckets) + 1
		first := d.Shape.Bucket(now) - 1
		for range rapid.IntRange(1, 80).Draw(t, "hits") {
			now += rapid.OneOf(rapid.Int64Range(0, 5*ms), rapid.Int64Range(0, longest), rapid.Just(int64(0))).Draw(t, "callers that wait")
			if len(receipts) > 0 && settles && rapid.Bool().Draw(t, "settles") {
				i := rapid.IntRange(0, len(receipts)-1).Draw(t, "receipt")
				o := receipts[i]
				receipts = slices.Delete(receipts, i, i+1)
				cost := rapid.Int64Range(0, 8).Draw(t, "true cost")
				must(t, atTime(now, c).Settle(o.receipt, cost))
				if d.Shape.Bucket(now)-o.bucket < int64(l.core.Group.Live) {
					all[o.bucket] += cost - o.estimate
					hits[o.hit].cost = cost
				}
			}
			var counts []int64
			for b := d.Shape.Bucket(now); b > first; b-- {
				counts = append(counts, all[b])
			}
			cost := rapid.Int64Range(1, 6).Draw(t, "cost")
			want := d.Remaining(window.Level{Bucket: first}, counts, now) >= cost
			got, text := Decision{}, ""
			if settles {
				got, text = atTime(now, l).tryReceipt("k", cost)
			} else { // may spend an allowance
				got = atTime(now, l).Check("k", cost)
			}
			after := time.Duration(now - noon)
			require(t, got.Allowed || !want, "after %v: %+v, although it fits by the counts", after, got)
			require(t, !got.Allowed || fits(cost), "after %v: %+v, although it does not fit", after, got)
			require(t, got.Allowed || settles || !fits(cost) || atTime(now+late, l).try(Peek, "k", cost).Allowed,
				"after %v: %+v, and long afterwards", after, got)
			if got.Allowed {
				all[d.Shape.Bucket(now)] += cost
				receipts = append(receipts, open{text, d.Shape.Bucket(now), cost, len(hits)})
				hits = append(hits, hit{now, cost})
			}
			if rapid.IntRange(0, 9).Draw(t, "step") == 0 {
				atTime(now, c).Step()
			}
		}
	}
	t.Run("charged", rapid.MakeCheck(func(t *rapid.T) { property(t, false, 300*ms) }))
	t.Run("settled", rapid.MakeCheck(func(t *rapid.T) { property(t, true, 100*ms) }))
}

// levelMessage brings the level and total of key k, in an alarm, or in the answer to the last
// report.
func (f *fleet) levelMessage(now int64, l *Limiter, inAlarm bool, age int64, parts uint64, total uint64) {
	f.t.Helper()
	if !inAlarm {
		m := f.refresh(total)
		m.LevelAge, m.Level = []int64{age}, []uint64{parts}
		f.receive(now, events.KindRefresh, m)
		return
	}
	a := alarmOf(&l.core.Group, now, 1, "k", keyTotal{counter.AdmittedHits, total})
	a.Totals.SetLevel(age, parts)
	f.receive(now, events.KindAlarm, a)
}

// TestSettledLevelsOfMessages: the settled level of a message replaces the counter's, unless it is
// older.
func TestSettledLevelsOfMessages(t *testing.T) {
	for _, tt := range []struct {
		why   string
		age   int64 // of the settled bucket, in buckets
		parts int64 // in tenths of a hit
		total uint64
		left  int64 // of 100, 30 ms into the bucket
	}{
		{"nothing beside what is known", 11, 0, 5, 95},
		{"hits that nobody could have known of", 11, 300, 5, 95 - 30 + 10}, // 11 buckets drain 1 each, and 0.3 more so far
		{"a level of long ago", 50, 900, 5, 95 - 90 + 49},
		{"of the bucket before, with all that is in it", 1, 900, 5, 95 - 90},
		{"by a clock that is far ahead", -3, 900, 5, 5},
		{"by one from another world", -1 << 40, 900, 5, 5},
		{"long ago and far away", 1 << 40, 900, 5, 95},
		{"other totals of the current bucket", 11, 0, 50, 50},
	} {
		for _, inAlarm := range []bool{false, true} {
			f, l := fleetAndLimiter(t, Options{}, draining("r", rules.TokenBucket, 10, 100, time.Second, 10))
			now := noon + 20*second + 30*ms
			atTime(now, l).Check("k", 5)
			atTime(now, f).Step()
			f.levelMessage(now, l, inAlarm, tt.age, uint64(tt.parts), tt.total)
			wantLeft(t, l, now, tt.left, fmt.Sprintf("%s (alarm: %v)", tt.why, inAlarm))
		}
	}
}

// TestLevelOfALostGeneration: a level is forgotten when the store that it was in loses its data.
func TestLevelOfALostGeneration(t *testing.T) {
	f, l := fleetAndLimiter(t, Options{}, draining("r", rules.TokenBucket, 10, 100, time.Second, 10))
	now := noon + 20*second
	atTime(now, l).Check("k", 5)
	atTime(now, f).Step()
	f.levelMessage(now, l, false, 11, 700, 5)
	atTime(now, l).Check("k", 1)
	now += 50 * ms
	atTime(now, f).Step()
	f.answerIn(now, 2, 1)
	wantLeft(t, l, now, 99, "with 1 hit since")
}

// TestLevelsAreRemembered: a counter is not empty before its level has drained, and a new one goes
// on with the level.
func TestLevelsAreRemembered(t *testing.T) {
	c, l := checkerAndLimiter(t, Options{}, draining("r", rules.TokenBucket, 10, 1000, time.Second, 10))
	atTime(noon, l).Check("k", 1000)
	now := noon + 50*second // half of it is left, and no bucket has a count
	for range 3 {
		atTime(now, c).Step()
		now += 35 * second / 10
	}
	old := l.core.Group.Lookup([]byte("k"))
	want := left(l, now, "k")
	require(t, old != nil && want >= 550 && want <= 610, "%d left in %v", want, old)
	locked := old.Lock()
	fresh := counter.New(&l.core.Group, "k", noon)
	fresh.Learn(locked)
	locked.Unlock()
	got, _ := fresh.Room(l.core.Group.Limits.Load(), now)
	expect(t, got == want, "a counter that learnt of it has %d left, want %d", got, want)
	for i := range int64(30) {
		atTime(now+i*10*second, c).Step()
	}
	expect(t, l.core.Group.Lookup([]byte("k")) == nil, "the counter stays when all has drained")
}

// TestLocalShareOfWhatDrains: out of touch with the fleet, each checker keeps to its share of the
// rate and of the room.
func TestLocalShareOfWhatDrains(t *testing.T) {
	for _, tt := range []struct {
		rule rules.Rule
		all  int // at most in the first two seconds; what the first report takes along is nobody's share
	}{
		{draining("r", rules.TokenBucket, 40, 80, time.Second, 10), 20 + 20 + 30},
		{draining("r", rules.LeakyBucket, 40, 80, time.Second, 10), 20},
	} {
		f, l := fleetAndLimiter(t, Options{ExpectCheckers: 4, Epoch: 1}, tt.rule)
		f.Checker.host.NoteSize(4)
		begin := noon + 100*second // long after the last word
		atTime(begin, f).Step()
		passes := make([]int, 3)
		for at := int64(0); at < 3*second; at += ms {
			if at%(50*ms) == 0 {
				atTime(begin+at, f).Step()
			}
			if d := atTime(begin+at, l).Check("k", 1); d.Freshness != LocalShare {
				t.Fatal(d.Freshness)
			} else if d.Allowed {
				passes[at/second]++
			}
		}
		expect(t, passes[0]+passes[1] <= tt.all && passes[2] == 10,
			"%v: %d in three seconds, want 10 in the last and %d before", tt.rule.Algorithm, passes, tt.all)
	}
}

// TestResetOfSoftBuckets: what passes beyond the limit takes longer to drain than a full bucket.
func TestResetOfSoftBuckets(t *testing.T) {
	r := draining("r", rules.TokenBucket, 10, 50, time.Second, 1)
	r.Throttle = rules.Throttle{Kind: rules.Soft, Exceed: 1}
	_, l := checkerAndLimiter(t, Options{}, r)
	full, over := wantHit(t, l, noon, 100, true, "the limit"), wantHit(t, l, noon, 100, false, "beyond it")
	expect(t, full.Reset >= 10*time.Second && over.Reset >= over.RetryAfter && full.Limit == 100 && over.Limit == 100,
		"%+v, then %+v", full, over)
}

// TestANewRateHoldsFromItsMomentOn: at five times the limit, what passes in the second after a
// change is what the new limit drains, no more at once and no less.
func TestANewRateHoldsFromItsMomentOn(t *testing.T) {
	for _, limit := range []int64{500, 2000} {
		r := draining("r", rules.TokenBucket, 1000, 1000, time.Second, 50)
		c, l := checkerAndLimiter(t, Options{}, r)
		now, passed := noon, int64(0)
		spend := func(span int64) {
			passed = 0
			for end := now + span; now < end; now += second / 5000 {
				passed += int64(hit(l, now, "k", 1))
			}
		}
		spend(4*second + 7*ms)
		r.Limit = limit
		reload(t, c, now, r)
		spend(20 * ms)
		expect(t, passed <= limit/50+limit/60+1000/60, "1000 → %d: %d pass in 20 ms", limit, passed)
		at := passed
		spend(second - 20*ms)
		passed += at
		expect(t, passed >= limit-limit/30-1 && passed <= limit+limit/30+1, "1000 → %d: %d pass in the second after", limit, passed)
	}
}
