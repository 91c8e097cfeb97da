package check

import (
	"fmt"
	"github.com/offpath-io/offpath/pkg/check/internal/evaluation"
	"github.com/offpath-io/offpath/pkg/check/internal/fleetstate"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/fleetclock"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// TestFirstWelcomeStepsTheClock, and moves the hits of a wrong clock to where they belong.
func TestFirstWelcomeStepsTheClock(t *testing.T) {
	for _, step := range []time.Duration{-5 * time.Second, -300 * time.Millisecond, 200 * time.Millisecond, 2 * time.Second, time.Hour} {
		f := unwelcomed(t, Options{}, rule("r", 100, time.Second, 4))
		l := limiter(t, f.Checker, "r")
		now := noon + 10*ms
		atTime(now, l).Check("k", 7)
		atTime(now, f).Step()
		fleet := now + int64(step)
		f.join(now, 1, int64(step))
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
	f.join(now, 1, -25*60*second)
	d := atTime(now, l).Check("k", 1)
	expect(t, !d.Allowed && d.RetryAfter == 21*time.Minute, "at 11:45 by the right clock, ten hits in this hour: %+v", d)
	atTime(now, f).Step()
	equal(t, f.last().Hits.Age[0], 0, "age of the reported bucket")
}

// TestOldTimesMoveNoHits: a step that was held up, by a send or as its process was frozen, goes by
// a time of long ago.
func TestOldTimesMoveNoHits(t *testing.T) {
	f := newFleet(t, Options{}, rule("r", 20, time.Second, 1))
	l, later := limiter(t, f.Checker, "r"), noon+4*second+100*ms
	f.tape.during = func() {
		for range 20 {
			expect(t, atTime(later, l).Check("k", 1).Allowed, "a hit within the limit is denied")
		}
	}
	atTime(noon+2*second, f).Step()
	expect(t, !atTime(later+10*ms, l).Check("k", 1).Allowed, "a hit beyond the limit passes")
	atTime(later+100*ms, f).Step()
	r := f.last()
	equal(t, r.Hits.Rules[0].Newest-r.Hits.Age[0], l.Rule().Window.Bucket(later), "reported in bucket")
}

// checkerOnTape is a checker on a tape, and its limiter, that has said hello at noon.
func checkerOnTape(t *testing.T, o Options, r rules.Rule) (*fleet, *Limiter) {
	t.Helper()
	f := unwelcomed(t, o, r)
	atTime(noon, f).Step()
	return f, limiter(t, f.Checker, "r")
}

// guess welcomes the checker by a time that may be off by a second.
func (f *fleet) guess(now int64, checkers uint32) {
	f.t.Helper()
	f.welcomed(now, now, &events.Welcome{Shards: 1, Time: now, Error: second, Checkers: checkers})
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
			f.join(now, 1, ahead)
		}
	}
	// The first sample, of offset 0, is still one of the eight; but all have the same round trip.
	for range 10 {
		now += second
		atTime(now, f).Step()
		f.join(now, 1, ahead)
	}
	atTime(now+10*second, f).Step()
	equal(t, f.Stats().ClockOffset, time.Duration(ahead), "offset in the end")
}

