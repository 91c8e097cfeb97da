package envoylimit

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// headers are those of an answer, as text.
func headers(r *ratelimitv3.RateLimitResponse) string {
	var all []string
	for _, h := range r.ResponseHeadersToAdd {
		value := h.Value
		if n, err := strconv.Atoi(value); err == nil && n >= 1 && (strings.HasSuffix(h.Key, "-Reset") || h.Key == "Retry-After") {
			value = "T" // whatever the time is
		}
		all = append(all, h.Key+" "+value)
	}
	return strings.Join(all, ", ")
}

func TestHeaders(t *testing.T) {
	for _, test := range []struct {
		why     string
		kind    Headers
		request *ratelimitv3.RateLimitRequest
		want    string
	}{
		{"none unless asked for", Headers{}, request("shop", 1, newDescriptor("user=ann")), ""},
		{"as envoyproxy/ratelimit", RateLimitHeaders, request("shop", 1, newDescriptor("user=ann")), "RateLimit-Limit 3, RateLimit-Remaining 2, RateLimit-Reset T"},
		{"as Envoy", XRateLimitHeaders, request("shop", 1, newDescriptor("user=ann")), "X-RateLimit-Limit 3, X-RateLimit-Remaining 2, X-RateLimit-Reset T"},
		{"of other names", Headers{"X-Limit", "X-Left", "X-Reset"}, request("shop", 3, newDescriptor("user=full")), "X-Limit 3, X-Left 2, X-Reset T, Retry-After T"},
		{"a denial", RateLimitHeaders, request("shop", 3, newDescriptor("user=full")), "RateLimit-Limit 3, RateLimit-Remaining 2, RateLimit-Reset T, Retry-After T"},
		{"a denial for ever", RateLimitHeaders, request("shop", 4, newDescriptor("user=ann")), "RateLimit-Limit 3, RateLimit-Remaining 3, RateLimit-Reset T"},
		{"the nearest of several", RateLimitHeaders, request("shop", 1, newDescriptor("plan=a"), newDescriptor("user=ann"), newDescriptor("color=red")), "RateLimit-Limit 3, RateLimit-Remaining 2, RateLimit-Reset T"},
		{"the one that denies", RateLimitHeaders, request("shop", 3, newDescriptor("plan=a"), newDescriptor("user=full")), "RateLimit-Limit 3, RateLimit-Remaining 2, RateLimit-Reset T, Retry-After T"},
		{"no limit", RateLimitHeaders, request("shop", 1, newDescriptor("color=red")), ""},
		{"unlimited", RateLimitHeaders, request("shop", 1, newDescriptor("user=admin")), ""},
	} {
		service := New(newChecker(t, shop), Options{Headers: test.kind})
		if _, err := service.ShouldRateLimit(t.Context(), request("shop", 1, newDescriptor("user=full"))); err != nil {
			t.Fatal(err)
		}
		if got := headers(ask(t, client(t, service), test.request)); got != test.want {
			t.Errorf("%s: %q, want %q", test.why, got, test.want)
		}
	}
}

func TestUnitOfAnyWindow(t *testing.T) {
	for _, test := range []struct {
		length time.Duration
		unit   ratelimitv3.RateLimitResponse_RateLimit_Unit
		times  uint32 // 0: none
	}{
		{time.Second, ratelimitv3.RateLimitResponse_RateLimit_SECOND, 0},
		{time.Minute, ratelimitv3.RateLimitResponse_RateLimit_MINUTE, 0},
		{90 * time.Second, ratelimitv3.RateLimitResponse_RateLimit_SECOND, 90},
		{10 * time.Minute, ratelimitv3.RateLimitResponse_RateLimit_MINUTE, 10},
		{24 * time.Hour, ratelimitv3.RateLimitResponse_RateLimit_DAY, 0},
		{14 * day, ratelimitv3.RateLimitResponse_RateLimit_WEEK, 2},
		{60 * day, ratelimitv3.RateLimitResponse_RateLimit_MONTH, 2},
		{365 * day, ratelimitv3.RateLimitResponse_RateLimit_YEAR, 0},
		{366 * day, ratelimitv3.RateLimitResponse_RateLimit_DAY, 366},
		{250 * time.Millisecond, ratelimitv3.RateLimitResponse_RateLimit_UNKNOWN, 0},
		{1500 * time.Millisecond, ratelimitv3.RateLimitResponse_RateLimit_UNKNOWN, 0},
	} {
		got := limitOf("r", math.MaxInt64, test.length)
		if got.Unit != test.unit || got.GetUnitMultiplier().GetValue() != test.times || got.RequestsPerUnit != math.MaxUint32 {
			t.Errorf("%v: %v", test.length, got)
		}
	}
}

func TestHeadersAsText(t *testing.T) {
	for text, want := range map[string]Headers{
		"none": {}, "ratelimit": RateLimitHeaders, "x-ratelimit": XRateLimitHeaders, "A,b-c,d": {"A", "b-c", "d"},
	} {
		got, err := ParseHeaders(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	if got, err := ParseHeaders("A, B, C"); err != nil || got != (Headers{"A", "B", "C"}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, text := range []string{"", "all", "a,b", "a,b,c,d", "a,,c", "a,b c,d"} {
		if got, err := ParseHeaders(text); err == nil || !strings.Contains(err.Error(), "three names") {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
}
