package check

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/rules"
)

// TestLimitOfASlidingWindow plays a script by the rule of two counters.
func TestLimitOfASlidingWindow(t *testing.T) {
	c := newChecker(t, Options{}, rule("r", 3, time.Minute, 1))
	l := limiter(t, c, "r")
	for _, step := range []struct {
		at      int64 // seconds after noon
		cost    int64
		allowed bool
		left    int64
		retry   time.Duration
		why     string
	}{
		{0, 1, true, 2, 0, "the first of three"},
		{10, 0, true, 1, 0, "a cost below 1 counts as 1"},
		{20, 2, false, 1, 70 * time.Second, "2 do not fit; at 13:01:30 half of the 2 is left, and 1+2 fit"},
		{20, 4, false, 1, Never, "4 never fit"},
		{30, 1, true, 0, 0, "the third"},
		{40, 1, false, 0, 40 * time.Second, "3·40/60 + 1 = 3 at 20 s into the next minute"},
		{79, 1, false, 0, time.Second, "3·41/60 + 1 = 3.05"},
		{80, 1, true, 0, 0, "3·40/60 + 1 = 3"},
	} {
		d := l.CheckAt(noon+step.at*second, "k", step.cost)
		d.Reset = 0
		want := Decision{
			Allowed: step.allowed, Rule: "r", Limit: 3, Remaining: step.left, RetryAfter: step.retry, Freshness: Local,
		}
		if !want.Allowed {
			want.Status = 429
		}
		if d != want {
			t.Errorf("at %d s, cost %d (%s): %+v", step.at, step.cost, step.why, d)
		}
	}
	if d := l.CheckAt(noon+80*second, "other", 1); !d.Allowed || d.Reset != 100*time.Second {
		t.Errorf("another key: got %+v, want it allowed and out of every window in 40+60 s", d)
	}
}

// TestAllRulesMustHaveRoom: 10 per minute together with 500 per hour on one key.
func TestAllRulesMustHaveRoom(t *testing.T) {
	c := newChecker(t, Options{}, rule("minute", 10, time.Minute, 60), rule("hour", 500, time.Hour, 60))
	allowed := 0
	for minute := range int64(55) {
		for range 11 { // every 62 s, when those of the minute before have left the window
			d := c.CheckAt(noon+minute*62*second, user("kristie"), 1)
			if d.Allowed {
				allowed++
			} else if want := map[bool]string{false: "minute", true: "hour"}[allowed == 500]; d.Rule != want {
				t.Fatalf("minute %d, after %d hits: denied by %s, want %s", minute, allowed, d.Rule, want)
			}
		}
	}
	for _, r := range c.Stats().Rules {
		if allowed != 500 || r.Charged != 500 {
			t.Errorf("%d hits passed in an hour, want 500; %s was charged %d", allowed, r.Rule, r.Charged)
		}
	}
}

// TestDeniedHitsAreChargedToNoRule, and rules whose attributes are missing do not apply.
func TestDeniedHitsAreChargedToNoRule(t *testing.T) {
	wide, narrow := rule("wide", 100, time.Minute, 1), rule("narrow", 2, time.Minute, 1)
	narrow.Key = []string{"ip"}
	c := newChecker(t, Options{}, wide, narrow)
	for i, want := range []bool{true, true, false, false} {
		if d := c.CheckAt(noon, request("user=u ip=192.0.2.1"), 1); d.Allowed != want {
			t.Fatalf("hit %d: %+v", i, d)
		}
	}
	if got := left(limiter(t, c, "wide"), noon, "u"); got != 98 {
		t.Errorf("the wide rule has %d left, want 100-2", got)
	}
	if d := c.CheckAt(noon, user("u"), 1); !d.Allowed || d.Rule != "wide" || d.Remaining != 97 {
		t.Errorf("without an address only the wide rule applies: %+v", d)
	}
}

