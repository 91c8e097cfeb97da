package check

import (
	"cmp"
	"fmt"
	"github.com/offpath-io/offpath/pkg/check/internal/fleetstate"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// TestExplain says why each rule decides as it does, agrees with a peek, and changes nothing.
func TestExplain(t *testing.T) {
	c := ofYAML(t, Options{}, `
rules:
  - {name: per-user, key: [user], limit: 10/minute, algorithm: fixed_window, cost: tokens, overrides: [
     {match: {tier: gold}, limit: 2x}, {match: {user: free}, limit: unlimited}, {match: {user: mal}, limit: blocked}]}
  - {name: api, match: {api: create}, key: [user], limit: 3/minute, algorithm: fixed_window}
  - {name: paths, match: {path: "/v1/*", host: "*"}, exclude: {path: [/v1/health]}, key: [], limit: 5/minute, shadow: true}
  - {name: lists, key: [user], limit: 100/minute, allow: {user: [root]}, deny: {user: [eve]}}
  - {name: keyed, key: [session], limit: 1/minute}
  - {name: must, match: {api: secret}, key: [session], limit: 1/minute, on_missing: deny}
  - {name: strangers, match: {api: create}, key: [ip], limit: 1/minute, replaces: [api]}
  - {name: none, key: [user], unlimited: true}
  - {name: classes, match: {class: "*"}, key: [user], limit: 10/minute, algorithm: fixed_window,
     priority: {by: class, shares: {default: 50%}}}
`)
	atTime(noon, c).Check(request("user=kristie tokens=4 api=create"), 1)
	kristie := func(x Explanation) Explanation { // what most explanations share
		x.Counter, x.Override, x.Key, x.Limit, x.Cost, x.Count, x.Room = "per-user", -1, "kristie", 10, max(x.Cost, 1), 4, 6
		x.Decides = true
		return x
	}
	unasked := func(why string) Explanation { return Explanation{Override: -1, Why: why} }
	barred := func(rule string, override int, limit int64, why string) Explanation {
		return Explanation{
			Counter: rule, Override: override, Barred: why, Limit: limit, Cost: 1, Denies: true, RetryAfter: Never, Decides: true,
		}
	}
	for _, test := range []struct {
		attrs, rule string
		want        Explanation
	}{
		{"user=kristie", "per-user", kristie(Explanation{})},
		{"user=kristie tokens=7", "per-user", kristie(Explanation{Cost: 7, Denies: true, RetryAfter: time.Minute})},
		{"user=kristie tokens=x", "per-user", kristie(Explanation{BadCost: true})},
		{"user=kristie tier=gold", "per-user", Explanation{Counter: "per-user/tier=gold", Override: 0,
			Key: "kristie", Limit: 20, Cost: 1, Room: 20, Decides: true}},
		{"user=free", "per-user", Explanation{Override: 1, Why: "an override exempts the caller"}},
		{"user=mal", "per-user", barred("per-user", 2, 10, "an override blocks the caller")},
		{"user=kristie api=create", "api", Explanation{Counter: "api", Override: -1,
			Key: "kristie", Limit: 3, Cost: 1, Count: 1, Room: 2, Decides: true}},
		{"user=kristie", "api", unasked(`there is no attribute api: want "create"`)},
		{"user=kristie api=list", "api", unasked(`api is "list": want "create"`)},
		{"user=kristie api=create ip=192.0.2.1", "api", unasked("another rule replaces it")},
		{"path=/v2/x host=h", "paths", unasked(`path is "/v2/x": want one that begins with "/v1/"`)},
		{"path=/v1/health host=h", "paths", unasked("it excludes such requests")},
		{"path=/v1/x", "paths", unasked("there is no attribute host: want any")},
		{"path=/v1/x host=h tokens=9", "paths", Explanation{Counter: "paths", Override: -1,
			Limit: 5, Cost: 1, Room: 5, Shadow: true}},
		{"user=root", "lists", unasked("the caller is on its allow list")},
		{"user=eve", "lists", barred("lists", -1, 100, "the caller is on its deny list")},
		{"user=kristie", "keyed", unasked("an attribute of its key is missing")},
		{"api=secret", "must", barred("must", -1, 1, "an attribute of its key is missing")},
		{"user=kristie", "none", unasked("it limits nobody")},
		{"user=kristie class=x", "classes", Explanation{Counter: "classes", Override: -1,
			Key: "kristie", Limit: 5, Cost: 1, Room: 5, Decides: true}},
	} {
		before := c.Stats()
		d, all := atTime(noon, c).tryExplain(request(test.attrs), 1)
		equal(t, d, atTime(noon, c).try(Peek, request(test.attrs), 1).Decision, "%s: decision, and a peek's", test.attrs)
		deciding := 0
		for i, x := range all {
			require(t, x.Rule == c.Rules().Rules()[i].Name, "%s: rule %d is %s", test.attrs, i, x.Rule)
			if x.Decides {
				deciding++
			}
			if x.Rule != test.rule {
				continue
			}
			test.want.Rule = test.rule
			expect(t, x == test.want, "%s:\ngot  %+v\nwant %+v", test.attrs, x, test.want)
		}
		expect(t, deciding <= 1 && (deciding != 0 || d.Rule == ""), "%s: %d rules decide", test.attrs, deciding)
		after := c.Stats()
		expect(t, after.LiveKeys == before.LiveKeys && after.Rules[0] == before.Rules[0],
			"%s: explaining changed %+v to %+v", test.attrs, before, after)
	}
}

// TestExplainSeparatesTheExpected hits of others from what is known.
func TestExplainSeparatesTheExpected(t *testing.T) {
	s, c := newStore(t, Options{}, rule("r", 1000, time.Second, 1))
	l, now := limiter(t, c, "r"), noon
	for range 40 {
		now += 5 * ms
		atTime(now, l).Check("k", 10)
		s.elsewhere(t, l, "k", now, 10, 0)
		atTime(now, c).Step()
		s.deliver(t, c, now)
	}
	_, all := atTime(now+3*ms, c).tryExplain(user("k"), 1)
	x := all[0]
	expect(t, x.Count != 0 && x.Others > 0 && float64(x.Room) <= 1000-x.Count-x.Others+1, "%+v", x)
	_, all = atTime(now, c).tryExplain(user("other"), 1)
	expect(t, all[0].Count == 0 && all[0].Others == 0, "another key: %+v", all[0])
}

// anyClauses draws rules with clauses in all combinations with algorithms.
func anyClauses(t *rapid.T) string {
	var b strings.Builder
	b.WriteString("rules:\n")
	for i := range rapid.IntRange(1, 3).Draw(t, "rules") {
		algorithms := []string{"sliding_window", "fixed_window", "sliding_log", "token_bucket", "leaky_bucket"}
		algorithm := rapid.SampledFrom(algorithms).Draw(t, "algorithm")
		key, limit := rapid.SampledFrom([]string{"user", "", "user, api"}).Draw(t, "key"), rapid.IntRange(4, 20).Draw(t, "limit")
		fmt.Fprintf(&b, "- name: r%d\n  key: [%s]\n  algorithm: %s\n  limit: %d/second\n", i, key, algorithm, limit)
		maybe := func(text string, fits bool) {
			if fits && rapid.IntRange(0, 2).Draw(t, text) == 0 {
				b.WriteString("  " + text + "\n")
			}
		}
		drains := strings.HasSuffix(algorithm, "bucket")
		maybe("burst: 9", drains)
		maybe("buckets: 10", algorithm == "sliding_window")
		maybe("shadow: true", true)
		maybe("count: all", algorithm != "leaky_bucket")
		maybe("cost: tokens", true)
		maybe("priority: {by: class, shares: {critical: 100%, default: 75%, low: 50%}}", true)
		maybe("overrides: [{match: {tier: gold}, limit: 2x}, {match: {tier: free}, limit: unlimited}, "+
			"{match: {user: eve}, limit: blocked}]", true)
		if rapid.Bool().Draw(t, "soft") {
			b.WriteString("  throttle: soft\n  soft: {exceed: 50%}\n")
		} else if i > 0 && rapid.Bool().Draw(t, "elastic") {
			fmt.Fprintf(&b, "  throttle: elastic\n  elastic: {up_to: 200%%, while: {rule: r%d, below: 50%%}}\n", i-1)
		}
	}
	return b.String()
}

func anyRequest(t *rapid.T) (attrs identity.Attributes) {
	for _, a := range []struct {
		name   string
		values []string // "" for none
	}{
		{"user", []string{"kristie", "kristie", "bob", "eve", strings.Repeat("l", 600), ""}},
		{"api", []string{"a", ""}}, {"tier", []string{"", "", "gold", "free"}},
		{"class", []string{"", "critical", "low"}}, {"tokens", []string{"", "2", "5", "x"}},
	} {
		if v := rapid.SampledFrom(a.values).Draw(t, a.name); v != "" {
			attrs = append(attrs, identity.Attribute{Name: a.name, Value: v})
		}
	}
	return attrs
}

// TestLookingChangesNothing: whatever the rules, a checker that hashes keys, and one that peeks and
// explains before each request and gets equal rules again and again, decide as one that does none
// of it. A standing is what Explain says of the rules that apply.
func TestLookingChangesNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		text := anyClauses(rt)
		plain := ofYAML(t, Options{}, text)
		hashes := ofYAML(t, Options{KeyHash: hasher(t, "a secret of enough bytes")}, text)
		looks := ofYAML(t, Options{}, text)
		now := noon
		for i := range rapid.IntRange(1, 60).Draw(rt, "requests") {
			now += rapid.SampledFrom([]int64{0, 1, 5 * ms, 50 * ms, 333 * ms, 1100 * ms}).Draw(rt, "pause")
			attrs, cost := anyRequest(rt), rapid.SampledFrom([]int64{1, 1, 2, 7, 30}).Draw(rt, "cost")
			seen := atTime(now, looks).try(Peek, attrs, cost).Decision
			explained, applying := atTime(now, looks).tryExplain(attrs, cost)
			require(rt, explained == seen, "%s\n%v peeked  %+v\nexplained %+v", text, attrs, seen, explained)
			applying = slices.DeleteFunc(applying, func(x Explanation) bool { return x.Why != "" })
			for i := range applying {
				applying[i].Decides = false
			}
			standing := atTime(now, looks).try(Standing, attrs, cost).Explanations
			require(rt, slices.Equal(standing, applying), "standing %+v\nwant %+v", standing, applying)
			if rapid.IntRange(0, 5).Draw(rt, "reload") == 0 {
				must(rt, atTime(now, looks).SetRules(parse(t, text), uint64(i)))
			}
			bill := rapid.Int64Range(0, 9).Draw(rt, "bill")
			var all [3]Decision
			for j, c := range []*Checker{plain, hashes, looks} {
				all[j] = requestOf(rt, c, now, attrs, cost, i, bill)
			}
			require(rt, all[0] == all[1] && all[0] == all[2],
				"%s\n%v costs %d\nplain  %+v\nhashes %+v\nlooks  %+v", text, attrs, cost, all[0], all[1], all[2])
			d := all[2]
			// Whether an elastic rule had room, a check without the lock knows from the last one
			// with it, whose caller may have had another key under the rule that is looked at.
			named := cmp.Or(d.Rule, d.Observed) // the rule with the least left, which the hit itself can change
			elastic := named != "" && limiter(t, looks, named).Rule().Throttle.Kind == rules.Elastic
			same := (named != cmp.Or(seen.Rule, seen.Observed) || d.Limit == seen.Limit || elastic) &&
				d.Allowed == seen.Allowed && d.Shadow == seen.Shadow &&
				d.Exceeded == seen.Exceeded && d.Status == seen.Status
			require(rt, i%5 == 0 || same, "%s\n%v costs %d\npeeked  %+v\nchecked %+v", text, attrs, cost, seen, d)
		}
	})
}

