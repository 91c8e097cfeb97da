package main

import (
	"strings"
	"testing"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/internal/testing/signaturetest"
)

// TestAnAggregatorSaysWhatIsUnsigned, once, as long as it has no public keys.
func TestAnAggregatorSaysWhatIsUnsigned(t *testing.T) {
	url := serverstest.JetStream(t).URL()
	signing := signaturetest.NewKey(t)
	seed, err := signing.Seed()
	must(t, err)
	key, public := secretFile(t, seed), signing.Public()
	for want, keys := range map[string][]string{
		"UNSIGNED rules and blocks": nil, "UNSIGNED rules are": {"--entries-signing-key-file", key},
		"": {"--entries-signing-key-file", key, "--rules-public-keys", public},
	} {
		d := daemontest.StartIn(t, run, nil, append(keys, "--nats", url, "--redis", "redis://127.0.0.1:1", "--admin", "127.0.0.1:0")...)
		d.Stop()
		if n := strings.Count(d.Stderr(), "UNSIGNED"); !strings.Contains(d.Stderr(), want) || n != min(len(want), 1) {
			t.Errorf("%q: %d times in\n%s", want, n, d.Stderr())
		}
	}
}
