package check

import (
	"github.com/offpath-io/offpath/pkg/check/internal/fleetstate"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/check/internal/forecast"
)

// Forecasts in a checker: which messages they learn from, and what they let checks do without the
// lock.

// TestUnheardHitsAreExpected: totals of a calm key are complete up to its last normal round, those
// of an urgent key up to the last fast round. An alarm of a fast round in between tells nothing of
// checkers that did not report.
func TestUnheardHitsAreExpected(t *testing.T) {
	require(t, forecast.FullInterval%(32*ms) == 0 && noon%forecast.FullInterval == 0, "the moments of these tests are not those of rounds")
	for _, test := range []struct {
		why         string
		start       int64 // of the total, of 100,000
		busy        bool  // this checker flushes in each fast round
		least, most int64 // hits expected unheard, 12 ms after the fast round and 28 ms after the normal round
	}{
		{"calm: all since the normal round but for those reported", 40_000, false, 2200, 2800},
		{"urgent: all since the fast round", 57_000, false, 600, 1300},
		{"calm, where all report in each fast round: all since that", 40_000, true, 600, 1300},
	} {
		f, l := newFleetOf(t, 2, Options{HelloEvery: time.Hour}, 100_000, time.Minute)
		if test.busy {
			f.host.Rounds.Apart.Store(ms)
		}
		total := test.start
		for at := noon; at <= noon+320*ms; at += 32 * ms { // 100 hits per ms, elsewhere
			total += 3200
			f.alarmMade(at+ms, at, l, "k", total)
		}
		total += 100
		f.alarmMade(noon+337*ms, noon+336*ms, l, "k", total)
		o, room := outlookOf(l, noon+348*ms)
		require(t, room == 100_000-total, "%s: room for %d, want %d", test.why, room, 100_000-total)
		const margin = 300 // to the limit, which the outlook keeps
		got := room - int64(o.Free) - margin
		expect(t, got >= test.least && got <= test.most,
			"%s: %d hits are expected unheard, want %d to %d", test.why, got, test.least, test.most)
	}
}

// outlookOf is the outlook of key k, and the room by what is known.
func outlookOf(l *Limiter, now int64) (forecast.Outlook, int64) {
	c := l.core.Group.Lookup([]byte("k")).Lock()
	defer c.Unlock()
	room, at := c.Room(l.core.Group.Limits.Load(), now)
	o, _ := c.Look(l.core.Group.Limits.Load(), at)
	return o, room
}

// wantDemand fails the test unless so many hits of key k are expected of all callers, per ms.
func wantDemand(t testing.TB, l *Limiter, now int64, least, most float64) {
	t.Helper()
	o, _ := outlookOf(l, now)
	expect(t, o.Demand*1e6 >= least && o.Demand*1e6 <= most, "%v hits per ms, want %v to %v", o.Demand*1e6, least, most)
}

// TestDeniedHitsAreDemand: denied hits make one demand with admitted ones, and take no room.
func TestDeniedHitsAreDemand(t *testing.T) {
	f, l := newFleetOf(t, 2, Options{HelloEvery: time.Hour}, 1000, time.Second)
	for i := range int64(20) {
		f.alarmRows(noon+i*8*ms, l, "k", admitted(500+8*i), denied(100+32*i))
	}
	wantDemand(t, l, noon+153*ms, 4.5, 5.3) // one is admitted per ms, and four are denied
	wantLeft(t, l, noon+153*ms, 1000-500-8*19, "denied hits take no room")
	// In the next bucket the denied ones of the last are none of this.
	f.alarm(noon+second+ms, 1, l, "k", 5)
	wantDemand(t, l, noon+second+2*ms, 0, 5.2)
	for i := range int64(20) {
		f.alarmRows(noon+second+i*8*ms, l, "k", admitted(8*i), denied(32*i))
	}
	wantDemand(t, l, noon+second+153*ms, 4.5, 5.3)
}

// TestAnswersBringDeniedHits as alarms do.
func TestAnswersBringDeniedHits(t *testing.T) {
	f, l := newFleetOf(t, 2, Options{HelloEvery: time.Hour}, 100, time.Second)
	f.alarm(noon, 1, l, "k", 100)
	now := noon
	for i := uint64(1); i <= 12; i++ { // of ten hits per ms two come here
		for end := now + 50*ms; now < end; now += ms / 2 {
			atTime(now, l).Check("k", 1)
		}
		atTime(now, f).Step()
		f.answerRows(now+ms, 500*i, 100)
	}
	wantDemand(t, l, now+2*ms, 8, 12)
}

// TestFarFromTheLimitNoLockIsTaken: there checks have an allowance in spite of the forecast; not
// for long, and not for hits of which only a part may pass.
func TestFarFromTheLimitNoLockIsTaken(t *testing.T) {
	for _, test := range []struct {
		why          string
		limit, total int64
		least, most  uint64  // hits
		until        float64 // ms after the hit, at the most
	}{
		{"half of the limit is free, a hundred come per ms", 100_000, 50_000, 1000, 4000, 70},
		{"near the limit a part passes", 100_000, 98_900, 0, 0, 0},
		{"a small limit, of which no part of a hit can pass: beyond a quarter each is looked at", 50, 20, 0, 0, 0.1},
	} {
		f, l := newFleetOf(t, 2, Options{HelloEvery: time.Hour}, test.limit, time.Minute)
		now := noon
		for i := range int64(11) {
			now = noon + i*8*ms
			f.alarmMade(now, now, l, "k", test.total-(10-i)*min(800, test.total/20))
		}
		for n := 0; n < 100 && !atTime(now, l).Check("k", 1).Allowed; n++ { // until one leaves an allowance
		}
		c := counterOf(l, "k")
		hits, until := c.Allowance.Load(), float64(c.Until.Load()-now)/1e6
		expect(t, hits >= test.least && hits <= test.most,
			"%s: an allowance of %d, want %d to %d", test.why, hits, test.least, test.most)
		expect(t, test.until < 1 || until > 1 && until <= test.until, "%s: until %v ms later", test.why, until)
	}
}

