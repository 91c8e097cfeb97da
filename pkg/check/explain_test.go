package check

import (
	"testing"
	"time"
)

// TestExplain says why each rule decides as it does, agrees with a peek, and changes nothing.
func TestExplain(t *testing.T) {
	c := ofYAML(t, Options{}, `
rules:
  - {name: per-user, key: [user], limit: 10/minute, algorithm: fixed_window, cost: tokens, overrides: [
     {match: {tier: gold}, limit: 2x}, {match: {user: free}, limit: unlimited}, {match: {user: mal}, limit: blocked}]}
  - {name: api, match: {api: create}, key: [user], limit: 3/minute, algorithm: fixed_window}
  - {name: paths, match: {path: "/v1/*", host: "*"}, key: [], limit: 5/minute, shadow: true}
  - {name: lists, key: [user], limit: 100/minute, allow: {user: [root]}, deny: {user: [eve]}}
  - {name: keyed, key: [session], limit: 1/minute}
  - {name: must, match: {api: secret}, key: [session], limit: 1/minute, on_missing: deny}
  - {name: strangers, match: {api: create}, key: [ip], limit: 1/minute, replaces: [api]}
  - {name: none, key: [user], unlimited: true}
  - {name: classes, match: {class: "*"}, key: [user], limit: 10/minute, algorithm: fixed_window,
     priority: {by: class, shares: {default: 50%}}}
`)
	c.CheckAt(noon, request("user=kristie tokens=4 api=create"), 1)
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
		d, all := c.ExplainAt(noon, request(test.attrs), 1)
		equal(t, d, c.PeekAt(noon, request(test.attrs), 1), "%s: decision, and a peek's", test.attrs)
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
		l.CheckAt(now, "k", 10)
		s.elsewhere(t, l, "k", now, 10, 0)
		c.Step(now)
		s.deliver(t, c, now)
	}
	_, all := c.ExplainAt(now+3*ms, user("k"), 1)
	x := all[0]
	expect(t, x.Count != 0 && x.Others > 0 && float64(x.Room) <= 1000-x.Count-x.Others+1, "%+v", x)
	_, all = c.ExplainAt(now, user("other"), 1)
	expect(t, all[0].Count == 0 && all[0].Others == 0, "another key: %+v", all[0])
}
