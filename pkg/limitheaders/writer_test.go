package limitheaders_test

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/testing/rulestest"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/limitheaders"
)

const someRules = `
rules:
  - {name: per-user, key: [user], limit: 15/second}
  - {name: per-day, key: [user], limit: 500/day}
  - {name: quick, key: [user], limit: 5/250ms}
  - {name: grün%, key: [user], limit: 5/minute}
  - {name: 'say"when"', key: [user], limit: 5/minute}
  - {name: huge, key: [user], limit: 1000000000000000/day}
  - {name: free, key: [user], unlimited: true}
  - name: tiers
    key: [user]
    limit: 10/second
    overrides:
      - {match: {tier: gold}, limit: 10x}
      - {match: {tier: silver}, limit: 70/minute}
      - {match: {tier: old}, limit: 70/hour}
      - {match: {tier: new}, limit: 10/minute}
      - {match: {tier: bad}, limit: blocked}
`

// passed and denied are decisions by a rule.
func passed(rule string, limit, remaining int64, reset time.Duration) check.Decision {
	return check.Decision{Allowed: true, Rule: rule, Limit: limit, Remaining: remaining, Reset: reset}
}

func denied(rule string, limit int64, retry, reset time.Duration) check.Decision {
	return check.Decision{Rule: rule, Status: 429, Limit: limit, RetryAfter: retry, Reset: reset}
}

func TestHeaders(t *testing.T) {
	set := rulestest.Parse(t, someRules)
	const ms, day = time.Millisecond, 24 * time.Hour
	draft := func(policy, state string) []string { return []string{"RateLimit-Policy", policy, "RateLimit", state} }
	triple := func(prefix, limit, left, reset string) []string {
		return []string{prefix + "-Limit", limit, prefix + "-Remaining", left, prefix + "-Reset", reset}
	}
	for _, tt := range []struct {
		why  string
		f    limitheaders.Format
		d    check.Decision
		want []string // names and values
	}{
		{"the newest by default", 0, passed("per-user", 15, 14, time.Second), draft(`"per-user";q=15;w=1`, `"per-user";r=14;t=1`)},
		{"times are rounded up", 9, passed("per-user", 15, 0, 1001*ms), draft(`"per-user";q=15;w=1`, `"per-user";r=0;t=2`)},
		{"at once is in a second", 9, denied("per-user", 15, 0, 2*time.Second), draft(`"per-user";q=15;w=1`, `"per-user";r=0;t=1`)},
		{"never: the window's", 9, denied("per-user", 15, check.Never, 2000*ms), draft(`"per-user";q=15;w=1`, `"per-user";r=0;t=2`)},
		{"draft 7", 7, passed("per-user", 15, 14, time.Second), draft(`15;w=1`, `limit=15, remaining=14, reset=1`)},
		{"draft 6", 6, passed("per-user", 15, 14, time.Second),
			append(triple("RateLimit", "15", "14", "1"), "RateLimit-Policy", "15;w=1")},
		{"the triple", limitheaders.Triple, passed("per-user", 15, 14, time.Second), triple("RateLimit", "15", "14", "1")},
		{"the older one", limitheaders.XTriple, denied("per-day", 500, time.Hour, 2*day), triple("X-RateLimit", "500", "0", "3600")},
		{"none", limitheaders.None, passed("per-user", 15, 14, time.Second), nil},
		{"no rule", 0, check.Decision{Allowed: true}, nil},
		{"a rule of another set", 0, passed("gone", 15, 14, time.Second), nil},
		{"a rule that limits nobody", 0, passed("free", 15, 14, time.Second), nil},
		{"a window has a second at least", 0, passed("quick", 5, 4, 250*ms), draft(`"quick";q=5;w=1`, `"quick";r=4;t=1`)},
		{"names are ASCII", 0, passed("grün%", 5, 4, time.Minute), draft(`"gr%C3%BCn%25";q=5;w=60`, `"gr%C3%BCn%25";r=4;t=60`)},
		{"and quoted", 0, passed(`say"when"`, 5, 4, time.Minute), draft(`"say\"when\"";q=5;w=60`, `"say\"when\"";r=4;t=60`)},
		{"numbers have 15 digits", 0, passed("huge", 1e15, 1e15, day),
			draft(`"huge";q=999999999999999;w=86400`, `"huge";r=999999999999999;t=86400`)},
		{"nothing is negative", 0, passed("per-user", 15, -1, -time.Second), draft(`"per-user";q=15;w=1`, `"per-user";r=0;t=0`)},
		{"a factor keeps the window", 0, passed("tiers", 100, 99, time.Second), draft(`"tiers";q=100;w=1`, `"tiers";r=99;t=1`)},
		{"two overrides' windows: none", 0, passed("tiers", 70, 69, time.Minute), draft(`"tiers";q=70`, `"tiers";r=69;t=60`)},
		{"an override's and the rule's: none", 0, passed("tiers", 10, 9, time.Minute), draft(`"tiers";q=10`, `"tiers";r=9;t=60`)},
		{"so no policy", 7, passed("tiers", 10, 9, time.Minute), []string{"RateLimit", `limit=10, remaining=9, reset=60`}},
	} {
		t.Run(tt.why, func(t *testing.T) {
			want := http.Header{}
			for i := 0; i < len(tt.want); i += 2 {
				want.Set(tt.want[i], tt.want[i+1])
			}
			w := limitheaders.NewWriter(tt.f, set)
			for range 2 { // the texts are made, and then kept
				got := http.Header{}
				if w.Write(got, tt.d); !maps.EqualFunc(got, want, equal) {
					t.Errorf("%+v gives\n%q, want\n%q", tt.d, got, want)
				}
			}
		})
	}
}

