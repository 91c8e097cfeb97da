package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
)

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// anywhere keeps a daemon that starts by mistake off the default ports.
var anywhere = []string{"--listen", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--admin", "127.0.0.1:0"}

func TestUsageErrors(t *testing.T) {
	tests := []struct {
		args string
		env  string
		want string // in stderr
	}{
		{"--loud", "", "unknown flag --loud"},
		{"start", "", `argument "start"`},
		{"--listen", "", "--listen: needs a value"},
		{"--listen 8080", "", "--listen"},
		{"--admin nowhere", "", "--admin"},
		{"--grpc 8081", "", "--grpc"},
		{"--envoy-headers all", "", "--envoy-headers"},
		{"--nats http://x --rules r", "", "--nats"},
		{"--nats nats://127.0.0.1:1", "", "it needs --rules FILE too"},
		{"", "OFFPATH_NATS=nats://127.0.0.1:1", "it needs --rules FILE too"},
		{"--namespace a.b", "", "--namespace"},
		{"--log-level loud", "", "--log-level"},
		{"--flush 0s", "", "--flush"},
		{"--flush 2m", "", "--flush"},
		{"--acquire -1ms", "", "--acquire"},
		{"--acquire 2m", "", "--acquire"},
		{"--max-live-keys 0", "", "--max-live-keys"},
		{"--max-live-keys x", "", "--max-live-keys"},
		{"--max-idle-keys -1", "", "--max-idle-keys"},
		{"--trusted-proxies localhost", "", "--trusted-proxies: trusted proxy 1"},
		{"--trusted-proxies 10.0.0.0/8,,::1", "", "--trusted-proxies: trusted proxy 2"},
		{"--forwarded-header X-Real-IP", "", "--forwarded-header"},
		{"--ipv6-prefix 0", "", "--ipv6-prefix"},
		{"--ipv6-prefix 129", "", "--ipv6-prefix"},
		{"--ratelimit-headers 99", "", "--ratelimit-headers"},
		{"--upstream localhost:3000", "", "--upstream: unknown scheme"},
		{"--upstream http://me:geheim@a", "", "--upstream: a URL with a user"},
		{"--upstream http://a --proxy a", "", "--proxy"},
		{"--upstream http://a --upstream-timeout 0s", "", "--upstream-timeout"},
		{"--upstream http://a --charge-on 4xx", "", "--charge-on"},
		{"--upstream http://a --charge-on 100", "", "--charge-on"},
		{"--proxy 127.0.0.1:0", "", "--proxy is for the reverse proxy: it needs --upstream"},
		{"--charge-on 401", "", "it needs --upstream"},
		{"", "OFFPATH_UPSTREAM_TIMEOUT=1s", "it needs --upstream"},
		{"", "OFFPATH_LOG_LEVEL=loud", "OFFPATH_LOG_LEVEL"},
		{"", "OFFPATH_FLUSH=never", "OFFPATH_FLUSH"},
		{"", "OFFPATH_LISTEN=8080", "OFFPATH_LISTEN"},
		{"", "OFFPATH_ADMIN=x", "OFFPATH_ADMIN"},
		{"", "OFFPATH_NAMESPACE=*", "OFFPATH_NAMESPACE"},
		{"", "OFFPATH_NATS=ftp://x", "OFFPATH_NATS"},
		{"", "OFFPATH_MAX_LIVE_KEYS=0", "OFFPATH_MAX_LIVE_KEYS"},
		{"", "OFFPATH_MAX_IDLE_KEYS=x", "OFFPATH_MAX_IDLE_KEYS"},
	}
	for _, test := range tests {
		t.Run(test.args+test.env, func(t *testing.T) {
			name, value, _ := strings.Cut(test.env, "=")
			status, stdout, stderr := daemontest.Run(t, run, map[string]string{name: value}, strings.Fields(test.args)...)
			if status != 2 || !strings.Contains(stderr, test.want) || stdout != "" {
				t.Errorf("status %d, want 2 and %q\nstdout %q\nstderr %q", status, test.want, stdout, stderr)
			}
		})
	}
}

func TestHelpAndVersion(t *testing.T) {
	status, stdout, stderr := daemontest.Run(t, run, nil, "--help")
	if status != 0 || stderr != "" {
		t.Errorf("status %d, stderr %q", status, stderr)
	}
	for _, flag := range []string{
		"rules", "nats", "listen", "grpc", "envoy-headers", "admin", "namespace", "log-level", "flush", "acquire", "max-live-keys", "max-idle-keys",
	} {
		variable := "OFFPATH_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
		if !strings.Contains(stdout, "--"+flag+" ") || !strings.Contains(stdout, variable) {
			t.Errorf("help says nothing of --%s, %s:\n%s", flag, variable, stdout)
		}
	}
	status, stdout, stderr = daemontest.Run(t, run, nil, "--version")
	if status != 0 || !strings.HasPrefix(stdout, "offpath checker ") || stderr != "" {
		t.Errorf("status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
}

func TestWhatCannotStart(t *testing.T) {
	bad := writeFile(t, "rules:\n  - name: a\n    key: [user]\n    limit: 15/fortnight\n")
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"rules that are wrong", []string{"--rules", bad}, bad + ":4:12: limit:"},
		{"no such file", []string{"--rules", filepath.Join(t.TempDir(), "none.yaml")}, "load rules"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			status, stdout, stderr := daemontest.Run(t, run, nil, append(test.args, anywhere...)...)
			if status != 1 || !strings.Contains(stderr, test.want) || stdout != "" {
				t.Errorf("status %d, want 1 and %q\nstdout %q\nstderr %q", status, test.want, stdout, stderr)
			}
		})
	}
}
