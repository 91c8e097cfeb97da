package check

import (
	"slices"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/events"
)

// refundedCell is a cell that knows of refunds in three buckets.
func refundedCell(t *testing.T) (*Limiter, *cell) {
	l := limiter(t, newChecker(t, Options{}, rule("r", 100, time.Minute, 2)), "r")
	c := newCell(l, "k", noon)
	copy(c.totals(), []int64{30, 20, 10})
	c.mayRefund()
	copy(c.more.refunded, []int64{3, 2, 11})
	return l, c
}

func TestRefundsStayWithTheirBuckets(t *testing.T) {
	for why, step := range map[string]struct {
		do   func(l *Limiter, c *cell) *cell
		want []int64
	}{
		"never below 0":        {func(_ *Limiter, c *cell) *cell { return c }, []int64{27, 18, 0}},
		"a bucket later":       {func(_ *Limiter, c *cell) *cell { c.rotate(noon + 30*second); return c }, []int64{0, 27, 18}},
		"long after":           {func(_ *Limiter, c *cell) *cell { c.rotate(noon + 3600*second); return c }, []int64{0, 0, 0}},
		"a clock that is back": {func(_ *Limiter, c *cell) *cell { c.pullBack(1); return c }, []int64{45, 0, 0}},
		"a store without data": {func(_ *Limiter, c *cell) *cell { c.forgetBase(); return c }, []int64{0, 0, 0}},
		"out of the idle cache": {func(l *Limiter, c *cell) *cell {
			again := newCell(l, "k", noon)
			again.learn(c)
			return again
		}, []int64{27, 18, 0}},
		"an older message": {func(_ *Limiter, c *cell) *cell {
			if (totals{newest: c.newest, age: []int64{0, 1, 7}, value: []uint64{2, 2, 9}}).mergeRefunds(c) {
				t.Error("news of an older message")
			}
			return c
		}, []int64{27, 18, 0}},
		"a newer one": {func(_ *Limiter, c *cell) *cell {
			if !(totals{newest: c.newest, age: []int64{0, 1}, value: []uint64{2, 5}}).mergeRefunds(c) {
				t.Error("no news of a newer message")
			}
			return c
		}, []int64{27, 15, 0}},
	} {
		l, c := refundedCell(t)
		got := step.do(l, c)
		if net := got.net(); !slices.Equal(net, step.want) {
			t.Errorf("%s: %v, want %v", why, net, step.want)
		}
		terms := l.terms.Load()
		at := got.limiter.shape.End(got.newest - 1) // when the bucket begins
		want := l.shape.Count(step.want, at)
		if n := got.count(terms, at); n != want {
			t.Errorf("%s: counts %v, want %v", why, n, want)
		}
		if freed := got.freed(terms, at); freed != float64(step.want[2])/float64(l.shape.BucketSize()) {
			t.Errorf("%s: %v leave per ns", why, freed)
		}
	}
}

// refundAlarm is an alarm of hits of key k in noon's bucket, admitted and refunded, in this order.
func (f *fleet) refundAlarm(l *Limiter, rows ...uint64) {
	f.t.Helper()
	t := new(events.Table)
	for i, n := range rows {
		r := l.wire(noon)
		r.Refunded = n == 45
		t.Rules = append(t.Rules, r)
		t.AddKey(uint32(i), "k")
		t.AddCell(0, n)
	}
	f.receive(noon, events.KindAlarm, &events.Alarm{Generation: 1, Version: 1, Totals: t})
}

