package check

import (
	"strings"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/rules"
)

// step is several equal requests in a row, whose last one is decided as wanted.
type step struct {
	at    float64 // seconds after noon
	attrs string
	cost  int64
	times int
	want  Decision
	why   string
}

// play runs a script.
func play(t *testing.T, c *Checker, steps []step) {
	t.Helper()
	for i, s := range steps {
		var d Decision
		for n := range max(s.times, 1) {
			d = atTime(noon+int64(s.at*float64(second)), c).Check(request(s.attrs), max(s.cost, 1))
			require(t, d.Allowed == s.want.Allowed, "step %d, request %d (%s): %+v", i, n, s.why, d)
		}
		d.Reset = 0
		switch s.want.Rule {
		case "":
			s.want.Rule, s.want.Limit = d.Rule, d.Limit
		case nobody:
			s.want.Rule = ""
		}
		if !d.Allowed && s.want.Status == 0 {
			s.want.Status = 429
		}
		expect(t, d == s.want, "step %d (%s):\ngot  %+v\nwant %+v", i, s.why, d, s.want)
	}
}

const minute = time.Minute

// free is the decision on a request that no rule limits.
var free = Decision{Allowed: true, Rule: nobody}

// unmatched is the decision on a request that no rule matches.
var unmatched = Decision{Allowed: true, Unmatched: true, Rule: nobody}

// nobody is the name of no rule: "" in a script stands for any.
const nobody = "nobody"

func yes(left int64) Decision { return Decision{Allowed: true, Remaining: left} }
func no(retry time.Duration, left int64) Decision {
	return Decision{RetryAfter: retry, Remaining: left}
}
func (d Decision) by(rule string, limit int64) Decision { d.Rule, d.Limit = rule, limit; return d }
func (d Decision) exceeded() Decision                   { d.Exceeded = true; return d }
func (d Decision) shadowed(by string) Decision          { d.Shadow = by; return d }
func (d Decision) observed(by string, limit int64) Decision {
	d.Rule, d.Limit, d.Observed = nobody, limit, by
	return d
}
func (d Decision) status(s int) Decision { d.Status = s; return d }

