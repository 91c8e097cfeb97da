package checker

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

// TestUsageErrors: whatever of the command line and the environment makes no sense is refused by
// name, with status 2.
func TestUsageErrors(t *testing.T) {
	for _, tt := range []struct{ want, args string }{ // what is in stderr for each of some command lines, with ; between
		{"--listen", "--listen 8080"},
		{"--admin", "--admin nowhere"},
		{"--grpc", "--grpc 8081"},
		{"--envoy-headers", "--envoy-headers all"},
		{"--nats", "--nats http://x --rules r"},
		{"it needs --rules FILE too", "--nats nats://127.0.0.1:1"},
		{"--rules FILE, to decide alone", "--listen 127.0.0.1:0; --rules nats; --rules="},
		{"--namespace", "--namespace a.b"},
		{"--log-level", "--log-level loud"},
		{"--decision-log", "--decision-log none,log; --decision-log log,log; --decision-log file; --decision-log="},
		{"--flush", "--flush 0s; --flush 2m"},
		{"--acquire", "--acquire -1ms; --acquire 2m"},
		{"--max-live-keys", "--max-live-keys 0; --max-live-keys x"},
		{"--max-idle-keys", "--max-idle-keys -1"},
		{"--trusted-proxies: trusted proxy 1", "--trusted-proxies localhost"},
		{"--trusted-proxies: trusted proxy 2", "--trusted-proxies 10.0.0.0/8,,::1"},
		{"--forwarded-header", "--forwarded-header X-Real-IP"},
		{"--allow-origin", "--allow-origin ops.example.com; --allow-origin https://a/b; --allow-origin https://a,,*"},
		{"--ipv6-prefix", "--ipv6-prefix 0; --ipv6-prefix 129"},
		{"--ratelimit-headers", "--ratelimit-headers 99"},
		{"want them in this order", "--rules r --stale-after 11; --rules r --share-after 2; --rules r --share-after 301; --rules r --outage-after 9"},

		{"--upstream: unknown scheme", "--upstream localhost:3000"},
		{"--upstream: a URL with a user", "--upstream http://me:geheim@a"},
		{"--proxy", "--upstream http://a --proxy a"},
		{"--upstream-timeout", "--upstream http://a --upstream-timeout 0s"},
		{"--charge-on", "--upstream http://a --charge-on 4xx; --upstream http://a --charge-on 100"},
		{"--proxy is for the reverse proxy: it needs --upstream", "--proxy 127.0.0.1:0"},
		{"it needs --upstream", "--charge-on 401"},

		{"--listen-cert and --listen-key need each other", "--listen-cert c"},
		{"--admin-client-ca needs --admin-cert", "--admin-client-ca c"},
		{"--proxy-cert: there is no proxy", "--proxy-cert c --proxy-key k"},
		{"--grpc-cert: there is no gRPC API", "--grpc none --grpc-cert c --grpc-key k"},
		{"no certificates without TLS", "--upstream http://a --upstream-ca c"},
		{"--upstream-cert and --upstream-key need each other", "--upstream https://a --upstream-key k"},
		{"need --nats URL too", "--nats-ca c"},
		{"need each other", "--rules r --nats a --nats-user u"},
	} {
		for args := range strings.SplitSeq(tt.args, ";") {
			refuses(t, nil, strings.Fields(args), 2, tt.want)
		}
	}
	refuses(t, map[string]string{"OFFPATH_NATS": "nats://127.0.0.1:1"}, nil, 2, "it needs --rules FILE too")
	refuses(t, map[string]string{"OFFPATH_UPSTREAM_TIMEOUT": "1s"}, nil, 2, "it needs --upstream")
	refuses(t, map[string]string{"OFFPATH_LISTEN": "8080"}, nil, 2, "OFFPATH_LISTEN")
}

// TestUnusableFiles: what the command line names must be there and be good, or nothing starts.
func TestUnusableFiles(t *testing.T) {
	bad := writeFile(t, "rules:\n  - name: a\n    key: [user]\n    limit: 15/fortnight\n")
	ca := tlsfilestest.NewAuthority(t, "authority")
	a, b := ca.Dir("a"), ca.Dir("b")
	for want, args := range map[string]string{
		bad + ":4:12: limit:": "--rules " + bad,
		"load rules":          "--rules " + filepath.Join(t.TempDir(), "none.yaml"),
		"--listen-cert, --listen-key, --listen-client-ca: open none": "--rules r --listen-cert none --listen-key " + a.Key,
		"does not match": "--rules r --admin-cert " + a.Cert + " --admin-key " + b.Key,
	} {
		refuses(t, nil, append(strings.Fields(args), anywhere...), 1, want)
	}
}

func TestHelpAndVersion(t *testing.T) {
	for flag, want := range map[string]string{"--help": "--max-idle-keys N", "--version": "offpath checker "} {
		status, stdout, stderr := daemontest.Run(t, options{}.run, nil, flag)
		if status != 0 || !strings.Contains(stdout, want) || stderr != "" {
			t.Errorf("%s: status %d, stdout %q, stderr %q", flag, status, stdout, stderr)
		}
	}
}

// TestNoOutputHoldsASecret: not the help, not a usage error, and not what a checker says and shows
// that gets into NATS, then cannot, then has nonsense for files.
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
