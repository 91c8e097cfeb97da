package main

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/pkg/events"
)

// TestEverySetting sets each one by its flag. Each flag has a variable, as the tests of flags hold.
func TestEverySetting(t *testing.T) {
	defaults := config{
		nats: "nats://n", redis: "redis://r", admin: "127.0.0.1:9091", namespace: "offpath",
		logLevel: slog.LevelInfo, newKeys: 1_000_000, remember: 1 << 21,
		rulesFrom: fromNATS, maxCheckers: 10_000, maxChunks: 100_000, maxRules: 100_000, maxWindow: events.MaxWindow,
	}
	tests := []struct {
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
	}
	for _, test := range tests {
		want := defaults
		test.set(&want)
		environment := map[string]string{"OFFPATH_NATS": "nats://n", "OFFPATH_REDIS": "redis://r"}
		getenv := func(name string) string { return environment[name] }
		var got config
		cmd := newCommand(getenv, func(_ *cobra.Command, c config) error {
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