// TestABetterWelcomeCorrectsTheFirst: the first one was answered after 2 s, by an aggregator that
// knew the time no better; the second one proves it wrong. The clock steps at once, in either
// direction, and no hit is lost or counted twice.
func TestABetterWelcomeCorrectsTheFirst(t *testing.T) {
	for _, off := range []time.Duration{-900 * time.Millisecond, 900 * time.Millisecond} {
		for _, r := range []rules.Rule{
			rule("r", 100, time.Second, 1), rule("r", 100, time.Second, 4), rule("r", 100, time.Minute, 60),
			{Name: "r", Key: []string{"user"}, Limit: 100, Algorithm: rules.TokenBucket, Window: window.Shape{Length: time.Hour}},
		} {
			f, l := checkerOnTape(t, Options{HelloEvery: time.Second}, r)
			now := noon + 100*ms
			f.guess(now, 1)
			hit(l, now, "k", 7)
			atTime(now, f).Step() // reported by the guess
			hit(l, now+10*ms, "k", 3)
			for range 2 { // such a guess is compared soon
				now += 260 * ms
				atTime(now, f).Step()
				equal(t, f.lastHello().Sent, now, "time of the hello")
			}
			f.welcomed(now+10*ms, now, &events.Welcome{Shards: 1, Time: now + 5*ms + int64(off), Checkers: 1})
			now += 10 * ms
			equal(t, f.Stats().ClockOffset, off, "offset")
			// The seven that were reported are where the store has them: in short windows they may
			// have begun to leave.
			n, most := left(l, now, "k"), int64(90)
			if off > 0 && r.Window.Length == time.Second {
				most = 97
			}
			expect(t, n >= 90 && n <= most, "%v, %v: %d left after ten hits", off, r.Window, n)
			f.answer(now, 7)
			expect(t, left(l, now, "k") == n, "%v, %v: %d left after the answer, %d before", off, r.Window, left(l, now, "k"), n)
			for len(f.tape.reports) < 2 && now < noon+3*second {
				now += 50 * ms
				atTime(now, f).Step()
			}
			m := f.last()
			equal(t, hits(m)["k"], 3, "hits reported after the correction")
			bucket, right := m.Hits.Rules[0].Newest-m.Hits.Age[0], l.Rule().Window.Bucket(noon+110*ms+int64(off))
			expect(t, bucket >= right-1 && bucket <= right+1 && bucket <= l.Rule().Window.Bucket(now+int64(off)),
				"%v, %v: reported in bucket %d, want %d give or take one", off, r.Window, bucket, right)
		}
	}
}

// TestAClockFarAheadStepsBack if all of the last eight welcomes say so: slewing would take 20
// minutes, in which every hit would be refused as one of the future.
func TestAClockFarAheadStepsBack(t *testing.T) {
	for _, checkers := range []uint32{1, 8} { // among others, hits of a key far below its limit are deferred
		for _, r := range []rules.Rule{
			rule("r", 1000, time.Second, 1), rule("r", 1000, time.Minute, 60), rule("r", 1000, time.Hour, 1),
			{Name: "r", Key: []string{"user"}, Limit: 1000, Algorithm: rules.TokenBucket, Window: window.Shape{Length: 10 * time.Hour}},
		} {
			f, l := checkerOnTape(t, Options{HelloEvery: time.Second}, r)
			stats := func() RuleStats { return f.Stats().Rules[0] }
			f.join(noon, checkers, 0)
			now, charged := noon, int64(0)
			for i := range int64(8) {
				now = noon + (i+1)*second
				for _, n := range []int{5, 2} {
					atTime(now, f).Step()
					charged += int64(hit(l, now, "k", n))
					if stats().InFlight > 0 && (i < 7 || n == 5) { // the last report is in flight while the clock steps
						f.answer(now, charged-int64(n))
					}
					now += 60 * ms
				}
				f.join(now, checkers, -60*second)
			}
			equal(t, f.Stats().ClockOffset, -time.Minute, "offset after eight welcomes")
			begin, pending := l.Rule().Window.Bucket(now-60*second), stats().Pending
			expect(t, left(l, now, "k") <= 993, "%v: %d left after seven hits in this bucket", r.Window, left(l, now, "k"))
			if stats().InFlight > 0 {
				f.answer(now, charged-pending)
				expect(t, left(l, now, "k") <= 993, "%v: %d left after the answer", r.Window, left(l, now, "k"))
			}
			var sent []*events.Report
			for until := now + 110*ms; len(sent) == 0 && now < until; {
				now += 10 * ms
				sent = f.reportsAt(now)
			}
			m := f.last()
			expect(t, len(sent) == 1 && int64(hits(m)["k"]) == pending && pending > 0,
				"%v: %v reported after the step, pending %d", r.Window, hits(m), pending)
			for _, age := range m.Hits.Age {
				bucket := m.Hits.Rules[0].Newest - age
				expect(t, bucket >= begin-1 && bucket <= l.Rule().Window.Bucket(now-60*second),
					"%v: reported in bucket %d, where it was %d", r.Window, bucket, begin)
			}
			s := stats()
			expect(t, s.Charged == 56 && s.Lost == 0 && s.Overflow == 0 && s.Answered+s.InFlight+s.Pending == 56, "%v: %+v", r.Window, s)
		}
	}
}

