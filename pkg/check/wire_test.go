package check

import (
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/rules"
)

// TestWireRule: what reports and lease requests say of a rule. Aggregators grant permits within the
// limit, and must not call it an overshoot if a loose rule lets more pass.
func TestWireRule(t *testing.T) {
	elastic := func(r *rules.Rule) {
		r.Throttle = rules.Throttle{Kind: rules.Elastic, UpTo: 2, While: "whole", Below: 0.5}
	}
	soft := func(r *rules.Rule) { r.Throttle = rules.Throttle{Kind: rules.Soft, Exceed: 0.25} }
	strict := func(r *rules.Rule) { r.Enforcement = rules.Strict }
	algorithm := func(a rules.Algorithm) func(*rules.Rule) { return func(r *rules.Rule) { r.Algorithm = a } }
	type changes []func(*rules.Rule)
	const sliding = events.Algorithm_SLIDING_WINDOW
	for _, test := range []struct {
		why          string
		changes      changes
		algorithm    events.Algorithm
		limit, burst uint64
		loose        bool
	}{
		{"a plain limit", nil, sliding, 100, 0, false},
		{"strict", changes{strict}, sliding, 100, 0, false},
		{"soft: the limit is a higher one", changes{soft}, sliding, 125, 0, false},
		{"soft and strict", changes{soft, strict}, sliding, 125, 0, false},
		{"elastic: more may pass", changes{elastic}, sliding, 100, 0, true},
		{"elastic and strict: permits are for no more", changes{elastic, strict}, sliding, 200, 0, false},
		{"shadow", changes{func(r *rules.Rule) { r.Shadow = true }}, sliding, 100, 0, true},
		{"denied hits count", changes{func(r *rules.Rule) { r.Count = rules.All }}, sliding, 100, 0, true},
		{"fixed window", changes{algorithm(rules.FixedWindow)}, events.Algorithm_FIXED_WINDOW, 100, 0, false},
		{"log", changes{algorithm(rules.SlidingLog)}, events.Algorithm_SLIDING_LOG, 100, 0, false},
		{"token bucket", changes{algorithm(rules.TokenBucket)}, events.Algorithm_TOKEN_BUCKET, 100, 100, false},
		{"leaky bucket", changes{algorithm(rules.LeakyBucket)}, events.Algorithm_LEAKY_BUCKET, 100, 100, false},
	} {
		r := rule("r", 100, time.Second, 1)
		for _, change := range test.changes {
			change(&r)
		}
		_, l := fleetAndLimiter(t, Options{}, r, rule("whole", 100, time.Second, 1))
		w := l.wire(noon)
		if w.Algorithm != test.algorithm || w.Limit != test.limit || w.Burst != test.burst || w.GetLoose() != test.loose {
			t.Errorf("%s: %v, want limit %d, burst %d, loose %v", test.why, w, test.limit, test.burst, test.loose)
		}
	}
	if !isOwn("own x") || isOwn("x") {
		t.Error("own limits have names of their own")
	}
}
