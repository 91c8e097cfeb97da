package check

import "testing"

// TestDecisionLimit: a decision names as its limit what is allowed at the moment.
func TestDecisionLimit(t *testing.T) {
	const (
		one     = `rules: [{name: r, key: [user], limit: 10/minute, `
		elastic = "throttle: elastic, elastic: {up_to: 150%, while: {signal: cpu, below: 50%}}"
		classes = "priority: {by: class, shares: {default: 100%, low: 50%}}"
	)
	for _, test := range []struct {
		why, rule, attrs string
		use              float64
		want             int64
	}{
		{"a window", "algorithm: fixed_window", "user=a", 0, 10},
		{"a token bucket", "algorithm: token_bucket, burst: 30", "user=a", 0, 30},
		{"a leaky bucket", "algorithm: leaky_bucket, burst: 4", "user=a", 0, 4},
		{"soft", "throttle: soft, soft: {exceed: 10%}", "user=a", 0, 11},
		{"a soft bucket", "algorithm: token_bucket, burst: 30, throttle: soft, soft: {exceed: 10%}", "user=a", 0, 33},
		{"an override", "overrides: [{match: {tier: gold}, limit: 3x}]", "user=a tier=gold", 0, 30},
		{"a class", classes, "user=a class=low", 0, 5},
		{"a class of soft", "throttle: soft, soft: {exceed: 100%}, " + classes, "user=a class=low", 0, 10},
		{"elastic with room", elastic, "user=a", 0, 15},
		{"elastic without", elastic, "user=a", 0.9, 10},
	} {
		signals := map[string]func() float64{"cpu": func() float64 { return test.use }}
		c := ofYAML(t, Options{Signals: signals}, one+test.rule+"}]")
		for i := range test.want + 2 {
			if d := c.CheckAt(noon, request(test.attrs), 1); d.Limit != test.want || d.Remaining > test.want {
				t.Errorf("%s, hit %d: %+v, want limit %d", test.why, i, d, test.want)
			}
		}
		if d := c.PeekAt(noon, request(test.attrs), 1); d.Limit != test.want {
			t.Errorf("%s: peeked %+v, want limit %d", test.why, d, test.want)
		}
	}
}
