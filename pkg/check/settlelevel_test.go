package check

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// A bucket of 60 a minute, in seconds, that holds 100: what its hits cost less than estimated comes back, as far as it
// has not drained.
func TestSettleDownLocally(t *testing.T) {
	for _, tt := range []struct {
		why   string
		after int64 // seconds from the hit of 80 to its settlement
		cost  int64
		later int64 // seconds from there to the look
		left  int64
	}{
		{"all of it", 0, 0, 0, 100},
		{"a part", 0, 30, 0, 70},
		{"more than estimated", 0, 90, 0, 10},
		{"far more", 0, 300, 0, 0},
		{"when 40 have drained, which would have anyway", 41, 60, 0, 80},
		{"of all but 30, 40 have drained: nothing is left, not less", 41, 30, 0, 100},
		{"and then it drains on", 21, 60, 10, 70},
		{"when the bucket is gone, it stays", 65, 0, 0, 84},
	} {
		c := newChecker(t, Options{}, draining("r", rules.TokenBucket, 60, 100, time.Minute, 60))
		l := limiter(t, c, "r")
		text := token(t, l, noon, "k", 80)
		now := noon + tt.after*second
		mustSettle(t, c, now, text, tt.cost)
		if got := left(l, now+tt.later*second, "k"); got != tt.left {
			t.Errorf("%s: %d left, want %d", tt.why, got, tt.left)
		}
	}
}

// What has drained does not come back: hits that came when the bucket was empty count in full.
func TestSettleDownDoesNotOweHits(t *testing.T) {
	c := newChecker(t, Options{}, draining("r", rules.TokenBucket, 60, 100, time.Minute, 60))
	l := limiter(t, c, "r")
	text := token(t, l, noon, "k", 20)
	now := noon + 30*second
	if d := l.CheckAt(now, "k", 100); !d.Allowed || d.Remaining != 0 {
		t.Fatalf("an empty one: %+v", d)
	}
	mustSettle(t, c, now, text, 0)
	if got := left(l, now, "k"); got != 0 {
		t.Errorf("%d left", got)
	}
}

// A queue's next hit has its turn when the true costs of those before it have drained, or a bucket's length later; not
// earlier, unless they cost more than was estimated.
func TestSettleDownInAQueue(t *testing.T) {
	for _, tt := range []struct {
		estimate, cost int64
		at             int64 // when it is settled, in ms after it came
		least, most    int64 // when the next one's turn is, in ms after that
	}{
		{10, 2, 0, 100, 120},
		{10, 0, 0, 0, 0},
		{10, 2, 80, 100, 120},
		{10, 2, 400, 400, 400},
		{10, 10, 200, 500, 500},
		{10, 12, 200, 580, 600},
	} {
		c := newChecker(t, Options{}, draining("r", rules.LeakyBucket, 20, 20, time.Second, 50))
		l := limiter(t, c, "r")
		came := noon + 15*ms // within a bucket of 20 ms
		text := token(t, l, came, "k", tt.estimate)
		mustSettle(t, c, came+tt.at*ms, text, tt.cost)
		r, d := l.ReserveAt(came+tt.at*ms, "k", 1)
		if turn := tt.at + r.Delay.Milliseconds(); turn < tt.least || turn > tt.most {
			t.Errorf("%d of %d at %d ms: the turn is after %d ms, want %d to %d: %+v", tt.cost, tt.estimate, tt.at, turn, tt.least, tt.most, d)
		}
	}
}

// However hits are charged and settled, a checker alone decides by what the true costs come to, of what has been settled.
func TestLocalSettlementsAreTheArithmetic(t *testing.T) {
	type open struct {
		token            string
		bucket, estimate int64
	}
	rapid.Check(t, func(t *rapid.T) {
		buckets := rapid.IntRange(1, 12).Draw(t, "buckets")
		r := draining("r", rules.TokenBucket, rapid.Int64Range(1, 50).Draw(t, "limit"), rapid.Int64Range(1, 80).Draw(t, "burst"),
			time.Duration(buckets)*10*time.Millisecond, buckets)
		c := local(t, r)
		l, _ := c.Limiter("r")
		d := l.Rule().Drain()
		now, all, tokens := noon, map[int64]int64{}, []open(nil)
		first := d.Shape.Bucket(now) - 1
		for range rapid.IntRange(1, 80).Draw(t, "hits") {
			now += rapid.OneOf(rapid.Int64Range(0, 5*ms), rapid.Int64Range(0, 100*ms), rapid.Just(int64(0))).Draw(t, "wait")
			if len(tokens) > 0 && rapid.Bool().Draw(t, "settles") {
				i := rapid.IntRange(0, len(tokens)-1).Draw(t, "token")
				o := tokens[i]
				tokens = append(tokens[:i], tokens[i+1:]...)
				cost := rapid.Int64Range(0, 8).Draw(t, "true cost")
				if err := c.SettleAt(now, o.token, cost); err != nil {
					t.Fatal(err)
				}
				if d.Shape.Bucket(now)-o.bucket < int64(l.live) {
					all[o.bucket] += cost - o.estimate
				}
			}
			var counts []int64
			for b := d.Shape.Bucket(now); b > first; b-- {
				counts = append(counts, all[b])
			}
			cost := rapid.Int64Range(1, 6).Draw(t, "cost")
			want := d.Remaining(window.Level{Bucket: first}, counts, now) >= cost
			got, text := l.CheckTokenAt(now, "k", cost)
			if got.Allowed != want {
				t.Fatalf("after %v: %+v, want %v", time.Duration(now-noon), got, want)
			}
			if want {
				all[d.Shape.Bucket(now)] += cost
				tokens = append(tokens, open{text, d.Shape.Bucket(now), cost})
			}
		}
	})
}

