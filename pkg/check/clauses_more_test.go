package check

import (
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// TestRecord: what is recorded counts whatever there is room for, for those whom the rule counts at all.
func TestRecord(t *testing.T) {
	c := ofYAML(t, Options{}, `
rules:
  - {name: failures, key: [user], limit: 3/minute, algorithm: fixed_window, cost: n, allow: {user: [root]}, deny: {user: [eve]}, overrides: [{match: {tier: gold}, limit: 2x}]}
  - {name: all, key: [], limit: 2/minute, algorithm: fixed_window, shadow: true}
`)
	for _, r := range []string{"user=a", "user=a n=4", "user=root", "user=eve", "user=a tier=gold n=2", "user=a n=x"} {
		c.RecordAt(noon, request(r), 1)
	}
	limiter(t, c, "failures").RecordAt(noon, "b", 0)
	want := map[string]int64{"failures": 1 + 4 + 1 + 1, "failures/tier=gold": 2, "all": 6}
	for _, r := range c.Stats().Rules {
		if r.Charged != want[r.Rule] || r.Allowed != 0 || r.Denied != 0 {
			t.Errorf("%+v, want %d charged", r, want[r.Rule])
		}
	}
	if r := c.Stats().Rules[0]; r.BadCosts != 1 {
		t.Errorf("%+v", r)
	}
	for r, allowed := range map[string]bool{"user=a": false, "user=b": true, "user=a tier=gold": true, "user=root": true, "user=c": true} {
		if d := c.PeekAt(noon, request(r), 1); d.Allowed != allowed {
			t.Errorf("%s: %+v", r, d)
		}
	}
	if l := limiter(t, c, "failures"); left(l, noon, "b") != 2 {
		t.Error("a cost below 1 counts as 1")
	}
	if l := limiter(t, c, "failures/tier=gold"); left(l, noon, "a") != 4 || l.Rule().Limit != 6 {
		t.Errorf("the override's own counter has %d left", left(l, noon, "a"))
	}
}

// TestDeniedHitsCannotOverflow: however many are charged beyond the limit, counts stay within what can be counted.
func TestDeniedHitsCannotOverflow(t *testing.T) {
	r := rule("r", 10, time.Minute, 1)
	r.Count = rules.All
	c := newChecker(t, Options{}, r)
	l := limiter(t, c, "r")
	for range 20 {
		if l.CheckAt(noon, "k", window.MaxCount).Allowed {
			t.Fatal("passed")
		}
		l.RecordAt(noon, "k", window.MaxCount)
	}
	if s := c.Stats().Rules[0]; s.Charged != window.MaxCount || s.Denied != 20 {
		t.Errorf("%+v", s)
	}
}

// TestDeniedHitsKeepTheCallerOut: without `count: all` who goes on gets in again when the first hits leave the window.
func TestDeniedHitsKeepTheCallerOut(t *testing.T) {
	for _, count := range []rules.Count{rules.Admitted, rules.All} {
		r := rule("r", 10, time.Minute, 60)
		r.Count = count
		c := newChecker(t, Options{}, r)
		l, passed := limiter(t, c, "r"), 0
		for i := range int64(3000) {
			if l.CheckAt(noon+i*100*ms, "k", 1).Allowed {
				passed++
			}
		}
		if want := map[rules.Count]int{rules.Admitted: 50, rules.All: 10}[count]; passed != want {
			t.Errorf("%v: %d pass in 5 minutes, want %d", count, passed, want)
		}
	}
}

func TestStatsOfClauses(t *testing.T) {
	c := ofYAML(t, Options{}, `
rules:
  - {name: dark, key: [user], limit: 2/minute, shadow: true, deny: {user: [eve]}}
  - {name: r, key: [user], limit: 5/minute, cost: n, overrides: [{match: {tier: gold}, limit: 2x}]}
`)
	for _, r := range []string{"user=a", "user=a", "user=a n=x", "user=a n=4", "user=eve n=6", "user=a tier=gold n=10"} {
		c.CheckAt(noon, request(r), 1)
	}
	c.Step(noon)
	want := map[string]RuleStats{
		"dark":        {Allowed: 2, Denied: 4, Charged: 2}, // of those who pass, and would not have
		"r":           {Allowed: 3, Denied: 2, Charged: 3, BadCosts: 1},
		"r/tier=gold": {Allowed: 1, Charged: 10},
	}
	if c := ofYAML(t, Options{}, "rules: [{name: r, key: [user], limit: 5/minute, cost: n}]"); c.CheckAt(noon, request("user=a n=x"), 1).Allowed {
		if got := c.Stats().Rules[0]; got.BadCosts != 1 {
			t.Errorf("one rule alone: %+v", got)
		}
	}
	for _, got := range c.Stats().Rules {
		w := want[got.Rule]
		if got.Allowed != w.Allowed || got.Denied != w.Denied || got.Charged != w.Charged || got.BadCosts != w.BadCosts {
			t.Errorf("%+v, want %+v", got, w)
		}
	}
}

func TestSignalsMissing(t *testing.T) {
	set, err := rules.Parse([]byte("rules: [{name: r, key: [user], limit: 9/minute, throttle: elastic, elastic: {up_to: 200%, while: {signal: cpu, below: 50%}}}]"))
	if err != nil {
		t.Fatal(err)
	}
	const want = `rule "r": elastic: there is no signal "cpu"`
	if _, err := New(Options{Rules: set}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v", err)
	}
	c := newChecker(t, Options{}, rule("other", 1, time.Minute, 1))
	if err := c.SetRules(set, 1); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v", err)
	}
	if limiter(t, c, "other"); c.Revision() != 0 {
		t.Error("the good set is not in force any more")
	}
	nan := Options{Rules: set, Signals: map[string]func() float64{"cpu": math.NaN}}
	if c, err = New(nan); err != nil {
		t.Fatal(err)
	}
	if d := limiter(t, c, "r").CheckAt(noon, "k", 10); d.Allowed {
		t.Errorf("a signal that says nothing makes no room: %+v", d)
	}
}

