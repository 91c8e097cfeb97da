package check

import (
	"testing"
	"time"
)

// TestStrictLimitLowered: permits granted within the higher limit are given back, at hand or still
// on their way, and no more is spent than is granted within the lower one.
func TestStrictLimitLowered(t *testing.T) {
	f, l := strictFleet(t, 10, time.Second)
	f.firstGrant(l, 8, 0)
	f.pass(l, 3, 3, 3)
	reload(t, f.Checker, noon+4*ms, strictRule("r", 5, time.Second, 1))
	f.pass(l, 4, 3, 0) // by permits of the old limit
	m := f.asks(5, leaseWish{want: 2, known: 8, returned: 5})
	expect(t, m.Keys.Rules[0].Limit == 5 && m.Keys.Rules[0].Revision == 1, "asked by %v", m.Keys.Rules)
	reload(t, f.Checker, noon+6*ms, strictRule("r", 4, time.Second, 1)) // before the answer
	f.grants(noon+7*ms, 0, 10, 10, 900*time.Millisecond)
	f.pass(l, 8, 3, 0)                          // by permits asked for within the old limit
	f.wishes(leaseWish{known: 10, returned: 7}) // the 2 new ones, too
	f.grants(noon+10*ms, 0, 11, 11, 900*time.Millisecond)
	f.pass(l, 11, 3, 1) // granted by the new limit
	f.Step(noon + 60*ms)
	equal(t, hits(f.last())["k"], 4, "hits reported")
}

// TestStrictLimitRaised: a key without room asks again at once, with a check or without, even if
// the answer that there is no room comes after the change.
func TestStrictLimitRaised(t *testing.T) {
	f, l := strictFleet(t, 2, time.Minute)
	f.firstGrant(l, 2, 30*time.Second)
	f.pass(l, 3, 2, 2)
	d := wantHit(t, l, noon+4*ms, 1, false, "blocked")
	require(t, d.RetryAfter >= 20*time.Second, "it is not blocked: %+v", d)
	f.asksNothing(5, 6, 1)
	reload(t, f.Checker, noon+6*ms, strictRule("r", 9, time.Minute, 1))
	m := f.asks(6, leaseWish{want: 4, known: 2})
	require(t, m.Keys.Rules[0].Limit == 9, "asked by %v", m.Keys.Rules)
	d = wantHit(t, l, noon+6*ms, 1, false, "no answer yet")
	expect(t, d.RetryAfter <= time.Second && d.Limit == 9, "blocked still: %+v", d)
	reload(t, f.Checker, noon+7*ms, strictRule("r", 20, time.Minute, 1))
	_, before := f.asked()
	f.grants(noon+8*ms, 0, 2, 2, 30*time.Second)
	m, n := f.asked()
	expect(t, n == before+1 && m.Want[0] != 0 && m.Keys.Rules[0].Limit == 20, "%d requests more, the last %+v", n-before, m)
}

// TestStrictLimitUnchanged: the same limit in a new set leaves permits where they are.
func TestStrictLimitUnchanged(t *testing.T) {
	f, l := strictFleet(t, 10, time.Second)
	f.firstGrant(l, 8, 0)
	reload(t, f.Checker, noon+3*ms, strictRule("r", 10, time.Second, 1), rule("s", 1, time.Second, 1))
	f.pass(l, 3, 10, 8)
}

// TestStrictRuleGoes: its permits are given back at once, and if it comes back after its limiter
// has gone, no permit is spent a second time.
func TestStrictRuleGoes(t *testing.T) {
	without := rule("s", 10, time.Hour, 1)
	f := newFleet(t, Options{}, strictRule("r", 10, time.Hour, 1), without)
	f.firstGrant(limiter(t, f.Checker, "r"), 8, 0)
	f.pass(limiter(t, f.Checker, "r"), 3, 2, 2)
	reload(t, f.Checker, noon+4*ms, without)
	f.asks(5, leaseWish{known: 8, returned: 6})
	f.grants(noon+6*ms, 0, 8, 8, 0)
	f.Step(noon + 60*ms)
	f.answer(noon+61*ms, 2)
	at := int64(100)
	for ; len(f.behind.formers.retired) > 0; at += 1000 {
		require(t, at <= 120_000, "it does not go: %+v", f.Stats())
		f.Step(noon + at*ms)
	}
	collected(t, f.Checker)
	for range 3 { // nothing is forgotten before the bucket is over
		reload(t, f.Checker, noon+at*ms, without)
	}
	reload(t, f.Checker, noon+at*ms, strictRule("r", 10, time.Hour, 1), without)
	l := limiter(t, f.Checker, "r")
	f.pass(l, at, 1, 0)
	f.asks(at+1, leaseWish{}) // nothing before it knows what it had
	f.grants(noon+(at+2)*ms, 0, 8, 8, 0)
	f.pass(l, at+3, 5, 0)
}
