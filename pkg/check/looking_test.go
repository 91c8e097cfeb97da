package check

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/offpath-io/offpath/pkg/identity"
)

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

// TestLookingChangesNothing: whatever the rules, a checker that hashes keys, and one that peeks and explains before
// each request and gets equal rules again and again, decide as one that does none of it.
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
			seen := looks.PeekAt(now, attrs, cost)
			if d, _ := looks.ExplainAt(now, attrs, cost); d != seen {
				rt.Fatalf("%s\n%v peeked  %+v\nexplained %+v", text, attrs, seen, d)
			}
			if rapid.IntRange(0, 5).Draw(rt, "reload") == 0 {
				must(rt, looks.SetRulesAt(now, parse(t, text), uint64(i)))
			}
			bill := rapid.Int64Range(0, 9).Draw(rt, "bill")
			var all [3]Decision
			for j, c := range []*Checker{plain, hashes, looks} {
				all[j] = requestOf(rt, c, now, attrs, cost, i, bill)
			}
			require(rt, all[0] == all[1] && all[0] == all[2],
				"%s\n%v costs %d\nplain  %+v\nhashes %+v\nlooks  %+v", text, attrs, cost, all[0], all[1], all[2])
			d := all[2]
			same := d.Allowed == seen.Allowed && d.Shadow == seen.Shadow && d.Exceeded == seen.Exceeded && d.Status == seen.Status
			require(rt, i%5 == 0 || same, "%s\n%v costs %d\npeeked  %+v\nchecked %+v", text, attrs, cost, seen, d)
		}
	})
}

// requestOf makes the request of this number: a record, a check that is settled, or a check.
func requestOf(t *rapid.T, c *Checker, now int64, attrs identity.Attributes, cost int64, number int, bill int64) Decision {
	switch number % 5 {
	case 0:
		c.RecordAt(now, attrs, cost)
		return Decision{}
	case 1:
		d, token := c.CheckTokenAt(now, attrs, cost)
		if token != "" {
			must(t, c.SettleAt(now, token, bill))
		}
		return d
	}
	return c.CheckAt(now, attrs, cost)
}