// TestClauses plays a script per clause of a rule, most with windows of fixed minutes.
func TestClauses(t *testing.T) {
	const one = "rules:\n  - {name: r, key: [user], limit: 10/minute, algorithm: fixed_window"
	const sliding = "rules:\n  - {name: r, key: [user], limit: 4/second"
	for _, test := range []struct {
		name, rules string
		steps       []step
	}{
		{name: "a sliding window", rules: "rules: [{name: r, key: [user], limit: 3/minute, buckets: 1}]", steps: []step{
			{at: 0, attrs: "user=a", want: yes(2).by("r", 3)},
			{at: 10, attrs: "user=a", want: yes(1)},
			{at: 20, attrs: "user=a", cost: 2, want: no(70*time.Second, 1), why: "at 13:01:30 half of the 2 is left, and 1+2 fit"},
			{at: 20, attrs: "user=a", cost: 4, want: no(Never, 1), why: "4 never fit"},
			{at: 30, attrs: "user=a", want: yes(0)},
			{at: 40, attrs: "user=a", want: no(40*time.Second, 0), why: "3·40/60 + 1 = 3 at 20 s into the next minute"},
			{at: 79, attrs: "user=a", want: no(time.Second, 0), why: "3·41/60 + 1 = 3.05"},
			{at: 80, attrs: "user=a", want: yes(0), why: "3·40/60 + 1 = 3"},
		}},
		{name: "a sliding window of 60 buckets", rules: "rules: [{name: r, key: [user], limit: 3/minute, buckets: 60}]", steps: []step{
			{at: 0, attrs: "user=a", want: yes(2)},
			{at: 10, attrs: "user=a", want: yes(1)},
			{at: 65, attrs: "user=a", want: yes(1), why: "the first has left"},
			{at: 80, attrs: "user=a", want: yes(1), why: "the second has left"},
			{at: 105, attrs: "user=a", want: yes(0)},
			{at: 110, attrs: "user=a", want: no(16*time.Second, 0), why: "three are in it until that of 65 s has left"},
		}},
		{name: "a sliding log", rules: "rules: [{name: r, key: [user], limit: 3/minute, algorithm: sliding_log, buckets: 60}]", steps: []step{
			{at: 30, attrs: "user=a", want: yes(2)},
			{at: 50, attrs: "user=a", want: yes(1)},
			{at: 70, attrs: "user=a", want: yes(0)},
			{at: 85, attrs: "user=a", want: no(6*time.Second, 0), why: "all three are within a minute"},
			{at: 90, attrs: "user=a", want: no(time.Second, 0), why: "the first leaves when its whole second has"},
			{at: 91, attrs: "user=a", want: yes(0), why: "as now"},
			{at: 92, attrs: "user=a", want: no(19*time.Second, 0), why: "that of 50 s is still there"},
			{at: 300, attrs: "user=a", want: yes(2), why: "all have left"},
		}},
		{name: "missing attributes", rules: `rules:
  - {name: skip, key: [user], limit: 5/minute}
  - {name: empty, match: {ask: all}, key: [user], limit: 1/minute, on_missing: empty, algorithm: fixed_window}
  - {name: deny, match: {ask: token}, key: [token], limit: 5/minute, on_missing: deny}`, steps: []step{
			{attrs: "", want: unmatched},
			{attrs: "ask=all", want: yes(0).by("empty", 1)},
			{attrs: "ask=all", want: no(minute, 0).by("empty", 1), why: "all without the attribute are one entity"},
			{attrs: "user=a ask=token", want: no(Never, 0).by("deny", 5)},
		}},
		{name: "status", rules: one + ", status: 503}", steps: []step{
			{attrs: "user=a", times: 10, want: yes(0).by("r", 10)},
			{attrs: "user=a", times: 2, want: no(minute, 0).status(503), why: "the second time from the block"},
			{attrs: "user=a", cost: 2, want: no(minute, 0).status(503), why: "with the lock"},
			{attrs: "user=a", cost: 11, want: no(Never, 0).status(503)},
		}},
		{name: "queue", rules: one + ", on_limit: queue, max_wait: 200ms}", steps: []step{
			{attrs: "user=a", cost: 10, want: yes(0)},
			{attrs: "user=a", want: Decision{RetryAfter: minute, Queue: true, MaxWait: 200 * time.Millisecond}},
		}},
		{name: "lists", rules: one + ", allow: {ip: [10.0.0.0/8], user: [root]}, deny: {ip: [10.6.6.6], user: [eve]}}", steps: []step{
			{attrs: "user=root", times: 30, want: free, why: "no rule applies"},
			{attrs: "user=a ip=10.1.2.3", cost: 11, want: free},
			{attrs: "user=a ip=192.0.2.1", want: yes(9), why: "who is allowed is not counted"},
			{attrs: "user=eve", want: no(Never, 0).by("r", 10)},
			{attrs: "user=root ip=10.6.6.6", want: no(Never, 0), why: "deny beats allow"},
		}},
		{name: "overrides", rules: one + `, overrides: [
			{match: {tier: gold}, limit: 3x}, {match: {user: free}, limit: unlimited}, {match: {user: bob}, limit: blocked, until: 2026-11-20T12:00:30Z},
			{match: {user: mal}, limit: blocked}, {match: {tier: slow}, limit: 2/hour}]}`, steps: []step{
			{attrs: "user=a", cost: 10, want: yes(0).by("r", 10)},
			{attrs: "user=a tier=gold", cost: 30, want: yes(0).by("r", 30), why: "another counter, in the rule's name"},
			{attrs: "user=a tier=gold", want: no(minute, 0).by("r", 30)},
			{attrs: "user=free", cost: 1e6, want: free},
			{attrs: "user=bob", want: no(30*time.Second, 0).by("r", 10)},
			{at: 29, attrs: "user=bob", want: no(time.Second, 0)},
			{at: 30, attrs: "user=bob", want: yes(9), why: "it is over"},
			{attrs: "user=mal", want: no(Never, 0)},
			{attrs: "user=s tier=slow", times: 2, want: yes(0).by("r", 2)},
			{at: 60, attrs: "user=s tier=slow", want: no(59*minute, 0).by("r", 2), why: "another window"},
		}},
		{name: "cost", rules: one + ", cost: tokens}", steps: []step{
			{attrs: "user=a tokens=4", want: yes(6)},
			{attrs: "user=a tokens=7", want: no(minute, 6)},
			{attrs: "user=a", cost: 2, want: yes(4), why: "the caller's"},
			{attrs: "user=a tokens=lots", cost: 3, want: yes(1), why: "no cost: the caller's"},
			{attrs: "user=a tokens=0", want: yes(0)},
			{attrs: "user=b tokens=11", want: no(Never, 10)},
		}},
		{name: "soft", rules: one + ", throttle: soft, soft: {exceed: 15%}}", steps: []step{
			{attrs: "user=a", times: 10, want: yes(1).by("r", 11), why: "11 pass, rounded down"},
			{attrs: "user=a", want: yes(0).exceeded()},
			{attrs: "user=a", want: no(minute, 0).by("r", 11)},
			{attrs: "user=b", cost: 11, want: yes(0).exceeded()},
			{attrs: "user=c", cost: 12, want: no(Never, 11)},
		}},
		{name: "elastic by another rule", rules: one + `, throttle: elastic, elastic: {up_to: 200%, while: {rule: all, below: 70%}}}
  - {name: all, limit: 50/minute, key: [], algorithm: fixed_window}`, steps: []step{
			{attrs: "user=a", times: 10, want: yes(10).by("r", 20), why: "that many are left while there is room"},
			{attrs: "user=a", times: 10, want: yes(0).exceeded().by("r", 20), why: "20 of 50 are less than 70 %"},
			{attrs: "user=a", want: no(minute, 0).by("r", 20)},
			{attrs: "user=b", cost: 14, want: yes(6).exceeded()},
			{attrs: "user=c", cost: 10, want: yes(6).by("all", 50)},
			{attrs: "user=b", want: no(minute, 0), why: "44 of 50 are not; and b has 14 of 10"},
			{at: 60, attrs: "user=b", cost: 20, want: yes(0).exceeded()},
		}},
		{name: "elastic while room comes and goes",
			rules: one + ", throttle: elastic, elastic: {up_to: 150%, while: {rule: load, below: 50%}}}\n" +
				"  - {name: load, key: [], limit: 24/second, algorithm: fixed_window, shadow: true}",
			steps: []step{
				{attrs: "user=a", cost: 11, want: yes(4).exceeded().by("r", 15)},
				{attrs: "user=b", want: yes(14).by("r", 15), why: "11 of 24 are below 50 %"},
				{attrs: "user=a", cost: 2, want: no(minute, 0).by("r", 10), why: "12 of 24 are not"},
				{attrs: "user=a", want: no(minute, 0)},
				{at: 1, attrs: "user=a", want: yes(3).exceeded().by("r", 15), why: "no block is left behind"},
				{at: 1, attrs: "user=a", cost: 3, want: yes(0).exceeded()},
				{at: 1, attrs: "user=a", cost: 16, want: no(Never, 0)},
			}},
		{name: "elastic in a sliding window",
			rules: sliding + ", throttle: elastic, elastic: {up_to: 200%, while: {rule: load, below: 50%}}}\n" +
				"  - {name: load, key: [], limit: 20/minute, algorithm: fixed_window}",
			steps: []step{
				{attrs: "user=a", cost: 8, want: yes(0).exceeded().by("r", 8)},
				{attrs: "user=a", want: no(1125*time.Millisecond, 0), why: "with room 1/8 of the 8 has to leave"},
				{attrs: "user=b", cost: 2, want: yes(6)},
				{attrs: "user=a", want: no(1625*time.Millisecond, 0).by("r", 4), why: "without, 5/8 of them"},
			}},
		{name: "priority", rules: one + ", priority: {by: class, shares: {critical: 100%, default: 90%, analytics: 50%}}}", steps: []step{
			{attrs: "user=a class=analytics", times: 5, want: yes(0).by("r", 5)},
			{attrs: "user=a class=analytics", want: no(minute, 0).by("r", 5)},
			{attrs: "user=a class=unknown", times: 4, want: yes(0)},
			{attrs: "user=a", want: no(minute, 0)},
			{attrs: "user=a class=critical", want: yes(0)},
			{attrs: "user=a class=critical", want: no(minute, 0)},
			{attrs: "user=b class=critical", times: 3, want: yes(7)},
			{attrs: "user=b class=analytics", times: 2, want: yes(0), why: "not from what was left for the critical"},
			{attrs: "user=b class=analytics", want: no(minute, 0)},
			{attrs: "user=b class=critical", times: 5, want: yes(0)},
			{attrs: "user=c class=analytics", cost: 6, want: no(Never, 5)},
			{attrs: "user=d class=analytics", want: yes(4)},
			{attrs: "user=d class=critical", want: yes(8), why: "not from an allowance for less"},
			{attrs: "user=d class=analytics", want: yes(2), why: "nor from one for more"},
		}},
		{name: "priority of soft",
			rules: one + ", throttle: soft, soft: {exceed: 100%}, " +
				"priority: {by: class, shares: {default: 100%, low: 50%}}}",
			steps: []step{
				{attrs: "user=a class=low", times: 10, want: yes(0).by("r", 10), why: "half of 20"},
				{attrs: "user=a class=low", want: no(minute, 0).by("r", 10)},
			}},
		{name: "shadow", rules: "rules:\n  - {name: s, key: [user], limit: 2/minute, algorithm: fixed_window, shadow: true}\n" +
			"  - {name: s2, key: [user], limit: 1/minute, algorithm: fixed_window, shadow: true}\n" + strings.TrimPrefix(one, "rules:\n") + "}", steps: []step{
			{attrs: "user=a", want: yes(9).by("r", 10)},
			{attrs: "user=a", want: yes(8).by("r", 10).shadowed("s2")},
			{attrs: "user=a", want: yes(7).shadowed("s"), why: "the first of them"},
			{attrs: "user=a", cost: 8, want: no(minute, 7).by("r", 10).shadowed("s")},
			{attrs: "user=a", times: 7, want: yes(0).shadowed("s")},
			{attrs: "user=a", want: no(minute, 0).shadowed("s")},
		}},
		{name: "shadow alone", rules: one + ", shadow: true, deny: {user: [eve]}, on_missing: deny, overrides: [{match: {user: mal}, limit: blocked}]}", steps: []step{
			{attrs: "user=a", times: 7, want: yes(3).observed("r", 10)},
			{attrs: "user=a", cost: 4, want: yes(3).observed("r", 10).shadowed("r"), why: "and it counts for nothing"},
			{attrs: "user=a", times: 3, want: yes(0).observed("r", 10)},
			{attrs: "user=a", want: yes(0).observed("r", 10).shadowed("r")},
			{attrs: "user=eve", want: yes(0).observed("r", 10).shadowed("r")},
			{attrs: "user=mal", want: yes(0).observed("r", 10).shadowed("r")},
			{attrs: "", want: yes(0).observed("r", 10).shadowed("r")},
		}},
		{name: "two in shadow", rules: one + `, shadow: true}
  - {name: near, key: [], limit: 3/minute, algorithm: fixed_window, shadow: true}`, steps: []step{
			{attrs: "user=a", times: 3, want: yes(0).observed("near", 3)},
			{attrs: "user=a", want: yes(0).observed("near", 3).shadowed("near")},
			{attrs: "user=b", cost: 11, want: yes(0).observed("near", 3).shadowed("r"), why: "neither would ever let it pass"},
		}},
		{name: "count all", rules: one + ", count: all}", steps: []step{
			{attrs: "user=a", times: 9, want: yes(1)},
			{attrs: "user=a", cost: 5, want: no(minute, 1), why: "and it counts"},
			{attrs: "user=a", want: no(minute, 0)},
		}},
		{name: "count all in a sliding window", rules: sliding + ", count: all}", steps: []step{
			{attrs: "user=a", cost: 4, want: yes(0)},
			{attrs: "user=a", want: no(1400*time.Millisecond, 0), why: "of 5, with the denied one, 2/5 have to leave"},
			{at: 1.4, attrs: "user=a", want: yes(0)},
		}},
		{name: "unlimited", rules: "rules: [{name: r, key: [user], unlimited: true}]", steps: []step{
			{attrs: "user=a", cost: 1e15, want: free},
		}},
		{name: "several of them", rules: one + `, cost: tokens}
  - {name: hard, key: [user], limit: 3/minute, algorithm: fixed_window}
  - {name: loose, key: [user], limit: 3/minute, algorithm: fixed_window, throttle: soft, soft: {exceed: 100%}}`, steps: []step{
			{attrs: "user=a tokens=8", want: yes(2).by("r", 10)},
			{attrs: "user=a tokens=3", want: no(minute, 2).by("r", 10), why: "and it is charged to none"},
			{attrs: "user=a tokens=1", times: 2, want: yes(0), why: "each at its own cost"},
			{attrs: "user=b", cost: 3, want: yes(0).by("hard", 3)},
			{attrs: "user=b", want: no(minute, 0).by("hard", 3)},
		}},
	} {
		t.Run(test.name, func(t *testing.T) { play(t, ofYAML(t, Options{}, test.rules), test.steps) })
	}
}

