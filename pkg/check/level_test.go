package check

import (
	"testing"
	"time"

	"pgregory.net/rapid"

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
	c := newChecker(t, Options{}, draining("r", rules.TokenBucket, 60, 4, time.Minute, 600))
	l := limiter(t, c, "r")
	for _, step := range []struct {
		at, cost int64 // ms after noon
		allowed  bool
		left     int64
		retry    time.Duration
		why      string
	}{
		{0, 1, true, 3, 0, "the first of four"},
		{0, 3, true, 0, 0, "the others"},
		{50, 1, false, 0, 1050 * time.Millisecond, "a token a second, from the end of the tenth in which they went"},
		{60, 1, false, 0, 1040 * time.Millisecond, "by the block"},
		{1100, 1, true, 0, 0, "the first that has come back"},
		{1200, 5, false, 0, Never, "5 never fit"},
		{60_000, 4, true, 0, 0, "full, not more"},
		{60_000, 1, false, 0, 1100 * time.Millisecond, "none left"},
	} {
		d := l.CheckAt(noon+step.at*ms, "k", step.cost)
		if d.Allowed != step.allowed || d.Remaining != step.left || d.RetryAfter != step.retry {
			t.Errorf("at %d ms, cost %d (%s): got %+v", step.at, step.cost, step.why, d)
		}
		if want := 4100 * time.Millisecond; d.Reset != want {
			t.Errorf("at %d ms: reset in %v, want %v, which the largest level takes", step.at, d.Reset, want)
		}
	}
}

// A leaky bucket lets one hit at a time pass, as far apart as the limit says, to the nanosecond if there is one checker,
// however it is asked.
func TestLocalLeakyBucketPassesAtAConstantRate(t *testing.T) {
	for _, buckets := range []int{1, 10, 50, 100} {
		c := newChecker(t, Options{}, draining("r", rules.LeakyBucket, 20, 5, time.Second, buckets))
		l := limiter(t, c, "r")
		for at := int64(0); at < 3*second; at += 5 * ms {
			d := l.CheckAt(noon+at, "k", 1)
			turn := at%(50*ms) == 0
			if d.Allowed != turn || d.Remaining != 0 {
				t.Fatalf("%d buckets, at %v: %+v", buckets, time.Duration(at), d)
			}
			if wait := time.Duration(50*ms - at%(50*ms)); !turn && d.RetryAfter != wait {
				t.Fatalf("%d buckets, at %v: wait %v, want %v", buckets, time.Duration(at), d.RetryAfter, wait)
			}
		}
		// Five at once take five turns.
		if d := l.CheckAt(noon+10*second, "k", 5); !d.Allowed {
			t.Errorf("%+v", d)
		}
		if d := l.CheckAt(noon+10*second, "k", 1); d.Allowed || d.RetryAfter != 250*time.Millisecond {
			t.Errorf("%+v", d)
		}
		if d := l.CheckAt(noon+20*second, "k", 6); d.Allowed || d.RetryAfter != Never {
			t.Errorf("more than the queue holds: %+v", d)
		}
	}
}

// What a checker alone decides is what the arithmetic says of all hits that it ever let pass.
func TestLocalTokenBucketIsTheArithmetic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		buckets := rapid.IntRange(1, 12).Draw(t, "buckets")
		r := draining("r", rules.TokenBucket, rapid.Int64Range(1, 50).Draw(t, "limit"), rapid.Int64Range(1, 80).Draw(t, "burst"),
			time.Duration(buckets)*10*time.Millisecond, buckets)
		c := local(t, r)
		l, _ := c.Limiter("r")
		d := l.Rule().Drain()
		now, all := noon, map[int64]int64{}
		first := d.Shape.Bucket(now) - 1
		for range rapid.IntRange(1, 80).Draw(t, "hits") {
			now += rapid.OneOf(rapid.Int64Range(0, 5*ms), rapid.Int64Range(0, 300*ms), rapid.Just(int64(0))).Draw(t, "wait")
			cost := rapid.Int64Range(1, 6).Draw(t, "cost")
			var counts []int64
			for b := d.Shape.Bucket(now); b > first; b-- {
				counts = append(counts, all[b])
			}
			want := d.Remaining(window.Level{Bucket: first}, counts, now) >= cost
			if got := l.CheckAt(now, "k", cost); got.Allowed != want {
				t.Fatalf("after %v: %+v, want %v", time.Duration(now-noon), got, want)
			}
			if want {
				all[d.Shape.Bucket(now)] += cost
			}
			if rapid.IntRange(0, 9).Draw(t, "step") == 0 {
				c.Step(now)
			}
		}
	})
}

