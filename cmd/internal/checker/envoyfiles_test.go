package checker

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
)

// envoyFiles is a directory of files of envoyproxy/ratelimit, a domain each, with a limit per day
// of a.
func envoyFiles(t *testing.T, domains ...string) (dir string) {
	dir = t.TempDir()
	for _, domain := range domains {
		writeEnvoyFile(t, dir, domain, 1)
	}
	return dir
}

func writeEnvoyFile(t *testing.T, dir, domain string, limit int) {
	t.Helper()
	text := fmt.Sprintf("domain: %s\ndescriptors:\n- {key: a, rate_limit: {unit: day, requests_per_unit: %d}}\n", domain, limit)
	must(t, os.WriteFile(filepath.Join(dir, domain+".yaml"), []byte(text), 0o600))
}

// post asks /json about the descriptor a=1 of a domain.
func post(t *testing.T, d *daemontest.Daemon, domain string) (int, string) {
	t.Helper()
	body := fmt.Sprintf(`{"domain": %q, "descriptors": [{"entries": [{"key": "a", "value": "1"}]}]}`, domain)
	return daemontest.Do(t, "POST", strings.TrimSuffix(apiOf(d), "/v1/check")+"/json", body)
}

// TestFilesOfEnvoy: a directory of several domains is asked by JSON, counted by descriptor, and
// followed.
func TestFilesOfEnvoy(t *testing.T) {
	dir := envoyFiles(t, "shop", "mail")
	d := startChecker(t, "--rules", dir)
	for i, want := range []struct {
		domain, says string
		status       int
	}{
		{"shop", `"OK"`, 200}, {"shop", `"OVER_LIMIT"`, 429}, {"mail", `"OK"`, 200}, {"none", `"OK"`, 200}, {"", "domain must not be empty", 400},
	} {
		if status, text := post(t, d, want.domain); status != want.status || !strings.Contains(text, want.says) {
			t.Errorf("%d: %d %s", i, status, text)
		}
	}
	if status, text := daemontest.Do(t, "GET", strings.TrimSuffix(apiOf(d), "/v1/check")+"/healthcheck", ""); status != 200 || text != "OK" {
		t.Errorf("healthcheck: %d %s", status, text)
	}
	d.AwaitMetric(`offpath_envoy_hits_total{descriptor="a",domain="shop"}`, "2")
	equal(t, "over", d.Metric(`offpath_envoy_over_limit_hits_total{descriptor="a",domain="shop"}`), "1")

	writeEnvoyFile(t, dir, "more", 1)
	d.AwaitMetric("offpath_rules", "3")
	writeEnvoyFile(t, dir, "bad", -1)
	d.AwaitMetric("offpath_rules_refused", "1")
	equal(t, "rules in force", d.Metric("offpath_rules"), "3")
}

// TestInShadow: nobody is denied, and what would have been is counted.
func TestInShadow(t *testing.T) {
	d := startChecker(t, "--rules", envoyFiles(t, "shop"), "--shadow")
	for i := range 3 {
		if status, text := post(t, d, "shop"); status != 200 {
			t.Errorf("%d: %d %s", i, status, text)
		}
	}
	d.AwaitMetric(`offpath_envoy_shadow_mode_hits_total{descriptor="a",domain="shop"}`, "2")
	equal(t, "denied", d.Metric(`offpath_decisions_total{outcome="denied",rule="shop|a"}`), "2")
	if !strings.Contains(d.Stderr(), "in shadow: nobody is denied") {
		t.Errorf("the log does not say so:\n%s", d.Stderr())
	}
}

// TestNotHealthyWithoutRules: nothing is decided before there are rules.
func TestNotHealthyWithoutRules(t *testing.T) {
	fleet := startDemo(t)
	d := startChecker(t, "--nats", fleet.Find(`NATS +(nats://\S+)`), "--rules", "nats", "--namespace", "empty")
	if status, text := daemontest.Do(t, "GET", strings.TrimSuffix(apiOf(d), "/v1/check")+"/healthcheck", ""); status != 500 {
		t.Errorf("healthcheck: %d %s", status, text)
	}
	if status, text := post(t, d, "shop"); status != 503 || !strings.Contains(text, "no rules yet") {
		t.Errorf("/json: %d %s", status, text)
	}
}