// TestAskedByKey: a limiter that is asked by key decides as for a request without attributes.
func TestAskedByKey(t *testing.T) {
	c := ofYAML(t, Options{}, `
rules:
  - {name: classes, key: [user], limit: 10/minute, priority: {by: class, shares: {high: 100%, default: 50%}}}
  - {name: stretch, key: [user], limit: 10/minute, throttle: elastic, elastic: {up_to: 200%, while: {rule: all, below: 50%}}}
  - {name: stuck, key: [user], limit: 10/minute, throttle: elastic, elastic: {up_to: 200%, while: {rule: stretch, below: 50%}}}
  - {name: all, key: [], limit: 30/minute}
`)
	for name, want := range map[string]int64{"classes": 5, "stretch": 20, "stuck": 10} {
		equal(t, atTime(noon, limiter(t, c, name)).try(Peek, "k", 1).Remaining, want, "%s: remaining", name)
	}
	atTime(noon, limiter(t, c, "all")).try(Record, "", 15)
	equal(t, atTime(noon, limiter(t, c, "stretch")).try(Peek, "k", 1).Remaining, 10, "remaining, once half of all is used")
}

// TestShadowIsNamedByEveryCall that asks by key.
func TestShadowIsNamedByEveryCall(t *testing.T) {
	c := ofYAML(t, Options{}, `rules: [{name: r, key: [user], limit: 5/minute, shadow: true}]`)
	l := limiter(t, c, "r")
	want := atTime(noon, l).try(Peek, "k", 9).Decision
	checked := atTime(noon, l).Check("k", 9)
	receipt, _ := atTime(noon, l).tryReceipt("k", 9)
	expect(t, want.Rule == "r" && want.Shadow == "r" && want.Reset == 2*time.Minute && checked == want && receipt == want,
		"peeked %+v\nchecked %+v\nfor a receipt %+v", want, checked, receipt)
	atTime(noon, l).Check("k", 2)
	equal(t, atTime(noon, l).try(Peek, "k", 2).Remaining, 3, "remaining")
	strict := strictRule("s", 5, time.Minute, 1)
	strict.OnOutage, strict.Shadow = rules.Closed, true
	l = limiter(t, newFleet(t, Options{}, strict).Checker, "s")
	for _, wants := range []bool{false, true} {
		d, err := l.checker().Wait(t.Context(), Request{Limiter: l, Key: "k", Cost: 9, Receipt: wants})
		expect(t, err == nil && d.Reset > 0 && d.Rule == "s" && d.Limit == 5 && d.Allowed, "acquired, receipt %v: %+v, %v", wants, d, err)
	}
}