func local(t *rapid.T, r rules.Rule) *Checker {
	set, err := rules.NewSet(r)
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Options{Rules: set})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// tell tells the checker of one key's level and total, in an alarm, or in the answer to its last report.
func (f *fleet) tell(now int64, l *Limiter, inAlarm bool, age int64, parts uint64, total uint64) {
	f.t.Helper()
	if !inAlarm {
		r := f.last()
		f.receive(now, events.KindRefresh, &events.Refresh{
			Epoch: r.Epoch, Shard: r.Shard, Sequence: r.Sequence, Generation: 1, Version: r.Sequence,
			KeyCells: []uint32{1}, Age: []int64{0}, Total: []uint64{total}, LevelAge: []int64{age}, Level: []uint64{parts},
		})
		return
	}
	table := &events.Table{Rules: []*events.Rule{l.wire(now)}}
	table.AddKey(0, "k")
	table.AddCell(0, total)
	table.SetLevel(age, parts)
	f.receive(now, events.KindAlarm, &events.Alarm{Generation: 1, Version: 1, Totals: table})
}

// The settled level of a message takes the place of the cell's, unless it is older.
func TestLevelsThatAreTold(t *testing.T) {
	for _, tt := range []struct {
		why   string
		age   int64 // of the settled bucket, in buckets
		parts int64 // in tenths of a hit
		total uint64
		left  int64 // of 100, 30 ms into the bucket
	}{
		{"nothing beside what is known", 11, 0, 5, 95},
		{"hits that nobody could have known of", 11, 300, 5, 95 - 30 + 10}, // 11 buckets drain 1 hit each, and 0.3 more so far: rounded up
		{"a level of long ago", 50, 900, 5, 95 - 90 + 49},
		{"of the bucket before, with all that is in it", 1, 900, 5, 95 - 90},
		{"by a clock that is far ahead", -3, 900, 5, 5},
		{"by one from another world", -1 << 40, 900, 5, 5},
		{"long ago and far away", 1 << 40, 900, 5, 95},
		{"other totals of the current bucket", 11, 0, 50, 50},
	} {
		for _, inAlarm := range []bool{false, true} {
			f := newFleet(t, Options{}, draining("r", rules.TokenBucket, 10, 100, time.Second, 10))
			l := limiter(t, f.Checker, "r")
			now := noon + 20*second + 30*ms
			l.CheckAt(now, "k", 5)
			f.Step(now)
			f.tell(now, l, inAlarm, tt.age, uint64(tt.parts), tt.total)
			if got := left(l, now, "k"); got != tt.left {
				t.Errorf("%s (alarm: %v): %d left, want %d", tt.why, inAlarm, got, tt.left)
			}
		}
	}
}

// A level is forgotten with the data of the store that it was in.
func TestLevelOfALostGeneration(t *testing.T) {
	f := newFleet(t, Options{}, draining("r", rules.TokenBucket, 10, 100, time.Second, 10))
	l := limiter(t, f.Checker, "r")
	now := noon + 20*second
	l.CheckAt(now, "k", 5)
	f.Step(now)
	f.tell(now, l, false, 11, 700, 5)
	l.CheckAt(now, "k", 1)
	now += 50 * ms
	f.Step(now)
	f.answerIn(now, 2, 1)
	if got := left(l, now, "k"); got != 99 {
		t.Errorf("%d left of 100, with 1 hit since", got)
	}
}

