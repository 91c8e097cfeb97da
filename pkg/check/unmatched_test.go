package check

import (
	"context"
	"testing"

	"github.com/offpath-io/offpath/internal/testing/alloctest"
	"github.com/offpath-io/offpath/pkg/identity"
)

// TestUnmatched: a request that no rule matches passes or is denied as DenyUnmatched says, in every
// mode, and is counted if it would have been charged. A rule that does not limit a caller is a
// match all the same; one that skips a request is none.
func TestUnmatched(t *testing.T) {
	const text = `rules:
  - {name: limited, match: {api: a}, key: [user], limit: 5/minute, allow: {user: [root]}, overrides: [{match: {user: vip}, limit: unlimited}]}
  - {name: free, match: {api: free}, unlimited: true}
  - {name: shadowed, match: {api: shadow}, key: [], limit: 5/minute, shadow: true}
  - {name: strict, match: {api: strict}, key: [user], limit: 5/minute, enforcement: strict}`
	for _, tt := range []struct {
		attrs   string
		matches bool
	}{
		{"api=a user=k", true},
		{"api=a user=root", true},
		{"api=a user=vip", true},
		{"api=free", true},
		{"api=shadow", true},
		{"api=b user=k", false},
		{"api=a", false}, // the key is missing, so the rule is skipped
		{"", false},
	} {
		for _, denies := range []bool{false, true} {
			c := ofYAML(t, Options{DenyUnmatched: denies}, text)
			attrs := request(tt.attrs)
			want := Decision{Allowed: !denies, Unmatched: true, Freshness: Local}
			if denies {
				want.Status, want.RetryAfter = 403, Never
			}
			same := func(mode string, d Decision) {
				t.Helper()
				switch {
				case tt.matches && (d.Unmatched || !d.Allowed):
					t.Errorf("%s of %q: %+v, want one that matches", mode, tt.attrs, d)
				case !tt.matches && d != want:
					t.Errorf("%s of %q: got %+v, want %+v", mode, tt.attrs, d, want)
				}
			}
			same("peek", c.Do(Request{Attributes: attrs, Mode: Peek}).Decision)
			same("explain", c.Do(Request{Attributes: attrs, Mode: Explain}).Decision)
			if standing := c.Do(Request{Attributes: attrs, Mode: Standing}); len(standing.Explanations) == 0 {
				same("standing", standing.Decision)
			}
			c.Do(Request{Attributes: attrs, Mode: Record})
			if got := c.Stats().Unmatched; got != 0 {
				t.Errorf("%q: %d counted before any request was charged", tt.attrs, got)
			}
			same("check", c.Check(attrs, 1))
			same("receipt", c.Do(Request{Attributes: attrs, Receipt: true}).Decision)
			same("reserve", c.Do(Request{Attributes: attrs, Mode: Reserve}).Decision)
			for _, mode := range []Mode{Charge, Reserve} {
				waited, err := c.Wait(context.Background(), Request{Attributes: attrs, Mode: mode})
				must(t, err)
				if !tt.matches { // the fifth hit of a limit of 5 is one too many after Record
					same("wait", waited.Decision)
				}
			}
			counted := int64(5)
			if tt.matches {
				counted = 0
			}
			if got := c.Stats().Unmatched; got != counted {
				t.Errorf("%q: %d counted, want %d", tt.attrs, got, counted)
			}
		}
	}
}

// TestUnmatchedByKey: a limiter needs no rule to match.
func TestUnmatchedByKey(t *testing.T) {
	c := ofYAML(t, Options{DenyUnmatched: true}, "rules: [{name: r, match: {api: a}, key: [user], limit: 5/minute}]")
	l, _ := c.Limiter("r")
	if d := l.Check("k", 1); !d.Allowed || d.Unmatched {
		t.Errorf("%+v", d)
	}
}

// TestUnmatchedAllocatesNothing, whichever way it is decided.
func TestUnmatchedAllocatesNothing(t *testing.T) {
	for _, denies := range []bool{false, true} {
		c := ofYAML(t, Options{DenyUnmatched: denies}, "rules: [{name: r, match: {api: a}, key: [user], limit: 5/minute}]")
		attrs := identity.Attributes{{Name: "api", Value: "b"}}
		alloctest.AtMost(t, 0, "a request that no rule matches", func() { c.Check(attrs, 1) })
	}
}