// TestRefundsFreeCallers: a caller who is kept out passes as soon as this checker hears of a refund, in
// whatever order.
func TestRefundsFreeCallers(t *testing.T) {
	for why, alarms := range map[string][][]uint64{ // 50 are admitted, 45 refunded
		"one alarm":    {{50, 45}},
		"either order": {{45, 50}},
		"two alarms":   {{50}, {45}},
		"twice, late":  {{45, 50}, {50}},
		"and repeated": {{45, 50}, {45}},
	} {
		f, l := fleetAndLimiter(t, Options{}, rule("r", 20, time.Minute, 1))
		l.CheckAt(noon, "k", 1)
		f.alarm(noon, 1, l, "k", 50)
		if d := l.CheckAt(noon, "k", 1); d.Allowed {
			t.Fatalf("%s: before: %+v", why, d)
		}
		for _, rows := range alarms {
			f.refundAlarm(l, rows...)
		}
		if got := left(l, noon, "k"); got != 14 {
			t.Errorf("%s: %d left, want 20 - (50 + 1 - 45)", why, got)
		}
		f.Step(noon + 50*ms)
		f.settlements("refunded k, k 1")
	}
	f, l := fleetAndLimiter(t, Options{}, rule("r", 20, time.Minute, 1))
	f.refundAlarm(l, 50, 45)
	wantLeft(t, l, noon, 15, "a key that was never here")
}

// TestRefundsAreAskedForOnAHint: an answer says that a rule has refunds; a checker that has heard of none
// asks, since refunded hits may keep its keys out.
func TestRefundsAreAskedForOnAHint(t *testing.T) {
	f, l := fleetAndLimiter(t, Options{}, rule("r", 20, time.Minute, 1), rule("s", 20, time.Minute, 1))
	l.CheckAt(noon, "k", 1)
	limiter(t, f.Checker, "s").CheckAt(noon, "x", 1)
	now := noon + 50*ms
	f.Step(now)
	m := f.last()
	place := uint32(0)
	if m.Hits.Rules[0].Name != "r" {
		place = 1
	}
	f.receive(now, events.KindRefresh, &events.Refresh{
		Epoch: m.Epoch, Sequence: m.Sequence, Generation: 1, Version: 1, Refunding: []uint32{place, 77},
		KeyCells: []uint32{1, 1}, Age: []int64{0, 0}, Total: []uint64{50, 50},
	})
	hit(t, l, now, 1, false, "50 of 20")
	f.Step(now + 50*ms)
	if got := kindsOf(f.last()); got != "refunded k, k" {
		t.Fatalf("then it asks: %q", got)
	}
	f.answerAll(now+50*ms, 0, 45, 50)
	wantLeft(t, l, now+50*ms, 15, "in the end")
}

// TestRefundsLeaveWithTheirBuckets, and a store that has lost its data has none.
func TestRefundsLeaveWithTheirBuckets(t *testing.T) {
	f, l := fleetAndLimiter(t, Options{}, rule("r", 20, time.Minute, 6))
	token(t, l, noon, "k", 20)
	now := noon + 50*ms
	f.Step(now)
	f.answerAll(now, 0, 15, 20)
	for _, row := range []struct{ seconds, left int64 }{{0, 15}, {9, 15}, {55, 15}, {62, 16}, {66, 18}, {70, 20}} {
		if got := left(l, noon+row.seconds*second, "k"); got != row.left {
			t.Errorf("after %d s: %d left, want %d", row.seconds, got, row.left)
		}
	}
	l.CheckAt(noon+100*second, "k", 4)
	f.Step(noon + 100*second)
	f.answerAll(noon+100*second, 0, 3, 10)
	wantLeft(t, l, noon+100*second, 13, "in the end")
	l.CheckAt(noon+100*second, "k", 1)
	f.Step(noon + 101*second)
	f.answerIn(noon+101*second, 2, 1) // too few rows: nothing
	m := f.last()
	f.receive(noon+101*second, events.KindRefresh, &events.Refresh{
		Epoch: m.Epoch, Sequence: m.Sequence, Generation: 2, Version: 1, KeyCells: []uint32{0, 1}, Age: []int64{0}, Total: []uint64{1},
	})
	wantLeft(t, l, noon+101*second, 19, "after a loss")
}
