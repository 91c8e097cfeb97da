package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/internal/testing/tlsfilestest"
)

// canary is in every secret.
const canary = "CANARY"

// TestNoOutputHoldsASecret: not the help, with secrets in the environment; not an error, whether
// the secret is where it belongs or not.
func TestNoOutputHoldsASecret(t *testing.T) {
	environment := map[string]string{
		"OFFPATH_NATS": "nats://u:" + canary + "@127.0.0.1:1", "OFFPATH_REDIS": "rediss://127.0.0.1:1", "OFFPATH_REDIS_USER": "u",
		"OFFPATH_REDIS_PASSWORD": canary,
	}
	var said strings.Builder
	const url = "//me:" + canary + "@127.0.0.1:"
	for _, args := range []string{
		"--help", "ledger --help", "rules get --help", "--version", "--loud", "rules list", "ledger --json=x", "ledger", "top",
		"ledger --redis redis:" + url + "1", "rules get --nats nats:" + url + "1", "rules get --nats nats:" + url + "x", "nats:" + url + "1",
	} {
		_, stdout, stderr := daemontest.Run(t, run, environment, strings.Fields(args)...)
		fmt.Fprintln(&said, stdout, stderr)
	}
	for _, name := range []string{"OFFPATH_REDIS_PASSWORD", "OFFPATH_NATS_PASSWORD", "--nats-ca FILE", "--redis-password-file FILE"} {
		if !strings.Contains(said.String(), name) {
			t.Errorf("help says nothing of %s", name)
		}
	}
	daemontest.HasNoSecret(t, said.String(), canary)
}

// TestSecureServers: commands get into NATS and Redis over mutual TLS with a user and a password,
// and say why if they are not let in.
func TestSecureServers(t *testing.T) {
	ca := tlsfilestest.NewAuthority(t, "servers")
	nats, redis := serverstest.SecureNATS(t, ca, canary), serverstest.StartSecureRedis(t)
	redis.Show(ca)
	redis.SetUser(canary)
	f, password := ca.Dir("operator"), daemontest.File(t, "secret", canary)
	of := func(server string) []string {
		return []string{
			"--" + server + "-ca", f.CA, "--" + server + "-cert", f.Cert, "--" + server + "-key", f.Key, "--" + server + "-password-file", password,
		}
	}
	apply := append(of("nats"), "rules", "apply", "-f", "../../deploy/rules.yaml", "--nats", nats.URL(), "--nats-user", "fleet")
	ends(t, nil, apply, 0, "revision 1")
	ledger := append(of("redis"), "ledger", "--redis", redis.URL(), "--redis-user", "aggregator")
	ends(t, nil, ledger, 0, "counted")

	other := tlsfilestest.NewAuthority(t, "other").Dir("other")
	wrong := daemontest.File(t, "wrong", canary+canary)
	ends(t, nil, append(ledger, "--redis-ca", other.CA), 1, "certificate signed by unknown authority")
	ends(t, nil, append(ledger, "--redis-password-file", wrong), 1, "WRONGPASS")
	ends(t, nil, append(apply, "--nats-password-file", wrong), 1, "Authorization Violation")
}