// told is what an answer says of a key's hits of noon's bucket: refunded, admitted, and the level before.
func (f *fleet) told(now int64, refunded, admitted uint64, levelAge int64, parts uint64) {
	f.t.Helper()
	r := f.last()
	rule := r.Hits.Rules[0]
	age := rule.Newest - noon/int64(rule.WindowMs)*int64(rule.Buckets)/ms
	f.receive(now, events.KindRefresh, &events.Refresh{
		Epoch: r.Epoch, Shard: r.Shard, Sequence: r.Sequence, Generation: 1, Version: r.Sequence, Settlements: uint32(len(r.Settlements)),
		KeyCells: []uint32{1, 1}, Age: []int64{age, age}, Total: []uint64{refunded, admitted},
		LevelAge: []int64{0, levelAge}, Level: []uint64{0, parts},
	})
}

// A checker of a fleet reports a settlement of a bucket, hears what came back of it, and keeps that when the bucket
// leaves for the level.
func TestSettleDownInAFleet(t *testing.T) {
	f := newFleet(t, Options{}, draining("r", rules.TokenBucket, 60, 100, time.Minute, 60))
	l := limiter(t, f.Checker, "r")
	text := token(t, l, noon, "k", 100)
	if d := l.CheckAt(noon, "k", 1); d.Allowed {
		t.Fatalf("%+v", d)
	}
	now := noon + 50*ms
	f.Step(now)
	if got := kindsOf(f.last()); got != "refunded k, k 100" {
		t.Errorf("the report: %s", got)
	}
	f.told(now, 0, 100, 61, 0)
	mustSettle(t, f.Checker, now, text, 20)
	now += 50 * ms
	f.Step(now)
	if m := f.last(); kindsOf(m) != "refunded k, k" || len(m.Settlements) != 1 || m.Settlements[0].Hits != -80 {
		t.Fatalf("%s, %v", kindsOf(m), m.Settlements)
	}
	f.told(now, 80, 100, 61, 0)
	for _, step := range []struct{ seconds, left int64 }{{0, 80}, {11, 90}, {61, 100}, {70, 100}} {
		if got := left(l, noon+step.seconds*second, "k"); got != step.left {
			t.Errorf("after %d s: %d left, want %d", step.seconds, got, step.left)
		}
	}
}

// What an answer says is brought forward without what was refunded, if the cell is ahead of it.
func TestLevelsOfOldWordsAreNet(t *testing.T) {
	f := newFleet(t, Options{}, draining("r", rules.TokenBucket, 60, 1000, time.Minute, 60))
	l := limiter(t, f.Checker, "r")
	token(t, l, noon, "k", 1)
	now := noon + 50*ms
	f.Step(now)
	later := noon + 63*second // the cell has let its first bucket go
	l.CheckAt(later, "k", 1)
	f.told(later, 700, 900, 61, 0) // of noon's bucket
	if got := left(l, later, "k"); got != 1000-(200-62)-1 {
		t.Errorf("%d left", got)
	}
}

// A queue in a fleet does not keep the next one waiting for hits that have been given back.
func TestSettleDownInAQueueOfAFleet(t *testing.T) {
	f := newFleet(t, Options{}, draining("r", rules.LeakyBucket, 20, 20, time.Second, 50))
	l := limiter(t, f.Checker, "r")
	text := token(t, l, noon, "k", 20)
	now := noon + 50*ms
	f.Step(now)
	f.told(now, 0, 20, 51, 0)
	mustSettle(t, f.Checker, now, text, 2)
	now += 40 * ms
	table := &events.Table{Rules: []*events.Rule{l.wire(noon), l.wire(noon)}}
	table.Rules[1].Refunded = true
	table.AddKey(1, "k")
	table.AddCell(0, 18)
	f.receive(now, events.KindAlarm, &events.Alarm{Generation: 1, Version: 2, Totals: table})
	d := l.CheckAt(now, "k", 1)
	if wait := 10 * time.Millisecond; d.Allowed || d.RetryAfter < wait || d.RetryAfter > wait+20*time.Millisecond {
		t.Errorf("2 hits take 100 ms: %+v", d)
	}
	if r, d := l.ReserveAt(now, "k", 18); !d.Allowed || !r.CancelAt(now) {
		t.Errorf("there is room for 18 in the queue: %+v", d)
	}
}
