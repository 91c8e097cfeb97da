package main

import (
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/internal/redisconn"
	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/pkg/events"
)

func TestMain(m *testing.M) {
	redis.SetLogger(redisconn.Silence{})
	os.Exit(m.Run())
}

var (
	must = daemontest.Must
	ends = daemontest.Ends(run, canary)
)

// equal fails the test unless both are the same.
func equal[T comparable](t testing.TB, what any, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%v: got %v, want %v", what, got, want)
	}
}

// TestUsageErrors: what cannot be meant ends with status 2, before anything is tried, and no error
// repeats a secret.
func TestUsageErrors(t *testing.T) {
	const both, secure = "--nats nats://127.0.0.1:1 --redis redis://127.0.0.1:1 ", "--nats a --redis rediss://a "
	for _, test := range []struct{ args, env, want string }{
		{"--redis redis://127.0.0.1:1", "", "--nats URL is needed"},
		{"--nats nats://127.0.0.1:1", "", "--redis URL is needed"},
		{both + "start", "", `argument "start"`},
		{"nats://u:geheim@127.0.0.1:1", "", `argument "nats://xxxxx@127.0.0.1:1": want`},
		{secure + "--redis-cert c", "", "--redis-cert and --redis-key need each other"},
		{"--nats a --redis redis://a --redis-ca c", "", "no certificates without TLS"},
		{secure + "--redis-user u", "", "--redis-user needs a password"},
		{"--nats a --redis redis://u:" + canary + "@a --redis-password-file f", "", "want one of them"},
		{"--nats a --redis redis://u:p@a", "OFFPATH_REDIS_PASSWORD=" + canary, "want one of them"},
		{"--nats nats://u:" + canary + "@a --redis redis://a --nats-nkey n", "", "want one of them"},
		{secure + "--admin-key k", "", "--admin-cert and --admin-key need each other"},
		{secure + "--redis-password " + canary, "", "--redis-password: a secret: want it in the environment"},
	} {
		name, value, _ := strings.Cut(test.env, "=")
		ends(t, map[string]string{name: value}, strings.Fields(test.args), 2, test.want)
	}
}

// TestBadValues: each is refused, by the name of its flag.
func TestBadValues(t *testing.T) {
	env := map[string]string{"OFFPATH_NATS": "nats://127.0.0.1:1", "OFFPATH_REDIS": "redis://127.0.0.1:1"}
	for flag, values := range map[string]string{
		"nats": "http://x", "redis": "http://x redis:// redis://x/db", "admin": "x", "namespace": "a.b", "shards": "-1 100000 few",
		"rules-public-keys": "x SAX", "entries-public-keys": ",", "log-level": "loud",
		"max-checkers": "0 65537 x", "max-window": "0s 9000h x", "max-settled-chunks": "0 x", "max-rules": "0 x", "rules": "file rules.yaml",
	} {
		for value := range strings.FieldsSeq(values) {
			ends(t, env, []string{"--" + flag, value}, 2, "--"+flag)
		}
	}
}

// TestFilesAndPorts: each group of files that are missing is named by its flags, and a port that is
// in use by its number.
func TestFilesAndPorts(t *testing.T) {
	const both = "--nats a --redis rediss://a "
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer listener.Close()
	busy := listener.Addr().String()
	for args, want := range map[string]string{
		both + "--admin " + busy:                    busy,
		both + "--redis-ca none":                    "--redis-ca, --redis-cert, --redis-key: open none",
		both + "--redis-password-file none":         "--redis-password-file: open none",
		both + "--nats-ca none":                     "--nats-ca, --nats-cert, --nats-key: open none",
		both + "--admin-cert none --admin-key none": "open none",
		both + "--entries-signing-key-file none":    "--entries-signing-key-file: open none",
	} {
		ends(t, nil, strings.Fields(args+" --namespace x"), 1, want)
	}
}

func TestHelpAndVersion(t *testing.T) {
	ends(t, nil, []string{"--help"}, 0, "--shards N")
	ends(t, nil, []string{"--version"}, 0, "offpath aggregator ")
}

// TestEverySetting sets each one by its flag. Each flag has a variable, as the tests of flags hold.
func TestEverySetting(t *testing.T) {
	defaults := config{
		nats: "nats://n", redis: "redis://r", admin: "127.0.0.1:9091", namespace: "offpath",
		logLevel: slog.LevelInfo, newKeys: 1_000_000, remember: 1 << 21,
		rulesFrom: fromNATS, maxCheckers: 10_000, maxChunks: 100_000, maxRules: 100_000, maxWindow: events.MaxWindow,
	}
	for _, test := range []struct {
		flag, value string
		set         func(*config)
	}{
		{"nats", "nats://other", func(c *config) { c.nats = "nats://other" }},
		{"redis", "redis://a,redis://b", func(c *config) { c.redis = "redis://a,redis://b" }},
		{"redis", "rediss://a/?master_name=m", func(c *config) { c.redis = "rediss://a/?master_name=m" }},
		{"admin", ":90", func(c *config) { c.admin = ":90" }},
		{"namespace", "prod", func(c *config) { c.namespace = "prod" }},
		{"shards", "12", func(c *config) { c.shards = 12 }},
		{"log-level", "debug", func(c *config) { c.logLevel = slog.LevelDebug }},
		{"trace", "http://otel:4318", func(c *config) { c.traceTo = "http://otel:4318/v1/traces" }},
		{"new-keys", "500", func(c *config) { c.newKeys = 500 }},
		{"new-keys", "1000000", func(*config) {}},
		{"remember", "50000000", func(c *config) { c.remember = 50_000_000 }},
		{"remember", "0", func(c *config) { c.remember = 0 }},
		{"rules", "files", func(c *config) { c.rulesFrom = fromFiles }},
		{"max-checkers", "300", func(c *config) { c.maxCheckers = 300 }},
		{"max-rules", "20", func(c *config) { c.maxRules = 20 }},
		{"max-settled-chunks", "50", func(c *config) { c.maxChunks = 50 }},
		{"max-window", "24h", func(c *config) { c.maxWindow = 24 * time.Hour }},
	} {
		want := defaults
		test.set(&want)
		environment := map[string]string{"OFFPATH_NATS": "nats://n", "OFFPATH_REDIS": "redis://r"}
		getenv := func(name string) string { return environment[name] }
		var got config
		cmd := newCommand(func(_ *cobra.Command, c config) error {
			got = c
			return nil
		})
		var stderr strings.Builder
		e := flags.Environment{Prefix: "OFFPATH_", Getenv: getenv, Stdout: &stderr, Stderr: &stderr}
		if status := e.Run(t.Context(), cmd, []string{"--" + test.flag, test.value}); status != 0 || got != want {
			t.Errorf("--%s %s: %s\ngot  %+v\nwant %+v", test.flag, test.value, &stderr, got, want)
		}
	}
}
