package checker

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
)

// TestOnNoMatch: requests that no rule matches pass, or are denied by --on-no-match deny, at each
// API, with an answer that says so; and they are counted.
func TestOnNoMatch(t *testing.T) {
	service := httptest.NewServer(http.NotFoundHandler())
	defer service.Close()
	const rules = "rules: [{name: r, match: {path: /api/*}, key: [], limit: 100/day}]"
	args := []string{"--rules", writeFile(t, rules), "--upstream", service.URL, "--proxy", "127.0.0.1:0"}
	for _, denies := range []bool{false, true} {
		if denies {
			args = append(args, "--on-no-match", "deny")
		}
		d := startChecker(t, args...)
		want := func(allowed int) int {
			if denies {
				return http.StatusForbidden
			}
			return allowed
		}
		says := func(api, body, words string) {
			t.Helper()
			if strings.Contains(body, words) != denies {
				t.Errorf("%s: %s", api, body)
			}
		}
		if a := asks(t, d, `{"attributes":{"path":"/"}}`, want(200)); !a.Unmatched || a.Rule != nil || (a.RetryAfterMS == nil) != denies {
			t.Errorf("HTTP: %+v", a)
		}
		if a := asks(t, d, `{"attributes":{"path":"/api/"}}`, 200); a.Unmatched {
			t.Errorf("HTTP, where a rule matches: %+v", a)
		}
		_, text := daemontest.Do(t, "POST", strings.Replace(apiOf(d), "check", "explain", 1), `{"attributes":{"path":"/"}}`)
		if !strings.Contains(text, fmt.Sprintf(`{"decision":{"allowed":%v,`, !denies)) || !strings.Contains(text, `"unmatched":true`) {
			t.Errorf("explained: %s", text)
		}
		h, body := get(t, want(200), "GET", authOf(d), "X-Forwarded-Uri: /a")
		says("forward-auth", body, "No rule matches the request")
		if h.Get("Retry-After") != "" {
			t.Errorf("forward-auth: %v", h)
		}
		get(t, 200, "GET", authOf(d), "X-Forwarded-Uri: /api/a")
		_, body = get(t, want(404), "GET", proxyOf(d)+"/a")
		says("proxy", body, "No rule matches the request")
		get(t, 404, "GET", proxyOf(d)+"/api/a")
		answer := askEnvoy(t, grpcOf(t, d), letter("kristie", 1, 0))
		says("RLS", string(answer.RawBody), "no rule matches the request")
		if (answer.OverallCode == ratelimitv3.RateLimitResponse_OVER_LIMIT) != denies {
			t.Errorf("RLS: %v", answer)
		}
		d.AwaitMetric("offpath_unmatched_requests_total", "4")
		d.MustStop()
	}
}