// The idle cache remembers a level, a cell goes on with it, and a cell is not empty before it has drained.
func TestLevelsAreRemembered(t *testing.T) {
	r := draining("r", rules.TokenBucket, 10, 1000, time.Second, 10)
	c := newChecker(t, Options{}, r)
	l := limiter(t, c, "r")
	l.CheckAt(noon, "k", 1000)
	now := noon + 50*second // half of it is left, and no bucket has a count
	for range 3 {
		c.Step(now)
		now += 35 * second / 10
	}
	old := l.holds([]byte("k"))
	if old == nil {
		t.Fatal("the cell has left")
	}
	want := left(l, now, "k")
	if want < 550 || want > 610 {
		t.Errorf("%d left", want)
	}
	old.mu.Lock()
	fresh := newCell(l, "k", noon)
	fresh.learn(old)
	old.mu.Unlock()
	if got, _ := fresh.room(l.terms.Load(), now); got != want {
		t.Errorf("a cell that learnt of it has %d left, want %d", got, want)
	}
	for i := range int64(30) {
		c.Step(now + i*10*second)
	}
	if l.holds([]byte("k")) != nil {
		t.Error("the cell stays when all has drained")
	}
}

func TestWireOfEveryAlgorithm(t *testing.T) {
	for a, want := range map[rules.Algorithm]events.Algorithm{
		rules.SlidingWindow: events.Algorithm_SLIDING_WINDOW, rules.FixedWindow: events.Algorithm_FIXED_WINDOW,
		rules.SlidingLog: events.Algorithm_SLIDING_LOG, rules.TokenBucket: events.Algorithm_TOKEN_BUCKET,
		rules.LeakyBucket: events.Algorithm_LEAKY_BUCKET,
	} {
		r := rule("r", 10, time.Second, 1)
		r.Algorithm = a
		l := limiter(t, newChecker(t, Options{}, r), "r")
		burst := uint64(0)
		if a == rules.TokenBucket || a == rules.LeakyBucket {
			burst = 10
		}
		if w := l.wire(noon); w.Algorithm != want || w.Burst != burst {
			t.Errorf("%v: %v", a, w)
		}
	}
}

// On the ladder's lower steps each checker keeps to its share of the rate, and of the room.
func TestLocalShareOfWhatDrains(t *testing.T) {
	for _, tt := range []struct {
		rule rules.Rule
		all  int // at most in the first two seconds; what the first report takes along is nobody's share
	}{
		{draining("r", rules.TokenBucket, 40, 80, time.Second, 10), 20 + 20 + 30},
		{draining("r", rules.LeakyBucket, 40, 80, time.Second, 10), 20},
	} {
		f := newFleet(t, Options{ExpectCheckers: 4, Epoch: 1}, tt.rule)
		f.Checker.fleet.Store(4)
		l := limiter(t, f.Checker, "r")
		begin := noon + 100*second // long after the last word
		f.Step(begin)
		passes := make([]int, 3)
		for at := int64(0); at < 3*second; at += ms {
			if at%(50*ms) == 0 {
				f.Step(begin + at)
			}
			d := l.CheckAt(begin+at, "k", 1)
			if d.Freshness != LocalShare {
				t.Fatal(d.Freshness)
			}
			if d.Allowed {
				passes[at/second]++
			}
		}
		if passes[0]+passes[1] > tt.all || passes[2] != 10 {
			t.Errorf("%v: %d in three seconds, want 10 in the last and %d before", tt.rule.Algorithm, passes, tt.all)
		}
	}
}

// TestResetOfSoftBuckets: what passes beyond the limit takes longer to drain than a full bucket.
func TestResetOfSoftBuckets(t *testing.T) {
	c := ofYAML(t, Options{}, `rules: [{name: r, key: [user], limit: 10/second, algorithm: token_bucket, burst: 50, throttle: soft, soft: {exceed: 100%}}]`)
	l := limiter(t, c, "r")
	if d := l.CheckAt(noon, "k", 100); !d.Allowed || d.Reset < 10*time.Second {
		t.Fatalf("%+v", d)
	}
	if d := l.CheckAt(noon, "k", 100); d.Allowed || d.Reset < d.RetryAfter {
		t.Errorf("%+v", d)
	}
}