// TestMissingAttributes skip the rule, are denied, or make one entity of all requests without them.
func TestMissingAttributes(t *testing.T) {
	skip, deny, empty := rule("skip", 5, time.Minute, 1), rule("deny", 5, time.Minute, 1), rule("empty", 1, time.Minute, 1)
	deny.OnMissing, empty.OnMissing = rules.Deny, rules.Empty
	deny.Key = []string{"token"}
	if d := newChecker(t, Options{}, skip).CheckAt(noon, nil, 1); !d.Allowed || d.Rule != "" {
		t.Errorf("skip: got %+v, want no rule", d)
	}
	if d := newChecker(t, Options{}, skip, deny).CheckAt(noon, user("u"), 1); d.Allowed || d.Rule != "deny" || d.RetryAfter != Never {
		t.Errorf("deny: got %+v", d)
	}
	c := newChecker(t, Options{}, empty)
	if one, two := c.CheckAt(noon, nil, 1), c.CheckAt(noon, nil, 1); !one.Allowed || two.Allowed {
		t.Errorf("empty: got %+v, and %+v", one, two)
	}
}

// TestConcurrentChecksShareTheLimitExactly: however many goroutines there are, and allowances are withdrawn.
func TestConcurrentChecksShareTheLimitExactly(t *testing.T) {
	const limit, keys, tries = 1000, 3, 700
	c := newChecker(t, Options{}, rule("r", limit, time.Hour, 1), rule("second", limit/2, time.Hour, 60))
	var admitted [keys]atomic.Int64
	var checking, stepping sync.WaitGroup
	var done atomic.Bool
	stepping.Go(func() {
		for now := noon; !done.Load(); now = min(now+ms, noon+60*second) {
			c.behind.step(now, true)
		}
	})
	names := [keys]string{"a", "b", "c"}
	for g := range 8 {
		checking.Go(func() {
			for i := range tries {
				k := (g + i) % keys
				cost := int64(1 + i%3)
				var d Decision
				if k == 0 { // this one by both rules
					d = c.CheckAt(noon, user(names[k]), cost)
				} else {
					d = limiter(t, c, "r").CheckAt(noon, names[k], cost)
				}
				if d.Allowed {
					admitted[k].Add(cost)
				}
			}
		})
	}
	checking.Wait()
	done.Store(true)
	stepping.Wait()
	for k, want := range [keys]int64{limit / 2, limit, limit} {
		if got := admitted[k].Load(); got > want || got < want-2 {
			t.Errorf("key %s: %d hits passed, the limit is %d", names[k], got, want)
		}
	}
	rules := c.Stats().Rules
	charged := rules[0].Charged + rules[1].Charged
	if want := 2*admitted[0].Load() + admitted[1].Load() + admitted[2].Load(); charged != want {
		t.Errorf("%d hits charged, %d admitted", charged, want)
	}
}

func TestBadOptionsAreRefused(t *testing.T) {
	set := parse(t, "rules: [{name: r, key: [user], limit: 1/second}]")
	for _, o := range []Options{
		{FlushEvery: time.Microsecond}, {FlushFloor: time.Microsecond}, {HelloEvery: time.Millisecond},
		{FlushEvery: 10 * time.Millisecond, FlushFloor: 11 * time.Millisecond},
		{MaxLiveKeys: -1}, {ReportKeys: -1}, {ReportKeys: 1 << 20}, {ReportTimeout: 1}, {DrainTimeout: -1},
		{StaleAfter: -1}, {StaleAfter: 11}, {ShareAfter: 2}, {ShareAfter: 301}, {OutageAfter: 9}, {ExpectCheckers: -1}, {QuietFor: -1},
	} {
		o.Rules = set
		if _, err := New(o); err == nil {
			t.Errorf("accepted: %+v", o)
		}
	}
	if _, err := New(Options{}); err == nil {
		t.Error("accepted: no rules")
	}
	if _, ok := ofYAML(t, Options{}, "rules: [{name: r, key: [user], limit: 1/second}]").Limiter("other"); ok {
		t.Error("found a limiter for a rule that is not there")
	}
}
