package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/internal/testing/tlsfilestest"
)

// TestNoOutputHoldsASecret: not the help, not a usage error, and not what a checker says and shows that gets into NATS, then
// cannot, then has nonsense for files.
func TestNoOutputHoldsASecret(t *testing.T) {
	const canary = "CANARY"
	environment := map[string]string{
		"OFFPATH_NATS": "127.0.0.1:1", "OFFPATH_NATS_USER": "fleet", "OFFPATH_NATS_PASSWORD": canary, "OFFPATH_RULES": "nats",
	}
	var said strings.Builder
	for _, args := range []string{"--help", "--version", "--loud", "--nats nats://u:" + canary + "@127.0.0.1:x", "--nats-creds c"} {
		_, stdout, stderr := daemontest.Run(t, options{}.run, environment, strings.Fields(args)...)
		fmt.Fprintln(&said, stdout, stderr)
	}

	password := canary + "-1"
	nats := serverstest.NATSWith(t, servers.NATSOptions{Configure: func(o *server.Options) {
		o.Users = []*server.User{{Username: "fleet", Password: password}}
	}})
	secret, files := filepath.Join(t.TempDir(), "password"), tlsfilestest.NewAuthority(t, "authority").Dir("listener")
	tlsfilestest.Write(t, secret, []byte(password))
	d := startChecker(t, "--rules", writeFile(t, daily(15)), "--nats", nats.URL(), "--nats-user", "fleet",
		"--nats-password-file", secret, "--listen-cert", files.Cert, "--listen-key", files.Key, "--log-level", "debug")
	d.AwaitMetric("offpath_nats_connected", "1")

	password = canary + "-2"
	must(t, nats.Restart())
	d.Await("it is out", func() bool { return strings.Contains(strings.ToLower(d.Stderr()), "authorization violation") })
	tlsfilestest.Write(t, secret, []byte(canary+"\n"+canary))
	tlsfilestest.Write(t, files.Key, []byte(canary))
	for _, group := range []string{"nats-password", "listen"} {
		d.AwaitMetric(`offpath_files_refused{files="`+group+`"}`, "1")
	}
	tlsfilestest.Write(t, secret, []byte(password))
	d.AwaitMetric("offpath_nats_connected", "1")
	for _, path := range []string{"/metrics", "/readyz", "/healthz"} {
		_, body := d.Get(path)
		fmt.Fprintln(&said, body)
	}
	d.Stop()
	fmt.Fprintln(&said, d.Stdout(), d.Stderr())
	daemontest.HasNoSecret(t, said.String(), canary)
}