func TestStatsOfClauses(t *testing.T) {
	c := ofYAML(t, Options{}, `
rules:
  - {name: dark, key: [user], limit: 2/minute, shadow: true, deny: {user: [eve]}}
  - {name: r, key: [user], limit: 5/minute, cost: n, overrides: [{match: {tier: gold}, limit: 2x}]}
`)
	for _, r := range []string{"user=a", "user=a", "user=a n=x", "user=a n=4", "user=eve n=6", "user=a tier=gold n=10"} {
		atTime(noon, c).Check(request(r), 1)
	}
	atTime(noon, c).Step()
	want := map[string]RuleStats{
		"dark":        {Allowed: 2, Denied: 4, Charged: 2}, // of those who pass, and would not have
		"r":           {Allowed: 3, Denied: 2, Charged: 3, BadCosts: 1},
		"r/tier=gold": {Allowed: 1, Charged: 10},
	}
	for _, got := range c.Stats().Rules {
		w := want[got.Rule]
		expect(t, got.Allowed == w.Allowed && got.Denied == w.Denied && got.Charged == w.Charged && got.BadCosts == w.BadCosts,
			"%+v, want %+v", got, w)
	}
	c = ofYAML(t, Options{}, "rules: [{name: r, key: [user], limit: 5/minute, cost: n}]")
	atTime(noon, c).Check(request("user=a n=x"), 1)
	equal(t, c.Stats().Rules[0].BadCosts, 1, "bad costs of one rule alone")
}

