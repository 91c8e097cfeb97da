package check

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/offpath-io/offpath/pkg/events"
)

func TestFirstWelcomeStepsTheClock(t *testing.T) {
	for _, step := range []time.Duration{-5 * time.Second, -300 * time.Millisecond, 200 * time.Millisecond, 2 * time.Second, time.Hour} {
		tape := new(tape)
		c := newChecker(t, Options{Link: tape}, rule("r", 100, time.Second, 4))
		f := &fleet{c, t, tape}
		l := limiter(t, c, "r")
		now := noon + 10*ms
		l.CheckAt(now, "k", 7) // in the bucket that begins at noon, by a wrong clock
		f.Step(now)
		fleet := now + int64(step)
		f.receive(now, events.KindWelcome, &events.Welcome{Epoch: c.Epoch(), Sent: tape.hellos[0].Sent, Shards: 1, Time: fleet})
		if got := c.Stats().ClockOffset; got != step {
			t.Fatalf("offset %v, want %v", got, step)
		}
		if got := left(l, now, "k"); got != 93 {
			t.Errorf("step by %v: %d left, want the 7 hits to be remembered where they belong now", step, got)
		}
		f.Step(now)
		r := f.last()
		shape := l.Rule().Window
		got, want := r.Hits.Rules[0].Newest-r.Hits.Age[0], shape.Bucket(fleet)
		if got < want-1 || got > want+1 {
			t.Errorf("step by %v: reported in bucket %d, want %d give or take one", step, got, want)
		}
	}
}

func TestLaterWelcomesSlewTheClock(t *testing.T) {
	f := newFleet(t, Options{HelloEvery: time.Second}, rule("r", 100, time.Second, 1))
	now, ahead := noon, int64(100*time.Millisecond)
	for now < noon+10*second {
		now += 50 * ms
		hellos := len(f.tape.hellos)
		before := f.clock.fleet(now)
		f.Step(now)
		if moved := f.clock.fleet(now) - before; moved < 0 || moved > 50*ms/slewShare {
			t.Fatalf("the clock moved by %v within 50 ms", time.Duration(moved))
		}
		if len(f.tape.hellos) > hellos {
			f.receive(now, events.KindWelcome, &events.Welcome{Epoch: f.Epoch(), Sent: now, Shards: 1, Time: now + ahead})
		}
	}
	// The first sample, of offset 0, is still one of the eight; but all have the same round trip.
	for range 10 {
		now += second
		f.Step(now)
		f.receive(now, events.KindWelcome, &events.Welcome{Epoch: f.Epoch(), Sent: now, Shards: 1, Time: now + ahead})
	}
	now += 10 * second
	f.Step(now)
	if got := f.Stats().ClockOffset; got != time.Duration(ahead) {
		t.Errorf("in the end the offset is %v, want %v", got, time.Duration(ahead))
	}
}

func TestSmallestRoundTripWins(t *testing.T) {
	var c clock
	for _, s := range []struct{ sent, fleet, now int64 }{
		{0, 500, 100},                        // round trip 100: offset 450
		{1000, 2000, 1010},                   // round trip 10: offset 995
		{2000, 9000, 2900},                   // round trip 900
		{9000, 1, 8000},                      // answered before it was asked
		{0, 77, int64(longestRoundTrip) + 1}, // too slow to mean anything
	} {
		c.observe(s.sent, s.fleet, s.now)
	}
	if c.target != 995 {
		t.Errorf("the target is %d, want that of the smallest round trip, 995", c.target)
	}
}

func TestFreshness(t *testing.T) {
	f := newFleet(t, Options{HelloEvery: time.Second}, rule("r", 100, time.Second, 1))
	l := limiter(t, f.Checker, "r")
	for _, step := range []struct {
		at   int64
		want Freshness
	}{{0, Fresh}, {3 * second, Fresh}, {3*second + 1, Stale}, {9 * second, Stale}} {
		f.Step(noon + step.at)
		if got := l.CheckAt(noon+step.at, "k", 1).Freshness; got != step.want {
			t.Errorf("%v after the last word: %v, want %v", time.Duration(step.at), got, step.want)
		}
	}
	f.welcome(noon+9*second, 1)
	if got := l.CheckAt(noon+9*second, "k", 1).Freshness; got != Fresh {
		t.Errorf("after a welcome: %v", got)
	}
}

