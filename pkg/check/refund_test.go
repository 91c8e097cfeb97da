package check

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/rules"
)

// TestRefundsFreeCallers: a caller who is kept out passes as soon as this checker hears of a
// refund, in whatever order.
func TestRefundsFreeCallers(t *testing.T) {
	admitted, refunded := admitted(50), refunded(45)
	for why, alarms := range map[string][][]keyTotal{
		"one alarm":    {{admitted, refunded}},
		"either order": {{refunded, admitted}},
		"two alarms":   {{admitted}, {refunded}},
		"twice, late":  {{refunded, admitted}, {admitted}},
		"and repeated": {{refunded, admitted}, {refunded}},
	} {
		f, l := fleetAndLimiter(t, Options{}, rule("r", 20, time.Minute, 1))
		atTime(noon, l).Check("k", 1)
		f.alarm(noon, 1, l, "k", 50)
		wantHit(t, l, noon, 1, false, why+": before")
		for _, rows := range alarms {
			f.alarmRows(noon, l, "k", rows...)
		}
		wantLeft(t, l, noon, 20-(50+1-45), why)
		atTime(noon+50*ms, f).Step()
		f.settlements("refunded k, k 1")
	}
	f, l := fleetAndLimiter(t, Options{}, rule("r", 20, time.Minute, 1))
	f.alarmRows(noon, l, "k", admitted, refunded)
	wantLeft(t, l, noon, 15, "a key that was never here")
}

// TestRefundsAreAskedForOnAHint: an answer says that a rule has refunds; a checker that has heard
// of none asks, since refunded hits may keep its keys out.
func TestRefundsAreAskedForOnAHint(t *testing.T) {
	f, l := fleetAndLimiter(t, Options{}, rule("r", 20, time.Minute, 1), rule("s", 20, time.Minute, 1))
	atTime(noon, l).Check("k", 1)
	atTime(noon, limiter(t, f.Checker, "s")).Check("x", 1)
	now := noon + 50*ms
	atTime(now, f).Step()
	place := uint32(0)
	if f.last().Hits.Rules[0].Name != "r" {
		place = 1
	}
	m := f.refresh(50, 50)
	m.Refunding = []uint32{place, 77}
	f.receive(now, events.KindRefresh, m)
	wantHit(t, l, now, 1, false, "50 of 20")
	atTime(now+50*ms, f).Step()
	got := kindsOf(f.last())
	require(t, got == "refunded k, k", "then it asks: %q", got)
	f.answerAll(now+50*ms, 0, 45, 50)
	wantLeft(t, l, now+50*ms, 15, "in the end")
}

// TestRefundsLeaveWithTheirBuckets, and a store that has lost its data has none.
func TestRefundsLeaveWithTheirBuckets(t *testing.T) {
	f, l := fleetAndLimiter(t, Options{}, rule("r", 20, time.Minute, 6))
	receipt(t, l, noon, "k", 20)
	now := noon + 50*ms
	atTime(now, f).Step()
	f.answerAll(now, 0, 15, 20)
	for _, row := range []struct{ seconds, left int64 }{{0, 15}, {9, 15}, {55, 15}, {62, 16}, {66, 18}, {70, 20}} {
		equal(t, left(l, noon+row.seconds*second, "k"), row.left, "after %d s: left", row.seconds)
	}
	atTime(noon+100*second, l).Check("k", 4)
	atTime(noon+100*second, f).Step()
	f.answerAll(noon+100*second, 0, 3, 10)
	wantLeft(t, l, noon+100*second, 13, "in the end")
	atTime(noon+100*second, l).Check("k", 1)
	atTime(noon+101*second, f).Step()
	f.answerIn(noon+101*second, 2, 1) // too few rows: nothing
	m := f.refresh(1)
	m.Generation, m.KeyCells = 2, []uint32{0, 1}
	f.receive(noon+101*second, events.KindRefresh, m)
	wantLeft(t, l, noon+101*second, 19, "after a loss")
}

// minuteBucket is a token bucket of 60 a minute, in seconds.
func minuteBucket(burst int64) rules.Rule {
	return draining("r", rules.TokenBucket, 60, burst, time.Minute, 60)
}

// secondQueue is a leaky bucket of 20 a second with room for 20, in buckets of 20 ms.
func secondQueue() rules.Rule { return draining("r", rules.LeakyBucket, 20, 20, time.Second, 50) }

// TestSettleQueue: a queue's next hit has its turn when the true costs of those before it have
// drained, or a bucket's length later; not earlier, unless they cost more than estimated.
func TestSettleQueue(t *testing.T) {
	for _, tt := range []struct {
		estimate, cost int64
		at             int64 // when it is withdrawn, in ms after it came
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
		text := receipt(t, l, came, "k", tt.estimate)
		mustSettle(t, c, came+tt.at*ms, text, tt.cost)
		r, d := atTime(came+tt.at*ms, l).tryReserve("k", 1)
		turn := tt.at + r.Delay.Milliseconds()
		expect(t, turn >= tt.least && turn <= tt.most, "%+v: the turn is after %d ms: %+v", tt, turn, d)
	}
}

// answerLevel answers the last report of a key: its hits in noon's bucket, refunded and admitted,
// and the level before.
func (f *fleet) answerLevel(now int64, refunded, admitted uint64, levelAge int64, parts uint64) {
	f.t.Helper()
	r := f.last()
	rule := r.Hits.Rules[0]
	age := rule.Newest - noon/int64(rule.WindowMs)*int64(rule.Buckets)/ms
	m := f.refresh(refunded, admitted)
	m.Settlements, m.Age = uint32(len(r.Settlements)), []int64{age, age}
	m.LevelAge, m.Level = []int64{0, levelAge}, []uint64{0, parts}
	f.receive(now, events.KindRefresh, m)
}

