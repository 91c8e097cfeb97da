package check

import (
	"github.com/offpath-io/offpath/pkg/check/internal/evaluation"
	"github.com/offpath-io/offpath/pkg/check/internal/fleetstate"
	"testing"
	"testing/synctest"
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/fleetclock"
	"github.com/offpath-io/offpath/pkg/events"
)

// timed answers the hello of that moment by a fleet's time.
func (f *fleet) timed(now, fleet int64) {
	f.t.Helper()
	f.welcomed(now, now, &events.Welcome{Shards: 1, Time: fleet})
}

// TestFirstWelcomeStepsTheClock, and moves the hits of a wrong clock to where they belong.
func TestFirstWelcomeStepsTheClock(t *testing.T) {
	for _, step := range []time.Duration{-5 * time.Second, -300 * time.Millisecond, 200 * time.Millisecond, 2 * time.Second, time.Hour} {
		f := unwelcomed(t, Options{}, rule("r", 100, time.Second, 4))
		l := limiter(t, f.Checker, "r")
		now := noon + 10*ms
		atTime(now, l).Check("k", 7)
		atTime(now, f).Step()
		fleet := now + int64(step)
		f.timed(now, fleet)
		equal(t, f.Stats().ClockOffset, step, "offset")
		equal(t, left(l, now, "k"), 93, "step by %v: left", step)
		atTime(now, f).Step()
		r := f.last()
		got, want := r.Hits.Rules[0].Newest-r.Hits.Age[0], l.Rule().Window.Bucket(fleet)
		expect(t, got >= want-1 && got <= want+1, "step by %v: reported in bucket %d, want %d give or take one", step, got, want)
	}
}

// TestHitsAreNotMovedBeyondNow: they go to the nearest bucket of the right clock.
func TestHitsAreNotMovedBeyondNow(t *testing.T) {
	f := unwelcomed(t, Options{}, rule("r", 10, time.Hour, 1))
	l := limiter(t, f.Checker, "r")
	now := noon + 10*60*second
	atTime(now, l).Check("k", 10)
	atTime(now, f).Step()
	f.timed(now, now-25*60*second)
	d := atTime(now, l).Check("k", 1)
	expect(t, !d.Allowed && d.RetryAfter == 21*time.Minute, "at 11:45 by the right clock, ten hits in this hour: %+v", d)
	atTime(now, f).Step()
	equal(t, f.last().Hits.Age[0], 0, "age of the reported bucket")
}

func TestLaterWelcomesSlewTheClock(t *testing.T) {
	f := newFleet(t, Options{HelloEvery: time.Second}, rule("r", 100, time.Second, 1))
	now, ahead := noon, 100*ms
	for now < noon+10*second {
		now += 50 * ms
		hellos, before := len(f.tape.hellos), f.host.Clock.Fleet(now)
		atTime(now, f).Step()
		moved := f.host.Clock.Fleet(now) - before
		require(t, moved >= 0 && moved <= 50*ms/fleetclock.SlewShare, "the clock moved by %v within 50 ms", time.Duration(moved))
		if len(f.tape.hellos) > hellos {
			f.timed(now, now+ahead)
		}
	}
	// The first sample, of offset 0, is still one of the eight; but all have the same round trip.
	for range 10 {
		now += second
		atTime(now, f).Step()
		f.timed(now, now+ahead)
	}
	atTime(now+10*second, f).Step()
	equal(t, f.Stats().ClockOffset, time.Duration(ahead), "offset in the end")
}

// TestClockStepsAfterASleep of the machine, rather than slew for hours.
func TestClockStepsAfterASleep(t *testing.T) {
	f := newFleet(t, Options{HelloEvery: time.Second}, rule("r", 10, time.Second, 1))
	for i := range int64(12) {
		now := noon + (i+1)*second
		atTime(now, f).Step()
		f.timed(now, now+int64(time.Hour))
		got := f.Stats().ClockOffset
		expect(t, i >= 6 || got <= time.Second, "after %d answers the clock has stepped by %v", i+1, got)
	}
	equal(t, f.Stats().ClockOffset, time.Hour, "offset after twelve answers")
}

// TestSlowFirstWelcomeStartsNothing: it is too slow to give the time, so reports wait for another
// hello.
func TestSlowFirstWelcomeStartsNothing(t *testing.T) {
	f := unwelcomed(t, Options{}, rule("r", 10, time.Second, 1))
	atTime(noon, limiter(t, f.Checker, "r")).Check("k", 1)
	atTime(noon, f).Step()
	late := noon + int64(fleetclock.LongestRoundTrip) + 1
	f.welcomed(late, noon, &events.Welcome{Shards: 1, Time: noon})
	hellos := len(f.tape.hellos)
	atTime(late, f).Step()
	expect(t, len(f.tape.reports) == 0 && len(f.tape.hellos) == hellos+1,
		"%d reports; %d hellos more, want none and one", len(f.tape.reports), len(f.tape.hellos)-hellos)
}

// TestChecksDuringAStepOfTheClock have read the time before it went back; they must not carry their
// keys into the future.
func TestChecksDuringAStepOfTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := unwelcomed(t, Options{MaxIdleKeys: -1, DrainTimeout: time.Millisecond}, rule("r", 10, time.Second, 1))
		l := limiter(t, f.Checker, "r")
		running := run(t, f.Checker)
		time.Sleep(10*time.Millisecond + 300*time.Microsecond)
		l.Check("k", 1)
		stale := f.host.Time(false) // another goroutine has read the time just before
		now := fleetstate.SystemTime()
		f.welcomed(now, now-ms, &events.Welcome{Shards: 1, Time: now - 60*second})
		var d Decision
		evaluation.CheckPlain((*evaluation.Decision)(&d), &l.core, l.core.Current.Load(), stale, "k", 3)
		l.Check("k", 6)
		for i := range 3 {
			time.Sleep(5 * time.Second)
			d := l.Check("k", 1)
			expect(t, d.Allowed, "%d s later: %+v", 5*(i+1), d)
		}
		for _, r := range f.tape.reports {
			for _, age := range r.Hits.Age {
				expect(t, age >= 0, "reported %d buckets in the future", -age)
			}
		}
		running.stop()
		<-running.ended
	})
}