func equal(a, b []string) bool { return strings.Join(a, "\n") == strings.Join(b, "\n") }

// Who decides later tells it in place of who did earlier, and what is appended to one header is not
// in another.
func TestHeadersAreReplaced(t *testing.T) {
	set := rulestest.Parse(t, someRules)
	h := http.Header{}
	limitheaders.NewWriter(7, set).Write(h, passed("per-user", 15, 14, time.Second))
	h.Add("RateLimit-Policy", "y") // this first: its memory is before the other's
	h.Add("RateLimit", "x")
	if want := (http.Header{"Ratelimit-Policy": {"15;w=1", "y"}, "Ratelimit": {"limit=15, remaining=14, reset=1", "x"}}); !maps.EqualFunc(h, want, equal) {
		t.Errorf("%q", h)
	}
	limitheaders.NewWriter(7, set).Write(h, passed("tiers", 10, 9, time.Second))
	if want := (http.Header{"Ratelimit": {"limit=10, remaining=9, reset=1"}}); !maps.EqualFunc(h, want, equal) {
		t.Errorf("%q", h)
	}
}

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		text string
		want limitheaders.Format
	}{
		{"4", 4}, {"5", 5}, {"6", 6}, {"7", 7}, {"8", 8}, {"9", 9}, {"10", 10}, {"11", limitheaders.Newest},
		{"none", limitheaders.None}, {"ratelimit", limitheaders.Triple}, {"x-ratelimit", limitheaders.XTriple},
	} {
		got, err := limitheaders.Parse(tt.text)
		if err != nil || got != tt.want || got.String() != tt.text {
			t.Errorf("%q: %v, %v", tt.text, got, err)
		}
	}
	for _, text := range []string{"", "0", "-1", "3", "12", "99999999999999999999", "eleven", "None", " 7"} {
		if got, err := limitheaders.Parse(text); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", text)) || !strings.Contains(err.Error(), "4 to 11") {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	if got := limitheaders.Format(0).String(); got != "11" {
		t.Errorf("the default is %q", got)
	}
}