// TestSettleBucketInAFleet: what came back stays when the settled bucket leaves for the level.
func TestSettleBucketInAFleet(t *testing.T) {
	f, l := fleetAndLimiter(t, Options{}, minuteBucket(100))
	text := receipt(t, l, noon, "k", 100)
	wantHit(t, l, noon, 1, false, "the bucket is full")
	now := noon + 50*ms
	atTime(now, f).Step()
	f.settlements("refunded k, k 100")
	f.answerLevel(now, 0, 100, 61, 0)
	mustSettle(t, f.Checker, now, text, 20)
	now += 50 * ms
	atTime(now, f).Step()
	f.settlements("refunded k, k", -80)
	f.answerLevel(now, 80, 100, 61, 0)
	for _, step := range []struct{ seconds, left int64 }{{0, 80}, {11, 90}, {61, 100}, {70, 100}} {
		equal(t, left(l, noon+step.seconds*second, "k"), step.left, "after %d s: left", step.seconds)
	}
}

// TestOldLevelsAreNetOfRefunds: an answer of a bucket that the counter has let go is brought
// forward without its refunds.
func TestOldLevelsAreNetOfRefunds(t *testing.T) {
	f, l := fleetAndLimiter(t, Options{}, minuteBucket(1000))
	receipt(t, l, noon, "k", 1)
	atTime(noon+50*ms, f).Step()
	later := noon + 63*second
	atTime(later, l).Check("k", 1)
	f.answerLevel(later, 700, 900, 61, 0) // of noon's bucket
	wantLeft(t, l, later, 1000-(200-62)-1, "in the end")
}

// TestLateAlarmsAreNetOfRefunds: an alarm tells admitted hits in a message of their own. Where that
// comes when their bucket has gone into the level, it takes back no refund of which the checker
// knows; a checker that knows nothing of the key keeps it out, and asks.
func TestLateAlarmsAreNetOfRefunds(t *testing.T) {
	refunded, later := int64(1000-(200-62)), noon+63*second
	for _, known := range []bool{true, false} {
		f, l := fleetAndLimiter(t, Options{}, minuteBucket(1000))
		want := int64(1000 - (900 - 62))
		if known {
			receipt(t, l, noon, "k", 1)
			atTime(noon+50*ms, f).Step()
			f.answerLevel(noon+50*ms, 700, 900, 61, 0)
			want = refunded
		}
		for _, row := range []keyTotal{{counter.RefundedHits, 700}, admitted(900)} {
			a := alarmOf(&l.core.Group, noon, 1, "k", row)
			a.Totals.SetLevel(61, 0)
			f.receive(later, events.KindAlarm, a)
		}
		wantLeft(t, l, later, want, fmt.Sprintf("known: %v", known))
		if known {
			continue
		}
		atTime(later+50*ms, f).Step()
		f.settlements("refunded k, k")
		m := f.refresh()
		m.KeyCells, m.LevelAge, m.Level = []uint32{0, 0}, []int64{0, 61}, []uint64{0, (200 - 2) * 60}
		f.receive(later+60*ms, events.KindRefresh, m)
		wantLeft(t, l, later+60*ms, refunded, "when it is answered")
	}
}

// TestSettleQueueInAFleet: the next hit does not wait for hits that have been given back.
func TestSettleQueueInAFleet(t *testing.T) {
	f, l := fleetAndLimiter(t, Options{}, secondQueue())
	text := receipt(t, l, noon, "k", 20)
	now := noon + 50*ms
	atTime(now, f).Step()
	f.answerLevel(now, 0, 20, 51, 0)
	mustSettle(t, f.Checker, now, text, 2)
	now += 40 * ms
	f.alarmRows(noon, l, "k", refunded(18))
	d := atTime(now, l).Check("k", 1)
	wait := 10 * time.Millisecond
	expect(t, !d.Allowed && d.RetryAfter >= wait && d.RetryAfter <= wait+20*time.Millisecond, "2 hits take 100 ms: %+v", d)
	r, d := atTime(now, l).tryReserve("k", 18)
	expect(t, d.Allowed && atTime(now, r).Cancel(), "there is room for 18 in the queue: %+v", d)
}

// TestRefundsEndStrictBlocks: a key without room asks again when it hears of a refund.
func TestRefundsEndStrictBlocks(t *testing.T) {
	f, l := strictFleet(t, 10, time.Minute)
	f.firstGrant(l, 0, 30*time.Second)
	f.pass(l, 3, 1, 0)
	f.asksNothing(3, 1000, 10)
	f.alarmRows(noon+second, l, "k", refunded(5))
	f.asks(1000, leaseWish{want: 1})
}

// TestHintAfterAReceipt: a hint is for the keys of its report, also if a receipt has been made of
// another key of the rule since that was sent.
func TestHintAfterAReceipt(t *testing.T) {
	f, l := fleetAndLimiter(t, Options{}, rule("r", 20, time.Minute, 1))
	atTime(noon, l).Check("k", 1)
	now := noon + 50*ms
	atTime(now, f).Step()
	receipt(t, l, now, "x", 2)
	m := f.refresh(50)
	m.Refunding = []uint32{0}
	f.receive(now, events.KindRefresh, m)
	wantHit(t, l, now, 1, false, "50 of 20")
	atTime(now+50*ms, f).Step()
	got := kindsOf(f.last())
	expect(t, strings.Contains(got, "refunded k, k") && strings.Contains(got, "refunded x, x 2"), "reported %q", got)
}
