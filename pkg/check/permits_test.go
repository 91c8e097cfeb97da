package check

import (
	"fmt"
	"github.com/offpath-io/offpath/pkg/check/internal/fleetstate"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/offpath-io/offpath/pkg/events"
)

func TestStrictSpendsWhatIsGranted(t *testing.T) {
	f, l := strictFleet(t, 10, time.Second)
	d := wantHit(t, l, noon, 2, false, "without a permit")
	expect(t, d.RetryAfter > 0 && d.RetryAfter <= 100*time.Millisecond && d.Freshness == Fresh, "without a permit: %+v", d)
	m := f.asks(1, leaseWish{want: 2})
	expect(t, string(m.Keys.KeyText) == "k" && m.Keys.Rules[0].Limit == 10, "asked %+v", m)
	f.grants(noon+3*ms, 0, 5, 5, 200*time.Millisecond)
	d = wantHit(t, l, noon+3*ms, 2, true, "with five permits")
	expect(t, d.Remaining == 3, "with five permits: %+v", d)
	f.pass(l, 4, 10, 3)
	d = wantHit(t, l, noon+4*ms, 1, false, "all are spent")
	expect(t, d.RetryAfter == 199*time.Millisecond, "retry after %v", d.RetryAfter)
	d = wantHit(t, l, noon+4*ms, 11, false, "a cost above the limit")
	expect(t, d.RetryAfter == Never, "a cost above the limit: %+v", d)
	atTime(noon+50*ms, f).Step()
	equal(t, hits(f.last())["k"], 5, "hits reported")
}

func TestStrictWithoutAFleet(t *testing.T) {
	c, l := checkerAndLimiter(t, Options{Link: new(tape)}, strictRule("r", 10, time.Second, 1))
	for at := noon; at < noon+2*second; at += 100 * ms {
		d := atTime(at, l).Check("k", 1)
		require(t, !d.Allowed && d.Freshness == Local, "before the first welcome: %+v", d)
		atTime(at, c).Step()
	}
	_, l = checkerAndLimiter(t, Options{}, strictRule("r", 10, time.Second, 1))
	equal(t, passes(l, noon, 20), 10, "hits that a local limiter lets pass, since it knows everything")
}

// TestPermitsEndWithTheirBucket, less the clock's error, which here is the margin alone. What is
// left is given back.
func TestPermitsEndWithTheirBucket(t *testing.T) {
	f, l := strictFleet(t, 10, time.Second)
	f.firstGrant(l, 8, 0)
	f.welcome(noon+990*ms, 1) // keeps the error small
	f.pass(l, 995, 1, 1)
	f.pass(l, 999, 3, 0) // within the clock's error of the end
	d := wantHit(t, l, noon+999*ms, 1, false, "at the end")
	expect(t, d.RetryAfter >= time.Millisecond, "retry after %v, before the next bucket", d.RetryAfter)
	f.pass(l, 1000, 3, 0) // in the next bucket
	f.asks(1001, leaseWish{want: 1, returned: 7, of: 1})
}

// TestPermitsEndAtAContradiction: a hello shows that the clock is behind, as after a suspend. What
// an earlier check has left to be taken without the lock ends by the error of now, too.
func TestPermitsEndAtAContradiction(t *testing.T) {
	f, l := strictFleet(t, 10, time.Second)
	f.firstGrant(l, 8, 0)
	f.welcome(noon+100*ms, 1)
	f.pass(l, 150, 2, 2)
	f.join(noon+160*ms, 1, 900*ms)
	f.pass(l, 170, 3, 0)
}

func TestIdlePermitsAreGivenBack(t *testing.T) {
	f, l := strictFleet(t, 10, time.Second)
	f.firstGrant(l, 4, 0)
	f.pass(l, 10, 1, 1)
	f.steps(10, 300, 10)
	f.wishes(leaseWish{known: 4, returned: 3})
	f.pass(l, 300, 3, 0)
	_, before := f.asked()
	f.grants(noon+310*ms, 0, 4, 4, 0)
	atTime(noon+320*ms, f).Step()
	f.wishes(leaseWish{want: 2, known: 4}) // for those denied just now, and returns nothing again
	_, n := f.asked()
	expect(t, n == before+1, "%d requests, want one", n-before)
}

