package check

import (
	"strings"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/events"
)

func TestExplain(t *testing.T) {
	c := ofYAML(t, Options{}, `
rules:
  - {name: per-user, key: [user], limit: 10/minute, algorithm: fixed_window, cost: tokens, overrides: [{match: {tier: gold}, limit: 2x}, {match: {user: free}, limit: unlimited}, {match: {user: mal}, limit: blocked}]}
  - {name: api, match: {api: create}, key: [user], limit: 3/minute, algorithm: fixed_window}
  - {name: paths, match: {path: "/v1/*", host: "*"}, key: [], limit: 5/minute, shadow: true}
  - {name: lists, key: [user], limit: 100/minute, allow: {user: [root]}, deny: {user: [eve]}}
  - {name: keyed, key: [session], limit: 1/minute}
  - {name: must, match: {api: secret}, key: [session], limit: 1/minute, on_missing: deny}
  - {name: strangers, match: {api: create}, key: [ip], limit: 1/minute, replaces: [api]}
  - {name: none, key: [user], unlimited: true}
  - {name: classes, match: {class: "*"}, key: [user], limit: 10/minute, algorithm: fixed_window, priority: {by: class, shares: {default: 50%}}}
`)
	c.CheckAt(noon, request("user=kristie tokens=4 api=create"), 1)
	for _, test := range []struct {
		attrs string
		rule  string
		want  Explanation
	}{
		{"user=kristie", "per-user", Explanation{Counter: "per-user", Override: -1, Key: "kristie", Limit: 10, Cost: 1, Count: 4, Room: 6, Decides: true}},
		{"user=kristie tokens=7", "per-user", Explanation{Counter: "per-user", Override: -1, Key: "kristie", Limit: 10, Cost: 7, Count: 4, Room: 6, Denies: true, RetryAfter: time.Minute, Decides: true}},
		{"user=kristie tokens=x", "per-user", Explanation{Counter: "per-user", Override: -1, Key: "kristie", Limit: 10, Cost: 1, BadCost: true, Count: 4, Room: 6, Decides: true}},
		{"user=kristie tier=gold", "per-user", Explanation{Counter: "per-user/tier=gold", Override: 0, Key: "kristie", Limit: 20, Cost: 1, Room: 20, Decides: true}},
		{"user=free", "per-user", Explanation{Override: 1, Why: "an override exempts the caller"}},
		{"user=mal", "per-user", Explanation{Counter: "per-user", Override: 2, Barred: "an override blocks the caller", Limit: 10, Cost: 1, Denies: true, RetryAfter: Never, Decides: true}},
		{"user=kristie api=create", "api", Explanation{Counter: "api", Override: -1, Key: "kristie", Limit: 3, Cost: 1, Count: 1, Room: 2, Decides: true}},
		{"user=kristie", "api", Explanation{Override: -1, Why: `there is no attribute api: want "create"`}},
		{"user=kristie api=list", "api", Explanation{Override: -1, Why: `api is "list": want "create"`}},
		{"user=kristie api=create ip=192.0.2.1", "api", Explanation{Override: -1, Why: "another rule replaces it"}},
		{"path=/v2/x host=h", "paths", Explanation{Override: -1, Why: `path is "/v2/x": want one that begins with "/v1/"`}},
		{"path=/v1/x", "paths", Explanation{Override: -1, Why: "there is no attribute host: want any"}},
		{"path=/v1/x host=h tokens=9", "paths", Explanation{Counter: "paths", Override: -1, Limit: 5, Cost: 1, Room: 5, Shadow: true}},
		{"user=root", "lists", Explanation{Override: -1, Why: "the caller is on its allow list"}},
		{"user=eve", "lists", Explanation{Counter: "lists", Override: -1, Barred: "the caller is on its deny list", Limit: 100, Cost: 1, Denies: true, RetryAfter: Never, Decides: true}},
		{"user=kristie", "keyed", Explanation{Override: -1, Why: "an attribute of its key is missing"}},
		{"api=secret", "must", Explanation{Counter: "must", Override: -1, Barred: "an attribute of its key is missing", Limit: 1, Cost: 1, Denies: true, RetryAfter: Never, Decides: true}},
		{"user=kristie", "none", Explanation{Override: -1, Why: "it limits nobody"}},
		{"user=kristie class=x", "classes", Explanation{Counter: "classes", Override: -1, Key: "kristie", Limit: 5, Cost: 1, Room: 5, Decides: true}},
	} {
		before := c.Stats()
		d, all := c.ExplainAt(noon, request(test.attrs), 1)
		if want := c.PeekAt(noon, request(test.attrs), 1); d != want {
			t.Errorf("%s: decision %+v, a peek says %+v", test.attrs, d, want)
		}
		deciding := 0
		for i, x := range all {
			if x.Rule != c.program.Load().entries[i].rule.Name {
				t.Fatalf("%s: rule %d is %s", test.attrs, i, x.Rule)
			}
			if x.Decides {
				deciding++
			}
			if x.Rule != test.rule {
				continue
			}
			if test.want.Rule = test.rule; x != test.want {
				t.Errorf("%s:\ngot  %+v\nwant %+v", test.attrs, x, test.want)
			}
		}
		if deciding > 1 || deciding == 0 && d.Rule != "" {
			t.Errorf("%s: %d rules decide", test.attrs, deciding)
		}
		if after := c.Stats(); after.LiveKeys != before.LiveKeys || after.Rules[0] != before.Rules[0] {
			t.Errorf("%s: explaining changed %+v to %+v", test.attrs, before, after)
		}
	}
}

// TestExplainOthers: what others are expected to have admitted is told apart from what is known.
func TestExplainOthers(t *testing.T) {
	s, c := newStore(t, Options{}, rule("r", 1000, time.Second, 1))
	l := limiter(t, c, "r")
	now := noon
	for range 40 {
		now += 5 * ms
		l.CheckAt(now, "k", 10)
		c.Receive(now, events.KindAlarm, s.elsewhere(t, l, "k", now, 10, 0))
		c.Step(now)
		for _, a := range s.answers(t) {
			c.Receive(now, events.KindRefresh, a)
		}
	}
	_, all := c.ExplainAt(now+3*ms, request("user=k"), 1)
	if x := all[0]; x.Count == 0 || x.Others <= 0 || float64(x.Room) > 1000-x.Count-x.Others+1 {
		t.Errorf("%+v", x)
	}
	if _, all := c.ExplainAt(now, request("user="+strings.Repeat("k", 9)), 1); all[0].Count != 0 || all[0].Others != 0 {
		t.Errorf("another key: %+v", all[0])
	}
}
