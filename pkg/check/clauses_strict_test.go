package check

import (
	"context"
	"slices"
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
	f, _ := grantedOf(t, func(r *rules.Rule) {
		r.Priority = rules.Priority{By: "class", Shares: map[string]float64{"low": 0.3, "default": 1}}
	}, 90)
	now := noon + 3*ms
	check := func(class string, cost int64, allowed bool) Decision {
		t.Helper()
		d := f.CheckAt(now, classed(class), cost)
		if d.Allowed != allowed {
			t.Errorf("cost %d of class %s: %+v", cost, class, d)
		}
		return d
	}
	check("low", 30, true)
	if d := check("low", 1, false); d.Remaining != 0 || d.RetryAfter < 50*time.Second {
		t.Errorf("%+v: its share is used up until these hits leave the window", d)
	}
	for range 40 { // by allowances, too
		check("high", 1, true)
	}
	check("low", 1, false)
	if d, lacks, _ := waitsFor(f, classed("low"), now); d.Allowed || lacks {
		t.Errorf("%+v: to wait would be in vain", d)
	}
	check("high", 20, true)
}

// waitsFor decides as Acquire does: whether permits are all that is missing, and of which rules.
func waitsFor(f *fleet, attrs identity.Attributes, now int64) (d Decision, lacks bool, of []string) {
	a := new(asking)
	a.match(f.program.Load(), attrs, now, 1, charging)
	a.lock(now)
	a.ask(&d, now)
	if lacks = a.lacksPermits(); lacks {
		w := f.behind.leases.newWaiter(1)
		a.join(w)
		for _, s := range w.spots {
			of = append(of, s.cell.limiter.name)
		}
		w.leave()
	}
	a.conclude(false, false, now)
	a.unlock()
	return d, lacks, of
}

// TestShadowRulesNeedNoPermits: a shadow rule that would deny is no reason not to wait for permits
// of another rule, and nobody waits for it.
func TestShadowRulesNeedNoPermits(t *testing.T) {
	shadow := rule("s", 1, time.Minute, 1)
	shadow.Shadow = true
	f := newFleet(t, Options{}, strictRule("r", 100, time.Minute, 1), shadow)
	limiter(t, f.Checker, "s").RecordAt(noon, "k", 5)
	d, lacks, of := waitsFor(f, classed(""), noon)
	if d.Allowed || d.Shadow != "s" || !lacks || !slices.Equal(of, []string{"r"}) {
		t.Errorf("%+v, waits %v for %v", d, lacks, of)
	}
}

// TestStrictElastic: permits reach up to the most, but are spent beyond the limit only with room.
func TestStrictElastic(t *testing.T) {
	use := 0.9
	r := strictRule("r", 100, time.Minute, 1)
	r.Throttle = rules.Throttle{Kind: rules.Elastic, UpTo: 2, Signal: "cpu", Below: 0.5}
	f, l := fleetAndLimiter(t, Options{Signals: map[string]func() float64{"cpu": func() float64 { return use }}}, r)
	f.firstGrant(l, 150, 0)
	f.pass(l, 3, 200, 100)
	use = 0.4
	f.pass(l, 3, 200, 50)
}

// TestStrictShadow: nobody waits for permits of a rule that never denies.
func TestStrictShadow(t *testing.T) {
	f, l := grantedOf(t, func(r *rules.Rule) { r.Shadow = true }, 2)
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // so that it would be a denial if it waited
	for i, want := range []string{"", "", "r"} {
		if d := f.CheckAt(noon+3*ms, classed(""), 1); !d.Allowed || d.Shadow != want {
			t.Errorf("hit %d: %+v", i, d)
		}
	}
	if d, err := f.Acquire(ctx, classed(""), 1); !d.Allowed || d.Shadow != "r" || err != nil {
		t.Errorf("%+v, %v", d, err)
	}
	if s := f.Stats().Rules[0]; s.Charged != 2 || s.Denied != 3 { // one when there were none yet
		t.Errorf("%+v", s)
	}
	if d := l.CheckAt(noon+3*ms, "k", 1); !d.Allowed || d.Shadow != "r" || d.Rule != "r" || d.Limit != 100 || d.Status != 0 {
		t.Errorf("asked alone: %+v", d)
	}
}

// TestStrictPeek: a peek spends no permit, and asks for none.
func TestStrictPeek(t *testing.T) {
	f, l := grantedOf(t, func(*rules.Rule) {}, 12)
	now := noon + 3*ms
	passes(l, now, 2) // leaves an allowance
	f.Step(now)
	_, before := f.asked()
	for range 3 {
		if d := l.PeekAt(now, "k", 10); !d.Allowed || d.Remaining != 10 {
			t.Errorf("%+v", d)
		}
		if d := l.PeekAt(now, "k", 11); d.Allowed || d.Status != 429 || d.Remaining != 10 || d.RetryAfter <= 0 {
			t.Errorf("%+v", d)
		}
		if d := l.PeekAt(now, "other", 1); d.Allowed {
			t.Errorf("%+v", d)
		}
	}
	if f.cells.load(l, "other") != nil || f.behind.leases.asks.head.Load() != nil {
		t.Error("a peek has made a cell, or asked")
	}
	f.Step(now + ms)
	if _, after := f.asked(); after != before {
		t.Errorf("%d requests", after-before)
	}
	if n := passes(l, now+ms, 20); n != 10 {
		t.Errorf("%d of 10 permits can be spent", n)
	}
}

// TestStrictRecord: recorded hits spend the permits at hand, and those that come.
func TestStrictRecord(t *testing.T) {
	f, l := grantedOf(t, func(*rules.Rule) {}, 10)
	now := noon + 3*ms
	l.RecordAt(now, "k", 14)
	if n := passes(l, now, 5); n != 0 {
		t.Errorf("%d pass", n)
	}
	f.Step(now + ms)
	f.grants(now+2*ms, 0, 16, 16, 0)
	if n := passes(l, now+3*ms, 10); n != 2 {
		t.Errorf("%d of 16 - 14 permits can be spent", n)
	}
	if s := f.Stats().Rules[0]; s.Charged != 16 {
		t.Errorf("%+v", s)
	}
}
