package check

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
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

// Hits of a quiet key wait for their report, but not for longer than their settlement does.
func TestSettlementsEndQuietWaits(t *testing.T) {
	tape := new(tape)
	f := &fleet{newChecker(t, Options{Link: tape}, rule("r", 100_000, time.Hour, 1)), t, tape}
	f.Step(noon)
	f.receive(noon, events.KindWelcome, &events.Welcome{Epoch: f.Epoch(), Sent: noon, Shards: 1, Time: noon, Checkers: 3})
	f.Step(noon)
	l := limiter(t, f.Checker, "r")
	text := token(t, l, noon, "k", 5)
	f.Step(noon + 50*ms)
	f.Step(noon + 100*ms)
	if len(tape.reports) != 0 {
		t.Fatalf("a quiet key is reported: %v", tape.reports)
	}
	mustSettle(t, f.Checker, noon+100*ms, text, 1)
	f.Step(noon + 150*ms)
	if m := f.last(); kindsOf(m) != "refunded k, k 5" || len(m.Settlements) != 1 {
		t.Errorf("%s, %v", kindsOf(m), m.Settlements)
	}
}

// Of a key near its limit the fleet should hear soon, of others it may later.
func TestSettlementsNearTheLimitAreInAHurry(t *testing.T) {
	for _, cost := range []int64{5, 20} {
		f := newFleet(t, Options{}, rule("r", 20, time.Hour, 1))
		text := token(t, limiter(t, f.Checker, "r"), noon, "k", cost)
		for len(f.Wake()) > 0 {
			<-f.Wake()
		}
		f.rounds.wanted.Store(0)
		mustSettle(t, f.Checker, noon, text, 1)
		if hurry := len(f.Wake()) > 0; hurry != (cost == 20) {
			t.Errorf("%d of 20: in a hurry: %v", cost, hurry)
		}
	}
}

// TestStopDeliversSettlements: Run does not return before what was settled has been answered, and says so if it had to.
func TestStopDeliversSettlements(t *testing.T) {
	for _, answers := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			f := &fleet{t: t, tape: new(tape)}
			f.Checker = newChecker(t, Options{Link: f.tape, MaxIdleKeys: -1}, rule("r", 1000, time.Hour, 1))
			l := limiter(t, f.Checker, "r")
			ctx, stop := context.WithCancel(context.Background())
			defer stop()
			done := make(chan error, 1)
			go func() { done <- f.Run(ctx) }()
			synctest.Wait()
			f.welcome(ownTime(), 1)
			d, text := l.CheckToken("k", 5)
			if !d.Allowed {
				t.Fatal(d)
			}
			mustSettle(t, f.Checker, ownTime(), text, 1)
			stop()
			settled, answered := 0, 0
			for i := 0; len(done) == 0 && i < 3000; i++ {
				time.Sleep(2 * time.Millisecond)
				synctest.Wait()
				f.behind.mu.Lock() // which Run sends under
				reports := f.tape.reports[answered:]
				f.behind.mu.Unlock()
				for _, m := range reports {
					dealt := 0
					if answers {
						dealt = len(m.Settlements)
					}
					settled += dealt
					f.answerAll(ownTime(), dealt, make([]uint64, len(m.Hits.KeyLength))...)
				}
				answered += len(reports)
			}
			if err := <-done; answers && (err != nil || settled != 1) || !answers && !errors.Is(err, ErrUnreported) {
				t.Errorf("answers: %v; %d settled: %v", answers, settled, err)
			}
		})
	}
}
