package envoylimit

import (
	"strings"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/offpath-io/offpath/internal/testing/rulestest"
	"github.com/offpath-io/offpath/pkg/check"
)

// TestUnmatched: where requests that no rule matches are denied, one that has several descriptors
// passes if a rule matches any of them. Each such request counts once.
func TestUnmatched(t *testing.T) {
	const text = "rules: [{name: r, match: {domain: d}, key: [user], limit: 10/day}, {name: free, match: {user: root}, unlimited: true}]"
	for _, denies := range []bool{false, true} {
		checker, err := check.New(check.Options{Rules: rulestest.Parse(t, text), DenyUnmatched: denies})
		must(t, err)
		c := client(t, New(checker, Options{}))
		counted := int64(0)
		for _, tt := range []struct {
			why, domain, descriptors string
			matches                  bool
		}{
			{"a rule matches", "d", "user=a", true},
			{"a rule exempts", "e", "user=root", true},
			{"no rule matches", "d", "path=/", false},
			{"no rule matches the domain", "e", "user=a", false},
			{"a rule matches the first", "d", "user=a path=/", true},
			{"a rule matches the second", "d", "path=/ user=a", true},
			{"a rule exempts the second", "e", "user=a user=root", true},
			{"no rule matches either", "e", "user=a path=/", false},
		} {
			var all []*ratelimit.RateLimitDescriptor
			for one := range strings.FieldsSeq(tt.descriptors) {
				all = append(all, newDescriptor(one))
			}
			answer := ask(t, c, request(tt.domain, 1, all...))
			want := ok
			if !tt.matches {
				counted++
				if denies {
					want = over
				}
			}
			says := strings.Contains(string(answer.RawBody), "no rule matches")
			if answer.OverallCode != want || says != (want == over) {
				t.Errorf("%s: %v", tt.why, answer)
			}
			for _, s := range answer.Statuses {
				if s.Code != want {
					t.Errorf("%s: %v", tt.why, answer)
				}
			}
			if got := checker.Stats().Unmatched; got != counted {
				t.Errorf("%s: %d requests counted, want %d", tt.why, got, counted)
			}
		}
		if got := checker.Stats().Rules[0].Charged; got != 3 {
			t.Errorf("%d hits charged, want 3", got)
		}
	}
}