// requestOf makes the request of this number: a record, a check that is withdrawn, or a check.
func requestOf(t *rapid.T, c *Checker, now int64, attrs identity.Attributes, cost int64, number int, bill int64) Decision {
	switch number % 5 {
	case 0:
		atTime(now, c).try(Record, attrs, cost)
		return Decision{}
	case 1:
		d, receipt := atTime(now, c).tryReceipt(attrs, cost)
		if receipt != "" {
			must(t, atTime(now, c).Settle(receipt, bill))
		}
		return d
	}
	return atTime(now, c).Check(attrs, cost)
}

// TestRecordCharges whatever is left, for callers whom the rule counts at all.
func TestRecordCharges(t *testing.T) {
	c := ofYAML(t, Options{}, `
rules:
  - {name: failures, key: [user], limit: 3/minute, algorithm: fixed_window, cost: n,
     allow: {user: [root]}, deny: {user: [eve]}, overrides: [{match: {tier: gold}, limit: 2x}]}
  - {name: all, key: [], limit: 2/minute, algorithm: fixed_window, shadow: true}
`)
	for _, r := range []string{"user=a", "user=a n=4", "user=root", "user=eve", "user=a tier=gold n=2", "user=a n=x"} {
		atTime(noon, c).try(Record, request(r), 1)
	}
	atTime(noon, limiter(t, c, "failures")).try(Record, "b", 0)
	want := map[string]int64{"failures": 1 + 4 + 1 + 1, "failures/tier=gold": 2, "all": 6}
	for _, r := range c.Stats().Rules {
		expect(t, r.Charged == want[r.Rule] && r.Allowed == 0 && r.Denied == 0, "%+v, want %d charged", r, want[r.Rule])
	}
	equal(t, c.Stats().Rules[0].BadCosts, 1, "bad costs")
	for _, r := range []string{"user=a", "user=b", "user=a tier=gold", "user=root", "user=c"} {
		d := atTime(noon, c).try(Peek, request(r), 1).Decision
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
	atTime(noon, l).try(Record, "k", 24)
	expect(t, c.host.Rounds.Wanted.Load() == 0, "there is no hurry")
	atTime(noon, l).try(Record, "k", 1)
	expect(t, c.host.Rounds.Wanted.Load() == fleetstate.NextFast, "half of the limit is used up")
}

// TestCountAllCannotOverflow, however many denied hits are charged.
func TestCountAllCannotOverflow(t *testing.T) {
	r := rule("r", 10, time.Minute, 1)
	r.Count = rules.All
	c, l := checkerAndLimiter(t, Options{}, r)
	for range 20 {
		require(t, !atTime(noon, l).Check("k", window.MaxCount).Allowed, "passed")
		atTime(noon, l).try(Record, "k", window.MaxCount)
	}
	s := c.Stats().Rules[0]
	expect(t, s.Charged == window.MaxCount && s.Denied == 20, "%+v", s)
}

// TestCountAllKeepsTheCallerOut who does not stop; else the next hits pass when the first leave the
// window.
func TestCountAllKeepsTheCallerOut(t *testing.T) {
	for _, count := range []rules.Count{rules.Admitted, rules.All} {
		r := rule("r", 10, time.Minute, 60)
		r.Count = count
		c := newChecker(t, Options{}, r)
		l, passed := limiter(t, c, "r"), 0
		for i := range int64(3000) {
			passed += hit(l, noon+i*100*ms, "k", 1)
		}
		want := map[rules.Count]int{rules.Admitted: 50, rules.All: 10}[count]
		expect(t, passed == want, "%v: %d pass in 5 minutes, want %d", count, passed, want)
	}
}