// TestAskedAlone: a limiter that is asked by key decides as for a request without attributes.
func TestAskedAlone(t *testing.T) {
	c := ofYAML(t, Options{}, `
rules:
  - {name: classes, key: [user], limit: 10/minute, priority: {by: class, shares: {high: 100%, default: 50%}}}
  - {name: stretch, key: [user], limit: 10/minute, throttle: elastic, elastic: {up_to: 200%, while: {rule: all, below: 50%}}}
  - {name: stuck, key: [user], limit: 10/minute, throttle: elastic, elastic: {up_to: 200%, while: {rule: stretch, below: 50%}}}
  - {name: all, key: [], limit: 30/minute}
`)
	for name, want := range map[string]int64{"classes": 5, "stretch": 20, "stuck": 10} {
		if got := limiter(t, c, name).PeekAt(noon, "k", 1).Remaining; got != want {
			t.Errorf("%s leaves %d, want %d", name, got, want)
		}
	}
	limiter(t, c, "all").RecordAt(noon, "", 15)
	if got := limiter(t, c, "stretch").PeekAt(noon, "k", 1).Remaining; got != 10 {
		t.Errorf("stretch leaves %d: half of all is used", got)
	}
}

// TestShadowAskedAlone: a shadow limiter that is asked by key is named by every door.
func TestShadowAskedAlone(t *testing.T) {
	c := ofYAML(t, Options{}, `rules: [{name: r, key: [user], limit: 5/minute, shadow: true}]`)
	l := limiter(t, c, "r")
	want := l.PeekAt(noon, "k", 9)
	checked, acquired := l.CheckAt(noon, "k", 9), Decision{}
	token, _ := l.CheckTokenAt(noon, "k", 9)
	if want.Rule != "r" || want.Shadow != "r" || want.Reset != 2*time.Minute || checked != want || token != want {
		t.Errorf("peeked %+v\nchecked %+v\nfor a token %+v", want, checked, token)
	}
	l.CheckAt(noon, "k", 2)
	if d := l.PeekAt(noon, "k", 2); d.Remaining != 3 {
		t.Errorf("peeked %+v, want 3 left", d)
	}
	strict := newFleet(t, Options{}, rules.Rule{
		Name: "s", Key: []string{"user"}, Limit: 5, Window: window.Shape{Length: time.Minute, Buckets: 1},
		Enforcement: rules.Strict, OnOutage: rules.Closed, Shadow: true,
	})
	l = limiter(t, strict.Checker, "s")
	acquired, err := l.Acquire(t.Context(), "k", 9)
	if err != nil || acquired.Reset <= 0 || acquired.Rule != "s" || acquired.Limit != 5 || !acquired.Allowed {
		t.Errorf("acquired %+v, %v", acquired, err)
	}
	acquired, _, err = l.AcquireToken(t.Context(), "k", 9)
	if err != nil || acquired.Reset <= 0 || acquired.Rule != "s" || acquired.Limit != 5 || !acquired.Allowed {
		t.Errorf("acquired for a token %+v, %v", acquired, err)
	}
}