// TestGrantOfAnOlderGeneration: a store that has lost its data since does not know of these
// permits.
func TestGrantOfAnOlderGeneration(t *testing.T) {
	f, l := strictFleet(t, 10, time.Second)
	atTime(noon, l).Check("k", 1)
	atTime(noon+ms, f).Step()
	f.receive(noon+ms, events.KindAlarm, &events.Alarm{Generation: 2, Version: 1, Totals: new(events.Table)})
	f.grants(noon+2*ms, 0, 3, 3, 0) // of generation 1
	f.pass(l, 3, 3, 0)
}

func TestSeveralRulesSpendTogether(t *testing.T) {
	f := newFleet(t, Options{}, strictRule("a", 10, time.Second, 1), strictRule("b", 5, time.Second, 1),
		rule("c", 100, time.Second, 1))
	decided(t, atTime(noon, f).Check(user("u"), 1), false, "without permits")
	m := f.asks(1, leaseWish{want: 1})
	require(t, m.Keys.Keys() == 2, "want one request of both keys: %+v", m)
	f.grantOne(noon+2*ms, "a", 3, 500*time.Millisecond)
	d := atTime(noon+3*ms, f).Check(user("u"), 1)
	expect(t, !d.Allowed && d.Rule == "b", "with permits of one rule only: %+v", d)
	equal(t, left(limiter(t, f.Checker, "a"), noon+3*ms, "u"), 3, "permits left of that rule")
	equal(t, left(limiter(t, f.Checker, "c"), noon+3*ms, "u"), 100, "left by the rule that is not strict")
	f.asks(4, leaseWish{want: 1})
	f.grantOne(noon+4*ms, "b", 2, 500*time.Millisecond)
	for i, want := range []bool{true, true, false} {
		d := atTime(noon+4*ms, f).Check(user("u"), 1)
		expect(t, d.Allowed == want, "request %d: %+v", i+1, d)
	}
	for name, want := range map[string]int64{"a": 1, "b": 0} {
		equal(t, left(limiter(t, f.Checker, name), noon+4*ms, "u"), want, "permits left of rule %s", name)
	}
}

// TestStopGivesPermitsBack: when Run returns, every permit that was not spent has been given back,
// even those that were still on their way when it was told to stop.
func TestStopGivesPermitsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 2500
		f, stop, done := runFleet(t, Options{Tuning: tuning{ReportKeys: 700}}, strictRule("r", 1000, time.Hour, 1))
		l := limiter(t, f.Checker, "r")
		granted, returned, answered := map[string]uint64{}, map[string]uint64{}, 0
		answer := func() { // by what is wanted
			f.reporter.Lock() // which Run sends under
			requests := f.tape.leases[answered:]
			f.reporter.Unlock()
			for _, m := range requests {
				answered++
				text, values := m.Keys.KeyText, m.Keys.Value
				f.grant(fleetstate.SystemTime(), m, func(i int) (uint64, time.Duration) {
					key := string(text[:m.Keys.KeyLength[i]])
					text = text[len(key):]
					for range m.Keys.KeyCells[i] {
						returned[key], values = values[0], values[1:] // there is but one bucket
					}
					granted[key] = max(granted[key], m.Known[i]+m.Want[i])
					return granted[key], 0
				})
			}
		}
		for i := range keys {
			l.Check(fmt.Sprint("key", i), 1) // refused, and asked for
		}
		for len(granted) < keys-500 {
			time.Sleep(2 * time.Millisecond)
			synctest.Wait()
			answer()
		}
		stop()
		if err := f.ends(done, answer); err != nil {
			t.Error(err)
		}
		expect(t, len(granted) == keys && maps.Equal(granted, returned),
			"of %d keys %d asked for permits, %d gave some back", keys, len(granted), len(returned))
		d := l.Check("key0", 1)
		expect(t, !d.Allowed, "a permit is left after Run")
	})
}