// TestPartsOfLimits: a part of a limit is as many whole hits as are in it, whatever binary
// fractions make of it.
func TestPartsOfLimits(t *testing.T) {
	for _, test := range []struct {
		limit int64
		part  float64
		want  int64
	}{
		{100, 0.29, 29}, {1000, 1.15, 1150}, {10, 1.15, 11}, {3, 0.5, 1},
		{1, 1, 1}, {100, 1.1, 110}, {7, 0.3, 2}, {1e14, 1.1, 1.1e14},
	} {
		equal(t, rules.Part(test.limit, test.part), test.want, "%g of %d", test.part, test.limit)
	}
}

// TestHitsBeyondAShareAreNoDemand that others should reckon with, and leave no block.
func TestHitsBeyondAShareAreNoDemand(t *testing.T) {
	r := rule("r", 1000, time.Second, 1)
	r.Priority = rules.Priority{By: "class", Shares: map[string]float64{"low": 0.3, "default": 1}}
	s, c := newStore(t, Options{}, r)
	l := limiter(t, c, "r")
	atTime(noon+ms, c).Check(request("user=k"), 1)
	s.elsewhere(t, l, "k", noon+2*ms, 600, 0)
	for i := range int64(20) {
		d := atTime(noon+(3+i)*ms, c).Check(request("user=k class=low"), 1)
		require(t, !d.Allowed && d.RetryAfter > 0, "%+v", d)
	}
	x := counterOf(l, "k")
	expect(t, x.Forecast() != nil && x.Forecast().DeniedOwn == 0 && x.Allowance.Load() == 0,
		"%+v, allowance %x", x.Forecast(), x.Allowance.Load())
	decided(t, atTime(noon+30*ms, c).Check(request("user=k"), 1), true, "a hit")
}