// TestNoRoomForKeys: without room for a key, OnOutage decides whatever other clauses there are; and shadow rules still deny nothing.
func TestNoRoomForKeys(t *testing.T) {
	c := ofYAML(t, Options{MaxLiveKeys: 1}, `
rules:
  - {name: open, key: [user], limit: 10/minute, count: all, priority: {by: class, shares: {default: 50%}}}
  - {name: dark, match: {dark: "*"}, key: [user], limit: 10/minute, on_outage: closed, shadow: true}
  - {name: closed, match: {closed: "*"}, key: [user], limit: 10/minute, on_outage: closed, throttle: soft, soft: {exceed: 10%}}
`)
	c.CheckAt(noon, request("user=first"), 1)
	for r, want := range map[string]Decision{
		"user=a":          {Allowed: true, Rule: "open", Limit: 5},
		"user=a dark=1":   {Allowed: true, Rule: "open", Limit: 5, Shadow: "dark"},
		"user=a closed=1": {Rule: "closed", Limit: 11, RetryAfter: 50 * time.Millisecond, Status: 429},
	} {
		for _, d := range []Decision{c.PeekAt(noon, request(r), 1), c.CheckAt(noon, request(r), 1)} {
			if d.Reset = 0; d != want {
				t.Errorf("%s: %+v, want %+v", r, d, want)
			}
		}
	}
	if d := c.CheckAt(noon, request("user=a"), 6); d.Allowed || d.RetryAfter != Never {
		t.Errorf("more than its share: %+v", d)
	}
	c.RecordAt(noon, request("user=a"), 6)
	if s := c.Stats().Rules[0]; s.Overflow != 1+1+6 || s.Charged != s.Overflow+1 {
		t.Errorf("%+v", s)
	}
}

