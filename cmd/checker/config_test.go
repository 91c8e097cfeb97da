package main

import (
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestEverySetting sets each one by its flag and by its variable.
func TestEverySetting(t *testing.T) {
	defaults, done, err := readConfig(nil, func(string) string { return "" }, io.Discard)
	if done || err != nil {
		t.Fatal(done, err)
	}
	want := config{
		listen: "127.0.0.1:8080", admin: "127.0.0.1:9090", namespace: "offpath", logLevel: slog.LevelInfo,
		flush: 50 * time.Millisecond, acquire: 20 * time.Millisecond, maxLiveKeys: 1 << 20, maxIdleKeys: 1 << 20,
		staleAfter: 3, shareAfter: 10, outageAfter: 300,
	}
	if defaults != want {
		t.Errorf("defaults\ngot  %+v\nwant %+v", defaults, want)
	}
	tests := []struct {
		flag, value string
		set         func(*config)
	}{
		{"rules", "my.yaml", func(c *config) { c.rulesFrom = "my.yaml" }},
		{"rules", "nats", func(c *config) { c.rulesFrom = "nats" }},
		{"listen", ":80", func(c *config) { c.listen = ":80" }},
		{"admin", ":90", func(c *config) { c.admin = ":90" }},
		{"namespace", "prod", func(c *config) { c.namespace = "prod" }},
		{"log-level", "error", func(c *config) { c.logLevel = slog.LevelError }},
		{"acquire", "0", func(c *config) { c.acquire = 0 }},
		{"acquire", "1s", func(c *config) { c.acquire = time.Second }},
		{"flush", "5ms", func(c *config) { c.flush = 5 * time.Millisecond }},
		{"max-live-keys", "1", func(c *config) { c.maxLiveKeys = 1 }},
		{"key-hash", "secret", func(c *config) { c.keyHash = "secret" }},
		{"expect-checkers", "5", func(c *config) { c.expectCheckers = 5 }},
		{"stale-after", "2", func(c *config) { c.staleAfter = 2 }},
		{"share-after", "200", func(c *config) { c.shareAfter = 200 }},
		{"outage-after", "1000", func(c *config) { c.outageAfter = 1000 }},
		{"max-idle-keys", "0", func(c *config) { c.maxIdleKeys = 0 }},
		{"nats", "nats://a,nats://b", func(c *config) { c.nats, c.rulesFrom = "nats://a,nats://b", "r" }},
	}
	for _, test := range tests {
		want := defaults
		test.set(&want)
		environment := map[string]string{}
		if want.nats != "" {
			environment["OFFPATH_RULES"] = "r"
		}
		getenv := func(name string) string { return environment[name] }
		if got, _, err := readConfig([]string{"--" + test.flag, test.value}, getenv, io.Discard); err != nil || got != want {
			t.Errorf("--%s %s: %v\ngot  %+v\nwant %+v", test.flag, test.value, err, got, want)
		}
		variable := "OFFPATH_" + strings.ToUpper(strings.ReplaceAll(test.flag, "-", "_"))
		environment[variable] = test.value
		if got, _, err := readConfig(nil, getenv, io.Discard); err != nil || got != want {
			t.Errorf("%s=%s: %v\ngot  %+v\nwant %+v", variable, test.value, err, got, want)
		}
	}
}

// TestLadderOutOfOrder: a later step cannot come before an earlier one.
func TestLadderOutOfOrder(t *testing.T) {
	for _, args := range [][]string{
		{"--stale-after", "11"}, {"--share-after", "2"}, {"--share-after", "301"}, {"--outage-after", "9"},
	} {
		if _, _, err := readConfig(args, func(string) string { return "" }, io.Discard); err == nil {
			t.Errorf("accepted: %v", args)
		}
	}
}
