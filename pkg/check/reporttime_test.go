package check

import (
	"fmt"
	"github.com/offpath-io/offpath/pkg/check/internal/fleetstate"
	"testing"
	"time"
)

// reportOf steps every 10 ms, and returns how long after from a report of the key is made.
func (f *fleet) reportOf(key string, from, until int64) time.Duration {
	f.t.Helper()
	for now := from; now <= until; now += 10 * ms {
		for _, r := range f.reportsAt(now) {
			if hits(r)[key] > 0 {
				return time.Duration(now - from)
			}
		}
	}
	f.t.Fatalf("no report of %q in %v", key, time.Duration(until-from))
	return 0
}

// TestDeferredKeysWait: hits of a key far below its limit wait for a tenth of its window, or what
// QuietFor says.
func TestDeferredKeysWait(t *testing.T) {
	for _, tt := range []struct {
		window, quietFor time.Duration
		limit            int64
		unheard          bool // nobody has told of the key yet
		least, most      time.Duration
	}{
		{time.Second, 0, 1000, false, 90 * time.Millisecond, 100 * time.Millisecond},
		{time.Hour, 0, 1000, false, 900 * time.Millisecond, time.Second},
		{time.Minute, time.Hour, 1000, false, 5 * time.Second, 6 * time.Second},
		{time.Hour, 0, 1000, true, 0, 50 * time.Millisecond},
		{time.Minute, 2 * time.Second, 1000, false, 1800 * time.Millisecond, 2 * time.Second},
		{time.Minute, time.Millisecond, 1000, false, 0, 50 * time.Millisecond},
		{500 * time.Millisecond, 0, 1000, false, 0, 50 * time.Millisecond}, // a tenth of it is no longer than the timer
		{time.Minute, 0, 10, false, 0, 50 * time.Millisecond},              // each hit counts
	} {
		f, l := newFleetOf(t, 4, Options{QuietFor: tt.quietFor}, tt.limit, tt.window)
		if !tt.unheard {
			inform(l, "k")
		}
		atTime(noon, l).Check("k", 1)
		at := f.reportOf("k", noon, noon+20*second)
		expect(t, at >= tt.least && at <= tt.most,
			"%d in %v, QuietFor %v: reported after %v, want %v to %v", tt.limit, tt.window, tt.quietFor, at, tt.least, tt.most)
	}
}

// TestDeferralEnds: an alarm, or checks that bring the key to the forecast threshold, end the
// deferral.
func TestDeferralEnds(t *testing.T) {
	for name, end := range map[string]func(f *fleet, l *Limiter, now int64){
		"alarm far from the limit": func(f *fleet, l *Limiter, now int64) { f.alarm(now, 1, l, "k", 100) },
		"alarm near the limit":     func(f *fleet, l *Limiter, now int64) { f.alarm(now, 1, l, "k", 600) },
		"many hits":                func(_ *fleet, l *Limiter, now int64) { hit(l, now, "k", 70) },
	} {
		f, l := newFleetOf(t, 4, Options{QuietFor: 10 * time.Second}, 1000, time.Minute)
		inform(l, "k")
		atTime(noon, l).Check("k", 1)
		f.steps(0, 1000, 10)
		require(t, len(f.tape.reports) == 0, "%s: reported before", name)
		end(f, l, noon+second)
		at := f.reportOf("k", noon+second, noon+2*second)
		expect(t, at <= 40*time.Millisecond, "%s: reported after %v", name, at)
	}
}

// TestDeferredKeysHoldUpNobody: however many keys are deferred, a key near its limit is reported at
// the next fast round.
func TestDeferredKeysHoldUpNobody(t *testing.T) {
	f, l := newFleetOf(t, 8, Options{}, 1000, time.Hour)
	for i := range 20_000 {
		inform(l, fmt.Sprint(i))
		atTime(noon, l).Check(fmt.Sprint(i), 1)
	}
	hit(l, noon, "hot", 600)
	at := f.reportOf("hot", noon+ms, noon+second)
	expect(t, at <= 50*time.Millisecond, "reported after %v", at)
}

// TestACounterWaitsOnceToLeave, however often it is reported.
func TestACounterWaitsOnceToLeave(t *testing.T) {
	f, l := newFleetOf(t, 2, Options{HelloEvery: time.Hour, Tuning: tuning{NoForecast: true}}, 1000, time.Minute)
	for i := range int64(20) {
		atTime(noon+i*50*ms, l).Check("k", 1)
		atTime(noon+(i+1)*50*ms, f).Step()
		f.answer(noon+(i+1)*50*ms, i+1)
	}
	fresh, known := f.host.Ageing.Len()
	equal(t, fresh+known, 1, "times that one counter waits to leave")
}

// TestLateAnswerMakesUpForAMissedRound: what waited for it goes with the next round, when all
// checkers report; if none was missed, it goes at once.
func TestLateAnswerMakesUpForAMissedRound(t *testing.T) {
	for _, missed := range []bool{false, true} {
		f, l := newFleetOf(t, 2, Options{HelloEvery: time.Hour, Tuning: tuning{NoForecast: true}}, 1000, time.Minute)
		sent := func(want int64, why string) {
			t.Helper()
			equal(t, f.Stats().ReportsSent, want, "missed %v: reports %s", missed, why)
		}
		step := func(at, next int64) {
			t.Helper()
			got := atTime(noon+at*ms, f).Step().UnixNano()
			expect(t, got == noon+next*ms, "the next step is due %v ms after noon, want %d", float64(got-noon)/1e6, next)
		}
		f.host.Rounds.Trip.Store(ms) // so far they came soon
		atTime(noon+2*ms, l).Check("k", 1)
		f.host.Want(fleetstate.NextFast)
		atTime(noon+4*ms, f).Step()
		atTime(noon+5*ms, l).Check("k", 1)
		if !missed {
			atTime(noon+54*ms, f).Step() // by the timer: this is no round
			sent(1, "before the answer")
			f.answer(noon+55*ms, 1)
			sent(2, "after it")
			continue
		}
		f.host.Want(fleetstate.NextFast)
		step(6, 8)
		atTime(noon+8*ms, f).Step() // the report in flight is not answered yet
		sent(1, "before the answer")
		f.answer(noon+9*ms, 1)
		sent(1, "after it")
		step(9, 12) // the next fast round
		atTime(noon+12*ms, f).Step()
		got, _ := rows(f.last(), false)
		expect(t, got["k"] == 1, "the last report has %v", got)
		atTime(noon+13*ms, l).Check("k", 1)
		atTime(noon+62*ms, f).Step()
		f.answer(noon+63*ms, 2)
		sent(3, "once it is made up for")
	}
}
