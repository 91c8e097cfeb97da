package checker

import (
	"cmp"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/offpath-io/offpath/cmd/internal/daemon"
	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/pkg/envoylimit"
	"github.com/offpath-io/offpath/pkg/identity/httpidentity"
	"github.com/offpath-io/offpath/pkg/limitheaders"
)

// TestEverySetting sets each one by its flag. Each flag has a variable, as the tests of flags hold.
func TestEverySetting(t *testing.T) {
	defaults := readConfig(t, nil)
	want := config{
		rulesFrom: "r", listen: "127.0.0.1:8080", grpc: "127.0.0.1:8081", admin: "127.0.0.1:9090", namespace: "offpath", logLevel: slog.LevelInfo,
		flush: 50 * time.Millisecond, quietFor: time.Second, acquire: 20 * time.Millisecond, maxLiveKeys: 1 << 20, maxIdleKeys: 1 << 20,
		staleAfter: 3, shareAfter: 10, outageAfter: 300,
		onNoMatch: "allow", ipv6Prefix: 64, rateHeaders: limitheaders.Newest, proxy: "127.0.0.1:8088", answer: 30 * time.Second,
		trail: trail{logTo: "none", logSample: 1, logBytes: 256 << 20, logAge: 7 * 24 * time.Hour, traceSample: 0.01},
	}
	if defaults != want {
		t.Errorf("defaults\ngot  %+v\nwant %+v", defaults, want)
	}
	if c := readConfig(t, nil, "--grpc", ""); c.grpc != "" {
		t.Errorf("--grpc \"\": %q", c.grpc)
	}
	if c := readConfig(t, nil, "--shadow"); !c.shadow {
		t.Error("--shadow has no effect")
	}
	for _, test := range []struct {
		flag, value string
		set         func(*config)
	}{
		{"rules", "my.yaml", func(c *config) { c.rulesFrom = "my.yaml" }},
		{"on-no-match", "deny", func(c *config) { c.onNoMatch = "deny" }},
		{"name", "shop", func(c *config) { c.name = "shop" }},
		{"listen", ":80", func(c *config) { c.listen = ":80" }},
		{"grpc", "none", func(c *config) { c.grpc = "" }},
		{"envoy-headers", "x-ratelimit", func(c *config) { c.envoyHeaders = envoylimit.XRateLimitHeaders }},
		{"envoy-headers", "A,B,C", func(c *config) { c.envoyHeaders = envoylimit.Headers{Limit: "A", Remaining: "B", Reset: "C"} }},
		{"admin", ":90", func(c *config) { c.admin = ":90" }},
		{"namespace", "prod", func(c *config) { c.namespace = "prod" }},
		{"log-level", "error", func(c *config) { c.logLevel = slog.LevelError }},
		{"acquire", "0", func(c *config) { c.acquire = 0 }},
		{"flush", "5ms", func(c *config) { c.flush = 5 * time.Millisecond }},
		{"quiet-for", "5s", func(c *config) { c.quietFor = 5 * time.Second }},
		{"max-live-keys", "1", func(c *config) { c.maxLiveKeys = 1 }},
		{"key-hash", "secret", func(c *config) { c.keyHash = "secret" }},
		{"receipt-key-file", "secret", func(c *config) { c.receiptKeyFile = "secret" }},
		{"expect-checkers", "5", func(c *config) { c.expectCheckers = 5 }},
		{"stale-after", "2", func(c *config) { c.staleAfter = 2 }},
		{"share-after", "200", func(c *config) { c.shareAfter = 200 }},
		{"outage-after", "1000", func(c *config) { c.outageAfter = 1000 }},
		{"stop-delay", "5s", func(c *config) { c.stopDelay = 5 * time.Second }},
		{"decision-log", "none", func(*config) {}},
		{"decision-log", "nats,log", func(c *config) { c.logTo = "nats,log" }},
		{"decision-log-sample", "0.1", func(c *config) { c.logSample = 0.1 }},
		{"decision-log-bytes", "1048576", func(c *config) { c.logBytes = 1 << 20 }},
		{"decision-log-age", "24h", func(c *config) { c.logAge = 24 * time.Hour }},
		{"trace", "http://otel:4318", func(c *config) { c.traceTo = "http://otel:4318/v1/traces" }},
		{"trace-sample", "1", func(c *config) { c.traceSample = 1 }},
		{"max-idle-keys", "0", func(c *config) { c.maxIdleKeys = 0 }},
		{"trusted-proxies", "10.0.0.0/8, fd00::1", func(c *config) { c.trustedProxies = "10.0.0.0/8, fd00::1" }},
		{"forwarded-header", "forwarded", func(c *config) { c.forwarding = httpidentity.Forwarded }},
		{"ipv6-prefix", "48", func(c *config) { c.ipv6Prefix = 48 }},
		{"ratelimit-headers", "x-ratelimit", func(c *config) { c.rateHeaders = limitheaders.XTriple }},
		{"upstream", "http://127.0.0.1:3000", func(c *config) { c.upstream = "http://127.0.0.1:3000" }},
		{"proxy", ":88", func(c *config) { c.upstream, c.proxy = "http://u", ":88" }},
		{"upstream-timeout", "5s", func(c *config) { c.upstream, c.answer = "http://u", 5*time.Second }},
		{"charge-on", "401, 403", func(c *config) { c.upstream, c.chargeOn = "http://u", "401, 403" }},
		{"listen-cert", "c", func(c *config) { c.tls.http.Cert, c.tls.http.Key = "c", "k" }},
		{"listen-client-ca", "a", func(c *config) { c.tls.http = daemon.TLS{Cert: "c", Key: "k", ClientCA: "a"} }},
		{"grpc-cert", "c", func(c *config) { c.tls.grpc.Cert, c.tls.grpc.Key = "c", "k" }},
		{"admin-cert", "c", func(c *config) { c.tls.admin.Cert, c.tls.admin.Key = "c", "k" }},
		{"proxy-cert", "c", func(c *config) { c.upstream, c.tls.proxy.Cert, c.tls.proxy.Key = "http://u", "c", "k" }},
		{"upstream-ca", "a", func(c *config) { c.upstream, c.tls.upstream.Authorities = "https://u", "a" }},
		{"upstream-cert", "c", func(c *config) { c.upstream, c.tls.upstream.Cert, c.tls.upstream.Key = "https://u", "c", "k" }},
		{"nats-ca", "a", func(c *config) { c.nats, c.rulesFrom, c.access.CA = "nats://a", "r", "a" }},
		{"nats-cert", "c", func(c *config) { c.nats, c.rulesFrom, c.access.Cert, c.access.Key = "nats://a", "r", "c", "k" }},
		{"nats-creds", "c", func(c *config) { c.nats, c.rulesFrom, c.access.Creds = "nats://a", "r", "c" }},
		{"nats-nkey", "n", func(c *config) { c.nats, c.rulesFrom, c.access.NKey = "nats://a", "r", "n" }},
		{"nats-user", "u", func(c *config) { c.nats, c.rulesFrom, c.access.User, c.access.Password = "nats://a", "r", "u", "p" }},
		{"nats", "nats://a,nats://b", func(c *config) { c.nats, c.rulesFrom = "nats://a,nats://b", "r" }},
	} {
		want := defaults
		test.set(&want)
		environment := map[string]string{ // which some flags need beside them
			"OFFPATH_LISTEN_KEY": want.tls.http.Key, "OFFPATH_GRPC_KEY": want.tls.grpc.Key, "OFFPATH_ADMIN_KEY": want.tls.admin.Key,
			"OFFPATH_PROXY_KEY": want.tls.proxy.Key, "OFFPATH_NATS_KEY": want.access.Key,
			"OFFPATH_UPSTREAM_KEY": want.tls.upstream.Key, "OFFPATH_NATS_PASSWORD": want.access.Password,
		}
		if want.nats != "" {
			environment["OFFPATH_RULES"], environment["OFFPATH_NATS"] = "r", "nats://a"
		}
		if want.tls.http.ClientCA != "" {
			environment["OFFPATH_LISTEN_CERT"] = want.tls.http.Cert
		}
		if want.upstream != "" && test.flag != "upstream" {
			environment["OFFPATH_UPSTREAM"] = want.upstream
		}
		if got := readConfig(t, environment, "--"+test.flag, test.value); got != want {
			t.Errorf("--%s %s\ngot  %+v\nwant %+v", test.flag, test.value, got, want)
		}
	}
}

// readConfig returns the configuration that a good command line makes.
func readConfig(t *testing.T, env map[string]string, args ...string) (c config) {
	t.Helper()
	getenv := func(name string) string {
		if name == "OFFPATH_RULES" { // which are needed
			return cmp.Or(env[name], "r")
		}
		return env[name]
	}
	cmd := newCommand(getenv, func(_ *cobra.Command, got config) error {
		c = got
		return nil
	})
	var stderr strings.Builder
	e := flags.Environment{Prefix: "OFFPATH_", Getenv: getenv, Stdout: &stderr, Stderr: &stderr}
	if status := e.Run(t.Context(), cmd, args); status != 0 {
		t.Errorf("%q: status %d, %s", args, status, &stderr)
	}
	return c
}
