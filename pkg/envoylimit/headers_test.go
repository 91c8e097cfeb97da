package envoylimit

import (
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
		{"none unless asked for", NoHeaders, request("shop", 1, descriptor("user=ann")), ""},
		{"as envoyproxy/ratelimit", RateLimitHeaders, request("shop", 1, descriptor("user=ann")), "RateLimit-Limit 3, RateLimit-Remaining 2, RateLimit-Reset T"},
		{"as Envoy", XRateLimitHeaders, request("shop", 1, descriptor("user=ann")), "X-RateLimit-Limit 3, X-RateLimit-Remaining 2, X-RateLimit-Reset T"},
		{"a denial", RateLimitHeaders, request("shop", 3, descriptor("user=full")), "RateLimit-Limit 3, RateLimit-Remaining 2, RateLimit-Reset T, Retry-After T"},
		{"a denial for ever", RateLimitHeaders, request("shop", 4, descriptor("user=ann")), "RateLimit-Limit 3, RateLimit-Remaining 3, RateLimit-Reset T"},
		{"the nearest of several", RateLimitHeaders, request("shop", 1, descriptor("plan=a"), descriptor("user=ann"), descriptor("color=red")), "RateLimit-Limit 3, RateLimit-Remaining 2, RateLimit-Reset T"},
		{"the one that denies", RateLimitHeaders, request("shop", 3, descriptor("plan=a"), descriptor("user=full")), "RateLimit-Limit 3, RateLimit-Remaining 2, RateLimit-Reset T, Retry-After T"},
		{"no limit", RateLimitHeaders, request("shop", 1, descriptor("color=red")), ""},
		{"unlimited", RateLimitHeaders, request("shop", 1, descriptor("user=admin")), ""},
	} {
		service := New(newChecker(t, shop), Options{Headers: test.kind})
		if _, err := service.ShouldRateLimit(t.Context(), request("shop", 1, descriptor("user=full"))); err != nil {
			t.Fatal(err)
		}
		if got := headers(ask(t, client(t, service), test.request)); got != test.want {
			t.Errorf("%s: %q, want %q", test.why, got, test.want)
		}
	}
}

func TestSeconds(t *testing.T) {
	for d, want := range map[int64]int64{-5: 0, 0: 0, 1: 1, 1e9 - 1: 1, 1e9: 1, 1e9 + 1: 2} {
		if got := seconds(time.Duration(d)); got != want {
			t.Errorf("%d ns: %d s, want %d", d, got, want)
		}
	}
}