// TestChecksInTheTickOfAStep: checks read the time that was written down before the clock was
// stepped back; they must not carry their keys into the future.
func TestChecksInTheTickOfAStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tape := new(tape)
		c := newChecker(t, Options{Link: tape, MaxIdleKeys: -1, DrainTimeout: time.Millisecond}, rule("r", 10, time.Second, 1))
		l := limiter(t, c, "r")
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		time.Sleep(10*time.Millisecond + 300*time.Microsecond)
		l.Check("k", 1)
		stale := c.clock.now() // another goroutine has read the time just before
		f := &fleet{c, t, tape}
		now := ownTime()
		f.receive(now, events.KindWelcome, &events.Welcome{Epoch: c.Epoch(), Sent: now - ms, Shards: 1, Time: now - 60*second})
		var d Decision
		l.checkAt(&d, l.terms.Load(), stale, "k", 3)
		l.Check("k", 6)
		for i := range 3 {
			time.Sleep(5 * time.Second)
			if d := l.Check("k", 1); !d.Allowed {
				t.Errorf("%d s later: %+v", 5*(i+1), d)
			}
		}
		for _, r := range tape.reports {
			for _, age := range r.Hits.Age {
				if age < 0 {
					t.Errorf("reported %d buckets in the future", -age)
				}
			}
		}
		stop()
		<-ended
	})
}

// TestRebucketStopsAtNow: hits of a wrong clock are moved to the nearest bucket, but not beyond now's.
func TestRebucketStopsAtNow(t *testing.T) {
	tape := new(tape)
	c := newChecker(t, Options{Link: tape}, rule("r", 10, time.Hour, 1))
	f := &fleet{c, t, tape}
	l := limiter(t, c, "r")
	now := noon + 10*60*second
	l.CheckAt(now, "k", 10)
	f.Step(now)
	f.receive(now, events.KindWelcome, &events.Welcome{Epoch: c.Epoch(), Sent: now, Shards: 1, Time: now - 25*60*second})
	d := l.CheckAt(now, "k", 1)
	if want := 15*time.Minute + 6*time.Minute; d.Allowed || d.RetryAfter != want {
		t.Errorf("at 11:45 by the right clock, ten hits in this hour: %+v, want a retry at 12:06", d)
	}
	f.Step(now)
	if r := f.last(); r.Hits.Age[0] != 0 {
		t.Errorf("reported at age %d, want in the bucket of now", r.Hits.Age[0])
	}
}

// TestSlowFirstWelcome: an answer that is too slow to tell the time does not start reports either.
func TestSlowFirstWelcome(t *testing.T) {
	tape := new(tape)
	c := newChecker(t, Options{Link: tape}, rule("r", 10, time.Second, 1))
	f := &fleet{c, t, tape}
	limiter(t, c, "r").CheckAt(noon, "k", 1)
	f.Step(noon)
	late := noon + int64(longestRoundTrip) + 1
	f.receive(late, events.KindWelcome, &events.Welcome{Epoch: c.Epoch(), Sent: noon, Shards: 1, Time: noon})
	hellos := len(tape.hellos)
	f.Step(late)
	if len(tape.reports) > 0 || len(tape.hellos) != hellos+1 {
		t.Errorf("%d reports; %d hellos more, want none and one", len(tape.reports), len(tape.hellos)-hellos)
	}
}

// TestAfterASleep: a machine that was asleep does not slew for hours.
func TestAfterASleep(t *testing.T) {
	f := newFleet(t, Options{HelloEvery: time.Second}, rule("r", 10, time.Second, 1))
	now, asleep := noon, int64(time.Hour)
	for i := range 12 {
		now += second
		f.Step(now)
		f.receive(now, events.KindWelcome, &events.Welcome{Epoch: f.Epoch(), Sent: now, Shards: 1, Time: now + asleep})
		if got := f.Stats().ClockOffset; i < 6 && got > time.Second {
			t.Errorf("after %d answers the clock has stepped by %v", i+1, got)
		}
	}
	if got := f.Stats().ClockOffset; got != time.Hour {
		t.Errorf("after twelve answers the clock is %v ahead, want an hour", got)
	}
}

func TestPullBack(t *testing.T) {
	c := newChecker(t, Options{}, rule("r", 100, time.Minute, 3))
	cell := newCell(c.program.Load().entries[0].limiter, "k", noon)
	for _, row := range []struct {
		by                   int64
		totals, wantTotals   [4]int64
		pending, wantPending [4]int64
	}{
		{1, [4]int64{1, 2, 3, 4}, [4]int64{3, 3, 4, 0}, [4]int64{1, 0, 3, 0}, [4]int64{1, 3, 0, 0}},
		{3, [4]int64{1, 2, 3, 4}, [4]int64{10, 0, 0, 0}, [4]int64{0, 0, 0, 4}, [4]int64{4, 0, 0, 0}},
		{9, [4]int64{1, 2, 3, 4}, [4]int64{10, 0, 0, 0}, [4]int64{1, 0, 0, 0}, [4]int64{1, 0, 0, 0}},
	} {
		newest := cell.newest
		copy(cell.totals(), row.totals[:])
		copy(cell.pending(), row.pending[:])
		cell.pullBack(row.by)
		if got := [4]int64(cell.totals()); got != row.wantTotals {
			t.Errorf("by %d: totals %v, want %v", row.by, got, row.wantTotals)
		}
		if got := [4]int64(cell.pending()); got != row.wantPending || cell.newest != newest-row.by {
			t.Errorf("by %d: pending %v, want %v", row.by, got, row.wantPending)
		}
	}
}
