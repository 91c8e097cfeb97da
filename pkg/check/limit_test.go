package check

import (
	"testing"

	"pgregory.net/rapid"
)

// TestDecisionLimit: a decision names as its limit what is allowed at the moment.
func TestDecisionLimit(t *testing.T) {
	const one = `rules:
  - {name: r, key: [user], limit: 10/minute, `
	room := 0.0
	signals := Options{Signals: map[string]func() float64{"cpu": func() float64 { return room }}}
	for _, test := range []struct {
		why, rules, attrs string
		want              int64
	}{
		{"a window", one + "algorithm: fixed_window}", "user=a", 10},
		{"a token bucket", one + "algorithm: token_bucket, burst: 30}", "user=a", 30},
		{"a leaky bucket", one + "algorithm: leaky_bucket, burst: 4}", "user=a", 4},
		{"soft", one + "throttle: soft, soft: {exceed: 10%}}", "user=a", 11},
		{"a soft bucket", one + "algorithm: token_bucket, burst: 30, throttle: soft, soft: {exceed: 10%}}", "user=a", 33},
		{"an override", one + "overrides: [{match: {tier: gold}, limit: 3x}]}", "user=a tier=gold", 30},
		{"a class", one + "priority: {by: class, shares: {default: 100%, low: 50%}}}", "user=a class=low", 5},
		{"a class of soft", one + "throttle: soft, soft: {exceed: 100%}, priority: {by: class, shares: {default: 100%, low: 50%}}}", "user=a class=low", 10},
		{"elastic with room", one + "throttle: elastic, elastic: {up_to: 150%, while: {signal: cpu, below: 50%}}}", "user=a", 15},
	} {
		t.Run(test.why, func(t *testing.T) {
			c := ofYAML(t, signals, test.rules)
			for i := range test.want + 2 {
				want := test.want
				if d := c.CheckAt(noon, request(test.attrs), 1); d.Limit != want || d.Remaining > want {
					t.Errorf("hit %d: %+v, want limit %d", i, d, want)
				}
			}
			if d := c.PeekAt(noon, request(test.attrs), 1); d.Limit != test.want {
				t.Errorf("peeked %+v, want limit %d", d, test.want)
			}
		})
	}
	c := ofYAML(t, signals, one+"throttle: elastic, elastic: {up_to: 150%, while: {signal: cpu, below: 50%}}}")
	room = 0.9
	for range 12 {
		if d := c.CheckAt(noon, request("user=a"), 1); d.Limit != 10 {
			t.Errorf("elastic without room: %+v", d)
		}
	}
}

// TestRemainingIsWithinTheLimit, whatever the rules.
func TestRemainingIsWithinTheLimit(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		text := anyClauses(rt)
		c := ofYAML(t, Options{}, text)
		now := noon
		for range rapid.IntRange(1, 60).Draw(rt, "requests") {
			now += rapid.SampledFrom([]int64{0, 1, 5 * ms, 50 * ms, 333 * ms, 1100 * ms}).Draw(rt, "pause")
			attrs, cost := anyRequest(rt), rapid.SampledFrom([]int64{1, 1, 2, 7, 30}).Draw(rt, "cost")
			for _, d := range []Decision{c.PeekAt(now, attrs, cost), c.CheckAt(now, attrs, cost)} {
				if d.Remaining > d.Limit {
					rt.Fatalf("%s\n%v costs %d: %+v", text, attrs, cost, d)
				}
			}
		}
	})
}
