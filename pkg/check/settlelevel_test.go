package check

import (
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/rules"
)

// minuteBucket is a token bucket of 60 a minute, in seconds.
func minuteBucket(burst int64) rules.Rule {
	return draining("r", rules.TokenBucket, 60, burst, time.Minute, 60)
}

// secondQueue is a leaky bucket of 20 a second with room for 20, in buckets of 20 ms.
func secondQueue() rules.Rule { return draining("r", rules.LeakyBucket, 20, 20, time.Second, 50) }

// TestSettleQueue: a queue's next hit has its turn when the true costs of those before it have drained,
// or a bucket's length later; not earlier, unless they cost more than estimated.
func TestSettleQueue(t *testing.T) {
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
		c, l := checkerAndLimiter(t, Options{}, secondQueue())
		came := noon + 15*ms // within a bucket of 20 ms
		text := token(t, l, came, "k", tt.estimate)
		mustSettle(t, c, came+tt.at*ms, text, tt.cost)
		r, d := l.ReserveAt(came+tt.at*ms, "k", 1)
		if turn := tt.at + r.Delay.Milliseconds(); turn < tt.least || turn > tt.most {
			t.Errorf("%d of %d at %d ms: the turn is after %d ms, want %d to %d: %+v", tt.cost, tt.estimate, tt.at, turn, tt.least, tt.most, d)
		}
	}
}

// answerLevel answers the last report of a key: its hits in noon's bucket, refunded and admitted, and the
// level before.
func (f *fleet) answerLevel(now int64, refunded, admitted uint64, levelAge int64, parts uint64) {
	f.t.Helper()
	r := f.last()
	rule := r.Hits.Rules[0]
	age := rule.Newest - noon/int64(rule.WindowMs)*int64(rule.Buckets)/ms
	f.receive(now, events.KindRefresh, &events.Refresh{
		Epoch: r.Epoch, Shard: r.Shard, Sequence: r.Sequence, Generation: 1, Version: r.Sequence,
		Settlements: uint32(len(r.Settlements)), KeyCells: []uint32{1, 1}, Age: []int64{age, age},
		Total: []uint64{refunded, admitted}, LevelAge: []int64{0, levelAge}, Level: []uint64{0, parts},
	})
}

// TestSettleBucketInAFleet: what came back stays when the settled bucket leaves for the level.
func TestSettleBucketInAFleet(t *testing.T) {
	f, l := fleetAndLimiter(t, Options{}, minuteBucket(100))
	text := token(t, l, noon, "k", 100)
	hit(t, l, noon, 1, false, "the bucket is full")
	now := noon + 50*ms
	f.Step(now)
	f.settlements("refunded k, k 100")
	f.answerLevel(now, 0, 100, 61, 0)
	mustSettle(t, f.Checker, now, text, 20)
	now += 50 * ms
	f.Step(now)
	f.settlements("refunded k, k", -80)
	f.answerLevel(now, 80, 100, 61, 0)
	for _, step := range []struct{ seconds, left int64 }{{0, 80}, {11, 90}, {61, 100}, {70, 100}} {
		if got := left(l, noon+step.seconds*second, "k"); got != step.left {
			t.Errorf("after %d s: %d left, want %d", step.seconds, got, step.left)
		}
	}
}

// TestOldLevelsAreNetOfRefunds: an answer of a bucket that the cell has let go is brought forward without
// its refunds.
func TestOldLevelsAreNetOfRefunds(t *testing.T) {
	f, l := fleetAndLimiter(t, Options{}, minuteBucket(1000))
	token(t, l, noon, "k", 1)
	f.Step(noon + 50*ms)
	later := noon + 63*second
	l.CheckAt(later, "k", 1)
	f.answerLevel(later, 700, 900, 61, 0) // of noon's bucket
	wantLeft(t, l, later, 1000-(200-62)-1, "in the end")
}

// TestSettleQueueInAFleet: the next hit does not wait for hits that have been given back.
func TestSettleQueueInAFleet(t *testing.T) {
	f, l := fleetAndLimiter(t, Options{}, secondQueue())
	text := token(t, l, noon, "k", 20)
	now := noon + 50*ms
	f.Step(now)
	f.answerLevel(now, 0, 20, 51, 0)
	mustSettle(t, f.Checker, now, text, 2)
	now += 40 * ms
	f.alarmRows(noon, l, "k", keyTotal{ofRefunded, 18})
	d := l.CheckAt(now, "k", 1)
	if wait := 10 * time.Millisecond; d.Allowed || d.RetryAfter < wait || d.RetryAfter > wait+20*time.Millisecond {
		t.Errorf("2 hits take 100 ms: %+v", d)
	}
	if r, d := l.ReserveAt(now, "k", 18); !d.Allowed || !r.CancelAt(now) {
		t.Errorf("there is room for 18 in the queue: %+v", d)
	}
}