func TestAllowancesEndWithTheirBucket(t *testing.T) {
	f, l := newFleetOf(t, 2, Options{HelloEvery: time.Hour}, 100_000, time.Second)
	f.alarm(noon+990*ms, 1, l, "k", 50_000)
	atTime(noon+990*ms, l).Check("k", 1)
	c := counterOf(l, "k")
	expect(t, c.Allowance.Load() != 0 && c.Until.Load() == noon+second,
		"an allowance of %d until %d ms after noon", c.Allowance.Load(), (c.Until.Load()-noon)/ms)
}

// TestRunsOfDenialsAreShort: the room may grow meanwhile; and they end with the bucket.
func TestRunsOfDenialsAreShort(t *testing.T) {
	f, l := newFleetOf(t, 2, Options{HelloEvery: time.Hour}, 100, time.Second)
	f.alarm(noon, 1, l, "k", 100)
	for _, test := range []struct{ at, least, most float64 }{{10, 11, 14}, {500, 501, 504}, {998, 1000, 1000}} {
		now := noon + int64(test.at)*ms
		d := atTime(now, l).Check("k", 1)
		c := counterOf(l, "k")
		until := float64(c.Until.Load()-noon) / 1e6
		expect(t, !d.Allowed && c.Allowance.Load() == counter.Blocked|counter.LeftMask && until >= test.least && until <= test.most,
			"at %v ms: a run until %v, word %x: %+v", test.at, until, c.Allowance.Load(), d)
		d = atTime(now+ms/2, l).Check("k", 1)
		expect(t, !d.Allowed && d.RetryAfter > 0 && d.RetryAfter <= 4*time.Millisecond,
			"at %v ms, within the run: %+v", test.at, d)
	}
	// No run is longer than as many as would be denied.
	f, l = newFleetOf(t, 2, Options{HelloEvery: time.Hour}, 100_000, time.Minute)
	f.alarm(noon, 1, l, "k", 98_900)
	passed := passes(l, noon+ms, 1000)
	// The part falls from about a half, since the hits that pass take room.
	part := l.ahead("k").Part
	expect(t, float64(passed) >= 1000*part && passed <= 550 && part >= 0.1,
		"%d of 1000 hits passed, of which in the end a part of %v may", passed, part)
}

// TestAlarmRenewsTheForecast, though no hit comes here.
func TestAlarmRenewsTheForecast(t *testing.T) {
	f, l := newFleetOf(t, 2, Options{HelloEvery: time.Hour}, 100_000, time.Minute)
	for i := range int64(11) {
		f.alarmMade(noon+i*8*ms, noon+i*8*ms, l, "k", 40_000+i*800)
	}
	a := l.ahead("k")
	hits, span := a.Ease()
	outlookOf(l, noon+80*ms)
	again, more := a.Ease()
	expect(t, again == hits && more == span,
		"just after the word %d hits in %d ns, after a look %d in %d", hits, span, again, more)
}

// TestShareIsLearntFromReports: once it is known which part of the hits comes here, a surge here is
// one everywhere.
func TestShareIsLearntFromReports(t *testing.T) {
	f, l := newFleetOf(t, 2, Options{HelloEvery: time.Hour}, 1e6, time.Minute)
	total, now := int64(300_000), noon
	f.alarm(now, 1, l, "k", total)
	for now < noon+2*second { // a quarter of all hits comes here
		passes(l, now+3*ms, 10)
		now += 8 * ms
		f.host.Want(fleetstate.NextFast)
		atTime(now, f).Step()
		total += 40
		f.answerRows(now+ms, uint64(total))
	}
	passes(l, now+5*ms, 500)
	wantDemand(t, l, now+6*ms, 1500./6, 2500./6) // about four times as many as here
}

// TestForecastsOutliveWrongTimes: a message of a clock far ahead does not make all later ones old.
func TestForecastsOutliveWrongTimes(t *testing.T) {
	for _, made := range []int64{noon - ms, noon + 3600*second, 1<<63 - 1, -1 << 63} {
		f, l := newFleetOf(t, 4, Options{}, 1000, time.Minute)
		f.alarmMade(noon, noon-ms, l, "k", 400)
		f.alarmMade(noon+ms, made, l, "k", 401)
		for i := int64(1); i < 20; i++ {
			at := noon + i*20*ms
			f.alarmMade(at, at-ms, l, "k", 400+10*i)
		}
		o := l.ahead("k").Look(noon+400*ms, forecast.Window{Limit: 1000, Free: 400}, forecast.Fleet{Checkers: 4, FastInterval: 4 * ms})
		if perSecond := o.Demand * 1e9; perSecond < 300 || perSecond > 800 { // 500
			t.Errorf("after a message made at %d: %.0f hits per second are expected", made, perSecond)
		}
	}
}
