package redact

import "testing"

func TestURLs(t *testing.T) {
	for given, want := range map[string]string{
		"nats://a:4222":                         "nats://a:4222",
		"nats://me:geheim@a:4222,b:1":           "nats://xxxxx@a:4222,b:1",
		"nats://token@a":                        "nats://xxxxx@a",
		"redis://a?sentinel_password=geheim":    "redis://a?sentinel_password=xxxxx",
		"redis://a?master_name=m":               "redis://a?master_name=m",
		"redis://127.0.0.1:7000,127.0.0.1:7001": "redis://127.0.0.1:7000,127.0.0.1:7001",
		"":                                      "",
		"a,":                                    "a,",
		"nats://me:ge%zz@a":                     "(not a URL)",
	} {
		if got := URLs(given); got != want {
			t.Errorf("URLs(%q) = %q, want %q", given, got, want)
		}
	}
}
