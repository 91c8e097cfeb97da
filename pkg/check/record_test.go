package check

import (
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// TestRecordCharges whatever is left, for callers whom the rule counts at all.
func TestRecordCharges(t *testing.T) {
	c := ofYAML(t, Options{}, `
rules:
  - {name: failures, key: [user], limit: 3/minute, algorithm: fixed_window, cost: n,
     allow: {user: [root]}, deny: {user: [eve]}, overrides: [{match: {tier: gold}, limit: 2x}]}
  - {name: all, key: [], limit: 2/minute, algorithm: fixed_window, shadow: true}
`)
	for _, r := range []string{"user=a", "user=a n=4", "user=root", "user=eve", "user=a tier=gold n=2", "user=a n=x"} {
		c.RecordAt(noon, request(r), 1)
	}
	limiter(t, c, "failures").RecordAt(noon, "b", 0)
	want := map[string]int64{"failures": 1 + 4 + 1 + 1, "failures/tier=gold": 2, "all": 6}
	for _, r := range c.Stats().Rules {
		expect(t, r.Charged == want[r.Rule] && r.Allowed == 0 && r.Denied == 0, "%+v, want %d charged", r, want[r.Rule])
	}
	equal(t, c.Stats().Rules[0].BadCosts, 1, "bad costs")
	for _, r := range []string{"user=a", "user=b", "user=a tier=gold", "user=root", "user=c"} {
		d := c.PeekAt(noon, request(r), 1)
		expect(t, d.Allowed == (r != "user=a"), "%s: %+v", r, d)
	}
	l := limiter(t, c, "failures")
	expect(t, left(l, noon, "b") == 2, "a cost below 1 counts as 1")
	l = limiter(t, c, "failures/tier=gold")
	expect(t, left(l, noon, "a") == 4 && l.Rule().Limit == 6, "the override's own counter has %d left", left(l, noon, "a"))
}

// TestRecordBringsTheReportForward of a key that comes near its limit.
func TestRecordBringsTheReportForward(t *testing.T) {
	_, c := newStore(t, Options{}, rule("r", 50, time.Second, 1))
	l := limiter(t, c, "r")
	l.RecordAt(noon, "k", 24)
	expect(t, c.rounds.wanted.Load() == 0, "there is no hurry")
	l.RecordAt(noon, "k", 1)
	expect(t, c.rounds.wanted.Load() == nextTick, "half of the limit is used up")
}

// TestCountAllCannotOverflow, however many denied hits are charged.
func TestCountAllCannotOverflow(t *testing.T) {
	r := rule("r", 10, time.Minute, 1)
	r.Count = rules.All
	c := newChecker(t, Options{}, r)
	l := limiter(t, c, "r")
	for range 20 {
		require(t, !l.CheckAt(noon, "k", window.MaxCount).Allowed, "passed")
		l.RecordAt(noon, "k", window.MaxCount)
	}
	s := c.Stats().Rules[0]
	expect(t, s.Charged == window.MaxCount && s.Denied == 20, "%+v", s)
}

// TestCountAllKeepsTheCallerOut who does not stop; else the next hits pass when the first leave the window.
func TestCountAllKeepsTheCallerOut(t *testing.T) {
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
		want := map[rules.Count]int{rules.Admitted: 50, rules.All: 10}[count]
		expect(t, passed == want, "%v: %d pass in 5 minutes, want %d", count, passed, want)
	}
}
