package envoylimit

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

const (
	hour  = typev3.RateLimitUnit_HOUR
	month = typev3.RateLimitUnit_MONTH
	year  = typev3.RateLimitUnit_YEAR
)

// An inline limit takes the place of the rules; hits of the same domain, keys, values and
// unit share a count.
func TestOwnLimit(t *testing.T) {
	c := client(t, New(newChecker(t, shop), Options{}))
	with := func(limit uint32, unit typev3.RateLimitUnit, entries ...string) *ratelimit.RateLimitDescriptor {
		return withLimit(newDescriptor(entries...), limit, unit)
	}
	for _, s := range []step{
		{"instead of the rule's 3 a day", request("shop", 5, with(10, month, "user=ann")), ok, 10, 5},
		{"a higher one has more room", request("shop", 6, with(20, month, "user=ann")), ok, 20, 9},
		{"a lower one has none", request("shop", 1, with(10, month, "user=ann")), over, 10, 0},
		{"the rule was not charged", request("shop", 1, newDescriptor("user=ann")), ok, 3, 2},
		{"where there is no rule", request("shop", 1, with(10, year, "color=red", "size=s")), ok, 10, 9},
		{"another value", request("shop", 1, with(10, year, "color=red", "size=m")), ok, 10, 9},
		{"another unit", request("shop", 1, with(10, month, "color=red", "size=s")), ok, 10, 9},
		{"another order", request("shop", 1, with(10, year, "size=s", "color=red")), ok, 10, 9},
		{"the same again", request("shop", 1, with(10, year, "color=red", "size=s")), ok, 10, 8},
		{"no entries", request("shop", 1, with(10, year)), ok, 10, 9},
		{"a limit of 0", request("shop", 1, with(0, year, "color=blue")), over, 0, 0},
		{"the highest limit", request("shop", 1, with(math.MaxUint32, year, "color=blue")), ok, math.MaxUint32, math.MaxUint32 - 1},
		{"only looked at", request("shop", 1, withHits(with(10, year, "color=red", "size=s"), 0)), ok, 10, 8},
		{"a domain that no rule speaks of", request("elsewhere", 100, with(10, year, "color=red", "size=s")), ok, 0, 0},
	} {
		s.run(t, c)
	}
	s := ask(t, c, request("shop", 1, times(with(10, hour, "color=red"), 36))).Statuses[0]
	if l := s.CurrentLimit; l.Unit.String() != "HOUR" || l.UnitMultiplier.GetValue() != 36 || s.DurationUntilReset.AsDuration() > 36*time.Hour {
		t.Errorf("10 per 36 hours: %v", s)
	}
}

// There are so many names of inline limits, and one more is refused; nothing else suffers.
func TestTooManyOwnLimits(t *testing.T) {
	service := New(newChecker(t, shop), Options{})
	c := client(t, service)
	for i := range check.MaxInlineLimits {
		if _, err := service.ShouldRateLimit(t.Context(), request("shop", 1, withLimit(newDescriptor(fmt.Sprintf("k%d=x", i)), 1, year))); err != nil {
			t.Fatal(err)
		}
	}
	r := request("shop", 1, newDescriptor("user=ann"), withLimit(newDescriptor("one=more"), 1, year))
	if _, err := c.ShouldRateLimit(t.Context(), r); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "too many names") {
		t.Errorf("%v", err)
	}
	if s := ask(t, c, request("shop", 1, newDescriptor("user=ann"))).Statuses[0]; s.LimitRemaining != 2 {
		t.Errorf("a refused request was charged: %v", s)
	}
}

// Names tell what is counted apart, and are names that a checker takes.
func TestOwnName(t *testing.T) {
	long := strings.Repeat("k", 200)
	seen := make(map[string]string)
	for _, of := range []identity.Attributes{
		{{Name: "domain", Value: "a"}, {Name: "b", Value: "1"}},
		{{Name: "domain", Value: "a|b"}},
		{{Name: "domain", Value: "a"}, {Name: "b|minute", Value: "1"}},
		{{Name: "domain", Value: "a\n"}},
		{{Name: "domain", Value: "a\\n"}},
		{{Name: "domain", Value: long}},
		{{Name: "domain", Value: long + "k"}},
		{{Name: "domain", Value: ""}, {Name: "", Value: ""}},
	} {
		for _, times := range []uint32{0, 2} {
			name := inlineName(of, 2, times)
			if before, taken := seen[name]; taken || name == "" || len(name) > check.MaxInlineName {
				t.Errorf("%v: %q, as %s", of, name, before)
			}
			seen[name] = fmt.Sprint(of, times)
		}
	}
	if got := inlineName(identity.Attributes{{Name: "domain", Value: "shop"}, {Name: "user", Value: "ann"}}, 2, 1); got != "shop|user|minute" {
		t.Errorf("%q", got)
	}
}

// Which domains rules speak of.
func TestKnownDomains(t *testing.T) {
	for _, test := range []struct {
		matches []string
		domain  string
		want    bool
	}{
		{[]string{"domain: a"}, "a", true},
		{[]string{"domain: a"}, "b", false},
		{[]string{"domain: a*"}, "ab", true},
		{[]string{"domain: a*"}, "b", false},
		{[]string{"domain: '*'"}, "b", true},
		{[]string{"user: ann"}, "b", true},
		{[]string{"domain: a", "domain: b"}, "b", true},
	} {
		text := "rules:"
		for i, match := range test.matches {
			text += fmt.Sprintf("\n- {name: r%d, key: [], limit: 1/s, match: {%s}}", i, match)
		}
		set, err := rules.Parse([]byte(text))
		must(t, err)
		if got := newPlan(set).knows(test.domain); got != test.want {
			t.Errorf("%q: %q is known: %v", test.matches, test.domain, got)
		}
	}
}

// Rules that change are gone by at once.
func TestRulesChange(t *testing.T) {
	checker := newChecker(t, shop)
	c := client(t, New(checker, Options{}))
	ask(t, c, request("shop", 1, newDescriptor("user=ann")))
	set, err := rules.Parse([]byte("rules: [{name: 'shop|user', match: {domain: shop}, key: [user], limit: 100/day, algorithm: fixed_window}]"))
	must(t, err)
	must(t, checker.SetRules(set, 1))
	if s := ask(t, c, request("shop", 1, newDescriptor("user=ann"))).Statuses[0]; s.CurrentLimit.GetRequestsPerUnit() != 100 || s.LimitRemaining != 98 {
		t.Errorf("%v", s)
	}
}
