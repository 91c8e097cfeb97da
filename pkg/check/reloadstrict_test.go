package check

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

// TestStrictLimitLowered: what was granted within the higher limit is given back, whether it is there or still on its
// way, and no more is spent than is granted within the lower one.
func TestStrictLimitLowered(t *testing.T) {
	f := newFleet(t, Options{}, strictRule("r", 10, time.Second, 1))
	l := limiter(t, f.Checker, "r")
	passes(l, noon, 1)
	f.Step(noon + ms)
	f.grants(noon+2*ms, 0, 8, 8, 0)
	if n := passes(l, noon+3*ms, 3); n != 3 {
		t.Fatalf("%d hits pass", n)
	}
	reload(t, f.Checker, noon+4*ms, strictRule("r", 5, time.Second, 1))
	if n := passes(l, noon+4*ms, 3); n != 0 {
		t.Errorf("%d hits pass by permits of the old limit", n)
	}
	f.Step(noon + 5*ms)
	m, _ := f.asked()
	if len(m.Keys.Value) != 1 || m.Keys.Value[0] != 5 || m.Want[0] == 0 || m.Keys.Rules[0].Limit != 5 || m.Keys.Rules[0].Revision != 1 {
		t.Errorf("want 5 given back, and some asked for: %+v", m)
	}
	reload(t, f.Checker, noon+6*ms, strictRule("r", 4, time.Second, 1)) // before the answer
	f.grants(noon+7*ms, 0, 10, 10, 900*time.Millisecond)
	if n := passes(l, noon+8*ms, 3); n != 0 {
		t.Errorf("%d hits pass by permits that were asked for within the old limit", n)
	}
	f.Step(noon + 9*ms)
	if m, _ = f.asked(); m.Keys.Value[0] != 7 {
		t.Errorf("want the 2 new ones given back too: %+v", m)
	}
	f.grants(noon+10*ms, 0, 11, 11, 900*time.Millisecond)
	if n := passes(l, noon+11*ms, 3); n != 1 {
		t.Errorf("%d hits pass, want the one granted by the new limit", n)
	}
	f.Step(noon + 60*ms)
	if got := hits(f.last())["k"]; got != 4 {
		t.Errorf("%d hits are reported, want the 4 that passed", got)
	}
}

// TestStrictLimitRaised: a key that was told that there is no room asks again at once, without a check and
// with one, and also if it is told so after the change, in answer to a request of before.
func TestStrictLimitRaised(t *testing.T) {
	f := newFleet(t, Options{}, strictRule("r", 2, time.Minute, 1))
	l := limiter(t, f.Checker, "r")
	passes(l, noon, 1)
	f.Step(noon + ms)
	f.grants(noon+2*ms, 0, 2, 2, 30*time.Second)
	passes(l, noon+3*ms, 2)
	if d := l.CheckAt(noon+4*ms, "k", 1); d.Allowed || d.RetryAfter < 20*time.Second {
		t.Fatalf("it is not blocked: %+v", d)
	}
	f.Step(noon + 5*ms)
	_, before := f.asked()
	reload(t, f.Checker, noon+6*ms, strictRule("r", 9, time.Minute, 1))
	f.Step(noon + 6*ms)
	m, n := f.asked()
	if n != before+1 || m.Want[0] == 0 || m.Keys.Rules[0].Limit != 9 {
		t.Fatalf("%d requests more, the last %+v", n-before, m)
	}
	if d := l.CheckAt(noon+6*ms, "k", 1); d.RetryAfter > time.Second || d.Limit != 9 {
		t.Errorf("it says still to come later: %+v", d)
	}
	reload(t, f.Checker, noon+7*ms, strictRule("r", 20, time.Minute, 1))
	f.grants(noon+8*ms, 0, 2, 2, 30*time.Second)
	f.Step(noon + 9*ms)
	if m, n = f.asked(); n != before+2 || m.Want[0] == 0 || m.Keys.Rules[0].Limit != 20 {
		t.Errorf("%d requests more, the last %+v", n-before, m)
	}
}

// TestStrictLimitUnchanged: a set that says the same leaves permits where they are.
func TestStrictLimitUnchanged(t *testing.T) {
	f := newFleet(t, Options{}, strictRule("r", 10, time.Second, 1))
	l := limiter(t, f.Checker, "r")
	passes(l, noon, 1)
	f.Step(noon + ms)
	f.grants(noon+2*ms, 0, 8, 8, 0)
	reload(t, f.Checker, noon+3*ms, strictRule("r", 10, time.Second, 1), rule("s", 1, time.Second, 1))
	if n := passes(l, noon+3*ms, 10); n != 8 {
		t.Errorf("%d hits pass, want 8", n)
	}
}

