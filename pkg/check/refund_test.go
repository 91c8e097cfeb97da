package check

import (
	"slices"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/events"
)

// TestRefundsStayWithTheirBuckets in a cell, which counts 30, 20 and 10 hits, of which 3, 2 and 11 are refunded.
func TestRefundsStayWithTheirBuckets(t *testing.T) {
	merge := func(c *cell, news bool, age []int64, value ...uint64) {
		if (totals{newest: c.newest, age: age, value: value}).mergeRefunds(c) != news {
			t.Errorf("%v of %v: want news: %v", value, age, news)
		}
	}
	for why, step := range map[string]struct {
		do   func(c *cell)
		want []int64
	}{
		"never below 0":        {func(*cell) {}, []int64{27, 18, 0}},
		"a bucket later":       {func(c *cell) { c.rotate(noon + 30*second) }, []int64{0, 27, 18}},
		"long after":           {func(c *cell) { c.rotate(noon + 3600*second) }, []int64{0, 0, 0}},
		"a clock that is back": {func(c *cell) { c.pullBack(1) }, []int64{45, 0, 0}},
		"a store without data": {func(c *cell) { c.forgetBase() }, []int64{0, 0, 0}},
		"an older message":     {func(c *cell) { merge(c, false, []int64{0, 1, 7}, 2, 2, 9) }, []int64{27, 18, 0}},
		"a newer one":          {func(c *cell) { merge(c, true, []int64{0, 1}, 2, 5) }, []int64{27, 15, 0}},
	} {
		_, l := checkerAndLimiter(t, Options{}, rule("r", 100, time.Minute, 2))
		c, learnt := newCell(l, "k", noon), newCell(l, "k", noon)
		copy(c.totals(), []int64{30, 20, 10})
		c.mayRefund()
		copy(c.more.refunded, []int64{3, 2, 11})
		learnt.learn(c) // from the idle cache
		for _, c := range []*cell{c, learnt} {
			step.do(c)
			terms, at := l.terms.Load(), l.shape.End(c.newest-1) // when the bucket begins
			n, freed := c.count(terms, at), c.freed(terms, at)
			if net := c.net(); !slices.Equal(net, step.want) || n != l.shape.Count(step.want, at) ||
				freed != float64(step.want[2])/float64(l.shape.BucketSize()) {
				t.Errorf("%s: %v, counts %v, %v leave per ns; want %v", why, net, n, freed, step.want)
			}
		}
	}
}

// TestRefundsFreeCallers: a caller who is kept out passes as soon as this checker hears of a refund, in
// whatever order.
func TestRefundsFreeCallers(t *testing.T) {
	admitted, refunded := keyTotal{ofAdmitted, 50}, keyTotal{ofRefunded, 45}
	for why, alarms := range map[string][][]keyTotal{
		"one alarm":    {{admitted, refunded}},
		"either order": {{refunded, admitted}},
		"two alarms":   {{admitted}, {refunded}},
		"twice, late":  {{refunded, admitted}, {admitted}},
		"and repeated": {{refunded, admitted}, {refunded}},
	} {
		f, l := fleetAndLimiter(t, Options{}, rule("r", 20, time.Minute, 1))
		l.CheckAt(noon, "k", 1)
		f.alarm(noon, 1, l, "k", 50)
		hit(t, l, noon, 1, false, why+": before")
		for _, rows := range alarms {
			f.alarmRows(noon, l, "k", rows...)
		}
		wantLeft(t, l, noon, 20-(50+1-45), why)
		f.Step(noon + 50*ms)
		f.settlements("refunded k, k 1")
	}
	f, l := fleetAndLimiter(t, Options{}, rule("r", 20, time.Minute, 1))
	f.alarmRows(noon, l, "k", admitted, refunded)
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