// TestPermitsAfterAStepBack, to before their bucket's beginning: they are spent once, and reported
// in their bucket.
func TestPermitsAfterAStepBack(t *testing.T) {
	f, l := fleetAndLimiter(t, Options{HelloEvery: time.Second}, strictRule("r", 100, time.Hour, 1))
	now := noon
	look := func() {
		atTime(now, f).Step()
		f.join(now, 1, -30*second)
	}
	for i := range int64(7) {
		now = noon + (i+1)*second
		look()
	}
	atTime(now+ms, l).Check("k", 1)
	atTime(now+2*ms, f).Step()
	f.grants(now+3*ms, 0, 10, 10, 0)
	passed := hit(l, now+4*ms, "k", 6)
	equal(t, passed, 6, "passed of ten permits")
	now += second
	look()
	equal(t, f.Stats().ClockOffset, -30*time.Second, "offset")
	for now < noon+60*second {
		now += 100 * ms
		look()
		passed += hit(l, now, "k", 1)
		if f.Stats().Rules[0].InFlight > 0 {
			f.answer(now, int64(passed))
		}
	}
	equal(t, passed, 10, "passed of ten permits")
	reported, bucket := uint64(0), l.Rule().Window.Bucket(noon)
	for _, m := range f.tape.reports {
		reported += hits(m)["k"]
		for _, age := range m.Hits.Age {
			equal(t, m.Hits.Rules[0].Newest-age, bucket, "bucket of a report")
		}
	}
	equal(t, reported, 10, "reported")
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

// TestReportedHitsStayWhereTheStoreHasThem when the clock steps: the same totals, told once more,
// change nothing.
func TestReportedHitsStayWhereTheStoreHasThem(t *testing.T) {
	for _, off := range []int64{900 * ms, 1900 * ms, -900 * ms} {
		f, l := checkerOnTape(t, Options{HelloEvery: time.Second}, rule("r", 100, time.Minute, 60))
		now := noon + 100*ms
		f.guess(now, 1)
		hit(l, now, "k", 7)
		atTime(now, f).Step()
		f.answer(now+2*ms, 60) // others have 53
		equal(t, left(l, now+3*ms, "k"), 40, "left")
		now += 260 * ms
		atTime(now, f).Step()
		now += 10 * ms
		f.welcomed(now, now-10*ms, &events.Welcome{Shards: 1, Time: now - 5*ms + off, Checkers: 1})
		equal(t, f.Stats().ClockOffset, time.Duration(off), "offset")
		equal(t, left(l, now, "k"), 40, "left after the step")
		f.receive(now, events.KindAlarm, alarmOf(&l.core.Group, noon+100*ms, 1, "k", admitted(60)))
		equal(t, left(l, now, "k"), 40, "left after the same totals once more")
	}
	// A clock that has jumped ahead, and steps back after eight welcomes.
	f, l := checkerOnTape(t, Options{HelloEvery: time.Second}, rule("r", 1000, 10*time.Minute, 60))
	f.join(noon, 1, 0)
	now := noon + 100*ms
	hit(l, now, "k", 10)
	atTime(now, f).Step()
	f.answer(now+2*ms, 500)
	now += 60 * second
	for range 8 {
		now += second
		atTime(now, f).Step()
		f.join(now, 1, -60*second)
	}
	equal(t, f.Stats().ClockOffset, -time.Minute, "offset")
	equal(t, left(l, now, "k"), 500, "left after the step back")
	f.receive(now, events.KindAlarm, alarmOf(&l.core.Group, noon+100*ms, 1, "k", admitted(500)))
	equal(t, left(l, now, "k"), 500, "left after the same totals once more")
}

// TestStrictHitsPassAfterAStepBack: a request that named a bucket of the future was refused, and
// the next one names that of now.
func TestStrictHitsPassAfterAStepBack(t *testing.T) {
	f, l := fleetAndLimiter(t, Options{HelloEvery: time.Second}, strictRule("r", 6000, time.Minute, 60))
	now, sent, allowed := noon, 0, 0
	for now < noon+20*second {
		allowed += hit(l, now, "k", 1)
		now += 50 * ms
		atTime(now, f).Step()
		if now%second == 0 {
			f.join(now, 1, -60*second)
		}
		for ; sent < len(f.tape.leases); sent++ {
			m := f.tape.leases[sent]
			if m.Keys.Rules[0].Newest-m.Age[0] > l.Rule().Window.Bucket(now-55*second) {
				f.receive(now, events.KindGrant, &events.Grant{
					Epoch: m.Epoch, Shard: m.Shard, Sequence: m.Sequence, Error: "permits of a bucket too far in the future",
				})
				continue
			}
			f.grant(now, m, func(int) (uint64, time.Duration) { return 50, 0 })
		}
	}
	expect(t, allowed > 100, "%d hits have passed ten seconds after the step", allowed)
}

// setBack lets eight welcomes say that the clock is ahead, so that it steps back, and returns the
// time after that.
func (f *fleet) setBack(now, by int64, step func(now int64)) int64 {
	f.t.Helper()
	for range 8 {
		for range 20 {
			now += 50 * ms
			step(now)
		}
		f.join(now, 2, -by)
	}
	equal(f.t, f.Stats().ClockOffset, -time.Duration(by), "offset")
	return now
}

// TestSettlementsAfterAStepBack: those that wait for coverage are sent again after as long as
// before, and are not given up sooner.
func TestSettlementsAfterAStepBack(t *testing.T) {
	for _, by := range []int64{3600 * second, -3600 * second} {
		f, l := fleetAndLimiter(t, Options{HelloEvery: time.Second}, rule("r", 20, time.Hour, 1))
		mustSettle(t, f.Checker, noon, receipt(t, l, noon, "k", 5), 0)
		now, answered, sent := noon, 0, 0
		step := func(now int64) {
			atTime(now, f).Step()
			for ; answered < len(f.tape.reports); answered++ {
				sent += len(f.last().Settlements)
				m := f.refresh(make([]uint64, f.last().Hits.Keys())...)
				m.Settlements, m.Uncovered = uint32(len(f.last().Settlements)), []uint32{0}
				f.receive(now, events.KindRefresh, m)
			}
		}
		for ; now < noon+12*second; now += 50 * ms { // it waits for 5 s each time then
			step(now)
		}
		now = f.setBack(now, by, step)
		before := sent
		for until := now + 30*second; now < until; now += 50 * ms {
			step(now)
		}
		expect(t, sent > before+3, "a step back by %v: sent %d times within 30 s", time.Duration(by), sent-before)
		settlementStats(t, f.Checker, 1, 0, 0)
	}
}

// TestOlderAggregatorsAfterAStepBack: reports ask for refunds again after ten seconds.
func TestOlderAggregatorsAfterAStepBack(t *testing.T) {
	f, l := fleetAndLimiter(t, Options{HelloEvery: time.Second}, rule("r", 20, time.Hour, 1))
	f.alarmRows(noon, l, "k", admitted(5), refunded(1))
	atTime(noon, l).Check("k", 1)
	atTime(noon+50*ms, f).Step()
	equal(t, kindsOf(f.last()), "refunded k, k 1", "rows of the first report")
	to := events.Address{Kind: events.KindReport, Format: events.FormatRefunds}
	atTime(noon+51*ms, f).Receive(events.KindUnheard, []byte(to.String()))
	atTime(noon+52*ms, f).Step()
	equal(t, kindsOf(f.last()), "k 1", "rows of the repeated report, for an older aggregator")
	f.answer(noon+53*ms, 6)
	now := f.setBack(noon+second, 3600*second, func(now int64) { atTime(now, f).Step() }) + 12*second
	atTime(now, l).Check("k", 1)
	atTime(now+50*ms, f).Step()
	equal(t, kindsOf(f.last()), "refunded k, k 1", "rows after the step back")
}

// TestKeysLeaveAfterAStepBack: what waits to be evicted does not wait until the clock is where it
// was.
func TestKeysLeaveAfterAStepBack(t *testing.T) {
	f, l := fleetAndLimiter(t, Options{HelloEvery: time.Second}, rule("r", 1000, 30*time.Second, 1))
	f.join(noon, 2, 0)
	for i := range 40 {
		hit(l, noon, fmt.Sprint("k", i), 600)
	}
	atTime(noon+50*ms, f).Step()
	f.answerAll(noon+51*ms, 0, slices.Repeat([]uint64{600}, f.last().Hits.Keys())...)
	now := f.setBack(noon+second, 3600*second, func(now int64) { atTime(now, f).Step() })
	equal(t, f.Stats().LiveKeys, 40, "keys when the clock steps back")
	for until := now + 180*second; now < until; now += second {
		atTime(now, f).Step()
	}
	equal(t, f.Stats().LiveKeys, 0, "keys three minutes after the step back")
}