func TestClausesDoNotAllocate(t *testing.T) {
	c := ofYAML(t, Options{}, everything)
	attrs := request("user=a class=analytics tokens=3")
	for name, f := range map[string]func(){
		"by all":    func() { c.CheckAt(noon, attrs, 1) },
		"alone":     func() { limiter(t, c, "stretch").CheckAt(noon, "k", 1) },
		"recording": func() { c.RecordAt(noon, attrs, 1) },
	} {
		if n := testing.AllocsPerRun(1000, f); n != 0 && !raceDetector {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// TestClausesAtOnce: goroutines check, peek, record and explain, while reports are made and answered and rules change to the same; each hit is
// charged once.
func TestClausesAtOnce(t *testing.T) {
	list, err := rules.Parse([]byte(everything))
	if err != nil {
		t.Fatal(err)
	}
	s, c := newStore(t, Options{}, func() (of []rules.Rule) {
		for _, r := range list.Rules() {
			of = append(of, *r)
		}
		return of
	}()...)
	var clock, allowed, recorded atomic.Int64
	clock.Store(noon)
	var asking, behind sync.WaitGroup
	done := make(chan struct{})
	behind.Go(func() {
		for i := uint64(0); ; i++ {
			select {
			case <-done:
				return
			default:
			}
			now := clock.Add(ms / 4)
			c.Step(now)
			for _, a := range s.answers(t) {
				c.Receive(now, events.KindRefresh, a)
			}
			if i%64 == 0 {
				if err := c.SetRulesAt(now, list, i); err != nil {
					t.Error(err)
				}
			}
		}
	})
	callers := []string{"user=a", "user=b class=critical", "user=a class=analytics", "user=b tokens=3"}
	for g := range 4 {
		asking.Go(func() {
			for i := range 3000 {
				r := request(callers[(g+i)%len(callers)])
				switch i % 8 {
				case 5:
					c.PeekAt(clock.Load(), r, 1)
				case 6:
					c.RecordAt(clock.Load(), r[:1], 1)
					recorded.Add(1)
				case 7:
					c.ExplainAt(clock.Load(), r, 1)
				default:
					if c.CheckAt(clock.Load(), r, 1).Allowed {
						allowed.Add(1)
					}
				}
			}
		})
	}
	asking.Wait()
	close(done)
	behind.Wait()
	s.settled(t, c, clock.Load())
	for _, got := range c.Stats().Rules {
		want := allowed.Load() + recorded.Load()
		if got.Rule == "plain" && got.Charged != want || got.Charged != got.Answered {
			t.Errorf("%+v, want %d charged", got, want)
		}
	}
}

func TestPartsOfLimits(t *testing.T) {
	for _, test := range []struct {
		limit int64
		part  float64
		want  int64
	}{
		{100, 0.29, 29}, {1000, 1.15, 1150}, {10, 1.15, 11}, {3, 0.5, 1}, {1, 1, 1}, {100, 1.1, 110}, {7, 0.3, 2}, {1e14, 1.1, 1.1e14},
	} {
		if got := part(test.limit, test.part); got != test.want {
			t.Errorf("%g of %d: %d, want %d", test.part, test.limit, got, test.want)
		}
	}
}

// TestRecordIsHeardOf: others hear soon of what brings a key near its limit, even if it was only recorded.
func TestRecordIsHeardOf(t *testing.T) {
	_, c := newStore(t, Options{}, rule("r", 50, time.Second, 1))
	l := limiter(t, c, "r")
	if l.RecordAt(noon, "k", 24); c.rounds.wanted.Load() != 0 {
		t.Error("there is no hurry")
	}
	if l.RecordAt(noon, "k", 1); c.rounds.wanted.Load() != nextTick {
		t.Error("half of the limit is used up")
	}
}

// TestOutageGoesByOnOutage: then nobody knows what is beyond the limit.
func TestOutageGoesByOnOutage(t *testing.T) {
	c := ofYAML(t, Options{}, "rules: [{name: r, key: [user], limit: 10/minute, throttle: soft, soft: {exceed: 10%}}, {name: dark, key: [user], limit: 10/minute, on_outage: closed, shadow: true}]")
	c.freshness.Store(uint32(Outage))
	if d := c.CheckAt(noon, request("user=a"), 11); !d.Allowed || d.Exceeded || d.Shadow != "dark" || d.Freshness != Outage {
		t.Errorf("%+v", d)
	}
}

// TestLowClassesAskForNothing: a hit that does not fit its share is nothing that others should reckon with, and leaves no block.
func TestLowClassesAskForNothing(t *testing.T) {
	r := rule("r", 1000, time.Second, 1)
	r.Priority = rules.Priority{By: "class", Shares: map[string]float64{"low": 0.3, "default": 1}}
	s, c := newStore(t, Options{}, r)
	l := limiter(t, c, "r")
	c.CheckAt(noon+ms, request("user=k"), 1)
	c.Receive(noon+2*ms, events.KindAlarm, s.elsewhere(t, l, "k", noon+2*ms, 600, 0))
	for i := range int64(20) {
		if d := c.CheckAt(noon+(3+i)*ms, request("user=k class=low"), 1); d.Allowed || d.RetryAfter <= 0 {
			t.Fatalf("%+v", d)
		}
	}
	x := l.holds([]byte("k"))
	if x.ahead() == nil || x.ahead().denied != 0 || x.allowance.Load() != 0 {
		t.Errorf("%+v, allowance %x", x.ahead(), x.allowance.Load())
	}
	if d := c.CheckAt(noon+30*ms, request("user=k"), 1); !d.Allowed {
		t.Errorf("%+v", d)
	}
}

// TestPeekRemembers: a peek knows what a check would know of a key that has left, and brings it back no more than it would make a new one.
func TestPeekRemembers(t *testing.T) {
	f := newFleet(t, Options{}, rule("r", 10, time.Hour, 1))
	l := limiter(t, f.Checker, "r")
	if err := f.idle.open(10); err != nil {
		t.Fatal(err)
	}
	defer f.idle.close()
	l.CheckAt(noon, "k", 7)
	f.Step(noon + 50*ms)
	f.answer(noon+60*ms, 7)
	c := l.holds([]byte("k"))
	c.mu.Lock()
	c.settle(noon)
	l.drop(c)
	c.mu.Unlock()
	f.idle.cache.Wait()
	if d := l.PeekAt(noon+second, "k", 4); d.Allowed || d.Remaining != 3 {
		t.Errorf("%+v", d)
	}
	if l.holds([]byte("k")) != nil {
		t.Error("the key is back")
	}
	if _, all := f.ExplainAt(noon+second, request("user=k"), 1); all[0].Count != 7 {
		t.Errorf("%+v", all[0])
	}
}