// TestStrictRuleGoes: its permits are given back at once, and if it comes back, after its limiter has gone, nothing that
// the store tells of is spent a second time.
func TestStrictRuleGoes(t *testing.T) {
	f := newFleet(t, Options{}, strictRule("r", 10, time.Hour, 1), rule("s", 10, time.Hour, 1))
	passes(limiter(t, f.Checker, "r"), noon, 1)
	f.Step(noon + ms)
	f.grants(noon+2*ms, 0, 8, 8, 0)
	passes(limiter(t, f.Checker, "r"), noon+3*ms, 2)
	reload(t, f.Checker, noon+4*ms, rule("s", 10, time.Hour, 1))
	f.Step(noon + 5*ms)
	m, n := f.asked()
	if len(m.Keys.Value) != 1 || m.Keys.Value[0] != 6 {
		t.Fatalf("want 6 given back: %+v", m)
	}
	f.grants(noon+6*ms, 0, 8, 8, 0)
	f.Step(noon + 60*ms)
	f.answer(noon+61*ms, 2)
	now := noon + 100*ms
	for ; len(f.behind.formers.retired) > 0; now += second {
		if now > noon+120*second {
			t.Fatalf("it does not go: %+v", f.Stats())
		}
		f.Step(now)
	}
	collected(t, f.Checker)
	for range 3 { // nothing is forgotten before the bucket is over
		reload(t, f.Checker, now, rule("s", 10, time.Hour, 1))
	}
	reload(t, f.Checker, now, strictRule("r", 10, time.Hour, 1), rule("s", 10, time.Hour, 1))
	l := limiter(t, f.Checker, "r")
	passes(l, now, 1)
	f.Step(now + ms)
	if m, n2 := f.asked(); n2 == n || m.Want[0] != 0 {
		t.Fatalf("it asks for permits before it knows what it had: %+v", m)
	}
	f.grants(now+2*ms, 0, 8, 8, 0)
	if n := passes(l, now+3*ms, 5); n != 0 {
		t.Errorf("%d hits pass by permits of its first life", n)
	}
}

// TestAcquireUnderNewRules changes the rules while a caller waits.
func TestAcquireUnderNewRules(t *testing.T) {
	kristie := identity.Attributes{{Name: "user", Value: "k"}}
	for _, test := range []struct {
		why  string
		then []rules.Rule
		want func(*Decision) bool // nil: it waits on
	}{
		{"the rule has gone", []rules.Rule{rule("s", 5, time.Minute, 1)},
			func(d *Decision) bool { return d.Allowed && d.Rule == "s" && d.Remaining == 2 }},
		{"it is not strict any more", []rules.Rule{rule("r", 5, time.Minute, 1)},
			func(d *Decision) bool { return d.Allowed && d.Rule == "r" }},
		{"the cost can never pass now", []rules.Rule{strictRule("r", 2, time.Minute, 1)},
			func(d *Decision) bool { return !d.Allowed && d.RetryAfter == Never && d.Limit == 2 }},
		{"another one denies", []rules.Rule{strictRule("r", 10, time.Minute, 1), rule("s", 1, time.Minute, 1)},
			nil}, // nobody wakes it: r is as it was
		{"a higher limit", []rules.Rule{strictRule("r", 20, time.Minute, 1)}, nil},
	} {
		t.Run(test.why, func(t *testing.T) {
			inBubble(t, Options{}, []rules.Rule{strictRule("r", 10, time.Minute, 1)}, func(t *testing.T, f *fleet) {
				ctx, stop := context.WithCancel(context.Background())
				defer stop()
				done := make(chan outcome, 1)
				go func() {
					d, err := f.Acquire(ctx, kristie, 3)
					done <- outcome{d, err}
				}()
				f.settled()
				reload(t, f.Checker, ownTime(), test.then...)
				switch o := ended(done); {
				case test.want == nil && o != nil:
					t.Errorf("it does not wait: %+v", o)
				case test.want != nil && (o == nil || o.err != nil || !test.want(&o.d)):
					t.Errorf("%+v", o)
				}
				if test.want != nil {
					return
				}
				f.settled()
				f.grants(ownTime(), 0, 5, 5, 0)
				synctest.Wait()
				o := ended(done)
				if o == nil {
					f.settled()
					f.grants(ownTime(), 0, 5, 5, 0)
					o = ended(done)
				}
				if last := test.then[len(test.then)-1]; o == nil || o.d.Allowed != (last.Limit >= 3) || o.d.Limit != last.Limit {
					t.Errorf("with permits: %+v", o)
				}
			})
		})
	}
}
