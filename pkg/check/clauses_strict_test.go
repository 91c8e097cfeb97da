package check

import (
	"context"
	"github.com/offpath-io/offpath/pkg/check/internal/fleetstate"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

// grantedOf is a fleet's checker with the strict rule "r", changed, and permits of key k.
func grantedOf(t *testing.T, change func(*rules.Rule), granted int64) (*fleet, *Limiter) {
	t.Helper()
	r := strictRule("r", 100, time.Minute, 1)
	change(&r)
	f, l := fleetAndLimiter(t, Options{}, r)
	f.firstGrant(l, granted, 0)
	return f, l
}

func classed(class string) identity.Attributes {
	return identity.Attributes{{Name: "user", Value: "k"}, {Name: "class", Value: class}}
}

// TestStrictPriority: permits at hand are not for callers whose share is used up.
func TestStrictPriority(t *testing.T) {
	r := strictRule("r", 100, time.Minute, 1)
	r.Priority = rules.Priority{By: "class", Shares: map[string]float64{"low": 0.3, "default": 1}}
	inBubble(t, Options{}, []rules.Rule{r}, func(t *testing.T, f *fleet) {
		limiter(t, f.Checker, "r").Check("k", 1)
		f.settled()
		f.grants(fleetstate.SystemTime(), 0, 90, 90, 0)
		decided(t, f.Check(classed("low"), 30), true, "its share")
		d := f.Check(classed("low"), 1)
		expect(t, !d.Allowed && d.Remaining == 0 && d.RetryAfter >= 50*time.Second,
			"%+v: its share is used up until these hits leave the window", d)
		for range 40 { // by allowances, too
			decided(t, f.Check(classed("high"), 1), true, "of another class")
		}
		decided(t, f.Check(classed("low"), 1), false, "its share is used up")
		acquired := begin(t.Context(), f.Checker, Request{Attributes: classed("low"), Cost: 1})
		wantOutcome(t, acquired, "denied", "to wait would be in vain")
		decided(t, f.Check(classed("high"), 20), true, "the rest")
	})
}

// TestShadowRulesNeedNoPermits: a shadow rule that would deny is no reason not to wait for permits
// of another rule, and nobody waits for it.
func TestShadowRulesNeedNoPermits(t *testing.T) {
	shadow := rule("s", 1, time.Minute, 1)
	shadow.Shadow = true
	list := []rules.Rule{strictRule("r", 100, time.Minute, 1), shadow}
	inBubble(t, Options{}, list, func(t *testing.T, f *fleet) {
		atTime(fleetstate.SystemTime(), limiter(t, f.Checker, "s")).try(Record, "k", 5)
		waiting := begin(t.Context(), f.Checker, Request{Attributes: classed(""), Cost: 1})
		wantOutcome(t, waiting, "waits", "without a permit")
		f.settled()
		f.grants(fleetstate.SystemTime(), 0, 1, 1, 0)
		d := wantOutcome(t, waiting, "passes", "with one permit, of the other rule")
		expect(t, d.Shadow == "s", "%+v", d)
	})
}

// TestStrictElastic: permits reach up to the most, but are spent beyond the limit only with room.
func TestStrictElastic(t *testing.T) {
	r, load := strictRule("r", 100, time.Minute, 1), rule("load", 10, time.Second, 1)
	r.Throttle = rules.Throttle{Kind: rules.Elastic, UpTo: 2, While: "load", Below: 0.5}
	load.Key, load.Algorithm = nil, rules.FixedWindow
	f, l := fleetAndLimiter(t, Options{}, r, load)
	f.firstGrant(l, 150, 0)
	atTime(noon, limiter(t, f.Checker, "load")).try(Record, "", 9)
	f.pass(l, 3, 200, 100)
	f.pass(l, 1003, 200, 50) // the window of load is over
}

// TestStrictShadow: nobody waits for permits of a rule that never denies.
func TestStrictShadow(t *testing.T) {
	f, l := grantedOf(t, func(r *rules.Rule) { r.Shadow = true }, 2)
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // so that it would be a denial if it waited
	for i, want := range []string{"", "", "r"} {
		d := atTime(noon+3*ms, f).Check(classed(""), 1)
		expect(t, d.Allowed && d.Shadow == want, "hit %d: %+v", i, d)
	}
	r, err := f.Wait(ctx, Request{Attributes: classed("")})
	expect(t, r.Allowed && r.Shadow == "r" && err == nil, "%+v, %v", r, err)
	if s := f.Stats().Rules[0]; s.Charged != 2 || s.Denied != 3 { // one when there were none yet
		t.Errorf("%+v", s)
	}
	d := atTime(noon+3*ms, l).Check("k", 1)
	expect(t, d.Allowed && d.Shadow == "r" && d.Rule == "r" && d.Limit == 100 && d.Status == 0, "asked alone: %+v", d)
}

// TestStrictPeek: a peek spends no permit, and asks for none.
func TestStrictPeek(t *testing.T) {
	f, l := grantedOf(t, func(*rules.Rule) {}, 12)
	now := noon + 3*ms
	passes(l, now, 2) // leaves an allowance
	atTime(now, f).Step()
	_, before := f.asked()
	for range 3 {
		d := atTime(now, l).try(Peek, "k", 10).Decision
		expect(t, d.Allowed && d.Remaining == 10, "%+v", d)
		d = atTime(now, l).try(Peek, "k", 11).Decision
		expect(t, !d.Allowed && d.Status == 429 && d.Remaining == 10 && d.RetryAfter > 0, "%+v", d)
		decided(t, atTime(now, l).try(Peek, "other", 1).Decision, false, "another key")
	}
	expect(t, f.host.Table.Load(&l.core.Group, "other") == nil && f.Checker.host.Asks.Head.Load() == nil,
		"a peek has made a counter, or asked")
	atTime(now+ms, f).Step()
	_, after := f.asked()
	expect(t, after == before, "%d requests", after-before)
	equal(t, passes(l, now+ms, 20), 10, "spent of 10 permits")
}

// TestStrictRecord: recorded hits spend the permits at hand, and those that come.
func TestStrictRecord(t *testing.T) {
	f, l := grantedOf(t, func(*rules.Rule) {}, 10)
	now := noon + 3*ms
	atTime(now, l).try(Record, "k", 14)
	equal(t, passes(l, now, 5), 0, "hits that pass")
	atTime(now+ms, f).Step()
	f.grants(now+2*ms, 0, 16, 16, 0)
	equal(t, passes(l, now+3*ms, 10), 2, "spent of 16 - 14 permits")
	s := f.Stats().Rules[0]
	expect(t, s.Charged == 16, "%+v", s)
}

// TestStrictLimitLowered: permits granted within the higher limit are given back, at hand or still
// on their way, and no more is spent than is granted within the lower one.
func TestStrictLimitLowered(t *testing.T) {
	f, l := strictFleet(t, 10, time.Second)
	f.firstGrant(l, 8, 0)
	reload(t, f.Checker, noon+3*ms, strictRule("r", 10, time.Second, 1), rule("s", 1, time.Second, 1))
	f.pass(l, 3, 3, 3) // by the same limit in a new set
	reload(t, f.Checker, noon+4*ms, strictRule("r", 5, time.Second, 1))
	f.pass(l, 4, 3, 0) // by permits of the old limit
	m := f.asks(5, leaseWish{want: 2, known: 8, returned: 5})
	expect(t, m.Keys.Rules[0].Limit == 5 && m.Keys.Rules[0].Revision == 2, "asked by %v", m.Keys.Rules)
	reload(t, f.Checker, noon+6*ms, strictRule("r", 4, time.Second, 1)) // before the answer
	f.grants(noon+7*ms, 0, 10, 10, 900*time.Millisecond)
	f.pass(l, 8, 3, 0)                          // by permits asked for within the old limit
	f.wishes(leaseWish{known: 10, returned: 7}) // the 2 new ones, too
	f.grants(noon+10*ms, 0, 11, 11, 900*time.Millisecond)
	f.pass(l, 11, 3, 1) // granted by the new limit
	atTime(noon+60*ms, f).Step()
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
	atTime(noon+60*ms, f).Step()
	f.answer(noon+61*ms, 2)
	at := int64(100)
	for ; len(f.retirees.retired) > 0; at += 1000 {
		require(t, at <= 120_000, "it does not go: %+v", f.Stats())
		atTime(noon+at*ms, f).Step()
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
