package check

import (
	"testing"
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
		shape := l.rule.Window
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
