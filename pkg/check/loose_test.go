package check

import (
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/rules"
)

// TestReportsSayWhatIsLoose: aggregators must not call it an overshoot when more than the limit passes as the rule wants it.
func TestReportsSayWhatIsLoose(t *testing.T) {
	while := rule("whole", 100, time.Second, 1)
	for _, tt := range []struct {
		why    string
		change func(*rules.Rule)
		want   bool
	}{
		{"a plain limit", func(*rules.Rule) {}, false},
		{"soft: the limit is a higher one", func(r *rules.Rule) { r.Throttle = rules.Throttle{Kind: rules.Soft, Exceed: 0.1} }, false},
		{"shadow", func(r *rules.Rule) { r.Shadow = true }, true},
		{"denied hits count", func(r *rules.Rule) { r.Count = rules.All }, true},
		{"elastic", func(r *rules.Rule) {
			r.Throttle = rules.Throttle{Kind: rules.Elastic, UpTo: 2, While: "whole", Below: 0.5}
		}, true},
		{"elastic and strict: permits are for no more", func(r *rules.Rule) {
			r.Throttle = rules.Throttle{Kind: rules.Elastic, UpTo: 2, While: "whole", Below: 0.5}
			r.Enforcement = rules.Strict
		}, false},
	} {
		r := rule("a", 10, time.Second, 1)
		tt.change(&r)
		f := newFleet(t, Options{}, r, while)
		if got := limiter(t, f.Checker, "a").wire(noon).GetLoose(); got != tt.want {
			t.Errorf("%s: loose is %v", tt.why, got)
		}
	}
	if !isOwn("own x") || isOwn("x") {
		t.Error("limits that requests bring along are told by their names")
	}
}
