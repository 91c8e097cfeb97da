package envoylimit

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/offpath-io/offpath/pkg/rules/envoyrules"
)

// Hits are counted by the descriptor that limits them, as its own status has it.
func TestStats(t *testing.T) {
	checker := newChecker(t, `
domain: d
descriptors:
- key: a
  rate_limit: {unit: day, requests_per_unit: 10}
- key: a
  value: x*
  descriptors:
  - {key: a, value: y, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 2}}
- {key: free, rate_limit: {unlimited: true}}
- {key: shut, rate_limit: {unit: day, requests_per_unit: 0}}
`)
	service := New(checker, Options{})
	send := func(hits uint32, descriptors ...string) {
		t.Helper()
		r := request("d", hits)
		for _, d := range descriptors {
			r.Descriptors = append(r.Descriptors, newDescriptor(strings.Fields(d)...))
		}
		_, err := service.ShouldRateLimit(t.Context(), r)
		must(t, err)
	}
	for range 7 {
		send(1, "a=1") // 7, all within
	}
	send(2, "a=1")                     // 9: one is near
	send(2, "a=1")                     // over
	send(1, "a=1", "shut=1", "free=1") // within and near, although the request is denied
	send(1, "a=x1 a=y")                // within: 80 % of 2 is 1
	send(1, "a=x1 a=y")                // near
	send(3, "a=x1 a=y")                // over, in shadow
	send(1, "a=other b=1")             // matches nothing
	r := request("d", 1, withHits(newDescriptor("a=1"), 0))
	_, err := service.ShouldRateLimit(t.Context(), r) // costs nothing
	must(t, err)
	want := []Hits{
		{Domain: "d", Descriptor: "a", Total: 12, Within: 10, Near: 2, Over: 2},
		{Domain: "d", Descriptor: "a_x*.a_y", Total: 5, Within: 2, Near: 1, Over: 3, Shadow: 3},
		{Domain: "d", Descriptor: "shut", Total: 1, Over: 1},
	}
	if got := service.Stats(); !slices.Equal(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}

	// Descriptors that stay keep their counts, others go.
	set, err := envoyrules.Read([]byte("{domain: d, descriptors: [{key: a, rate_limit: {unit: hour, requests_per_unit: 5}}, {key: new, rate_limit: {unit: hour, requests_per_unit: 5}}]}"))
	must(t, err)
	must(t, checker.SetRules(set, 2))
	send(1, "new=1")
	want = []Hits{want[0], {Domain: "d", Descriptor: "new", Total: 1, Within: 1}}
	if got := service.Stats(); !slices.Equal(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

// However many descriptors there are, there are at most so many counters.
func TestStatsAreBounded(t *testing.T) {
	var text strings.Builder
	text.WriteString("domain: d\ndescriptors:\n")
	for i := range MaxStats + 5 {
		fmt.Fprintf(&text, "- {key: k%d, rate_limit: {unit: day, requests_per_unit: 9}}\n", i)
	}
	service := New(newChecker(t, text.String()), Options{})
	for _, key := range []int{0, MaxStats - 1, MaxStats, MaxStats + 4} {
		_, err := service.ShouldRateLimit(t.Context(), request("d", 1, newDescriptor(fmt.Sprintf("k%d=1", key))))
		must(t, err)
	}
	all := service.Stats()
	if len(all) != MaxStats+1 || all[0] != (Hits{Descriptor: OtherStats, Total: 2, Within: 2}) {
		t.Errorf("%d, the first is %+v", len(all), all[0])
	}
}

const quotas = `
domain: d
descriptors:
- {key: a, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
- {key: b, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 2}}
- {key: c, rate_limit: {unit: day, requests_per_unit: 3}}
`

// A request is denied if all of its limits with quota_mode are used up, or one of the others is.
func TestQuotaMode(t *testing.T) {
	service := New(newChecker(t, quotas), Options{Headers: RateLimitHeaders})
	a, b, c := newDescriptor("a=1"), newDescriptor("b=1"), newDescriptor("c=1")
	for i, want := range []string{
		"ok 0 of 1/day | ok 1 of 2/day | ok 2 of 3/day",
		"over 0 of 1/day | ok 0 of 2/day | ok 1 of 3/day overall OK",
		"over 0 of 1/day | over 0 of 2/day | ok 1 of 3/day",
	} {
		answer, err := service.ShouldRateLimit(t.Context(), request("d", 1, a, b, c))
		got, _, _ := strings.Cut(secondless(textOf(answer, err)), " ;")
		if got != want {
			t.Errorf("request %d: %s, want %s", i+1, got, want)
		}
		for _, h := range answer.ResponseHeadersToAdd {
			if h.Key == "Retry-After" && i < 2 {
				t.Errorf("request %d passes, and may be repeated after %s", i+1, h.Value)
			}
		}
	}
	answer, err := service.ShouldRateLimit(t.Context(), request("d", 1, c, a))
	if got := secondless(textOf(answer, err)); !strings.HasPrefix(got, "ok 1 of 3/day | over 0 of 1/day ;") {
		t.Errorf("the only one with quota_mode: %s", got)
	}
	answer, err = service.ShouldRateLimit(t.Context(), request("d", 2, c, newDescriptor("b=2")))
	if got := secondless(textOf(answer, err)); !strings.HasPrefix(got, "over 1 of 3/day | ok 2 of 2/day ;") {
		t.Errorf("one without it is over: %s", got)
	}
}

// secondless leaves out how long it is until the reset.
func secondless(text string) string {
	var words []string
	for _, word := range strings.Fields(text) {
		if !strings.HasSuffix(word, "s") || strings.Trim(word, "0123456789s") != "" {
			words = append(words, word)
		}
	}
	return strings.Join(words, " ")
}

// In shadow nothing is denied, and what is charged is charged.
func TestShadow(t *testing.T) {
	service := New(newChecker(t, quotas), Options{Shadow: true})
	inline, err := service.ShouldRateLimit(t.Context(), request("d", 2, withLimit(newDescriptor("x=1"), 1, typev3.RateLimitUnit_DAY), newDescriptor("c=1")))
	if got := secondless(textOf(inline, err)); got != "over 1 of 1/day | ok 1 of 3/day overall OK" {
		t.Error(got)
	}
}

// An entry whose key occurred before is an attribute of its own, also for rules of the own format.
func TestRepeatedKeys(t *testing.T) {
	service := New(newChecker(t, "rules: [{name: r, match: {domain: d, 'a#2': x}, key: ['domain#2'], limit: 1/day}]"), Options{})
	for i, want := range []string{"ok", "over", "ok"} {
		key := fmt.Sprint("domain=", i/2)
		answer, err := service.ShouldRateLimit(t.Context(), request("d", 1, newDescriptor("a=1", key, "a=x")))
		if got, _, _ := strings.Cut(textOf(answer, err), " "); got != want {
			t.Errorf("request %d: %s", i+1, got)
		}
	}
}
