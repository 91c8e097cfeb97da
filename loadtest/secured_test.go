package main

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/offpath-io/offpath/internal/testing/grpctest"
	"github.com/offpath-io/offpath/internal/testing/rulestest"
	"github.com/offpath-io/offpath/internal/testing/servers"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/internal/testing/tlsfilestest"
	"github.com/offpath-io/offpath/pkg/envoylimit"
)

// canary is in every secret.
const canary = "CANARY"

// TestSecuredAPIs: servers that want to see certificates are loaded by whoever has one, and by
// nobody else.
func TestSecuredAPIs(t *testing.T) {
	ca := tlsfilestest.NewAuthority(t, "authority")
	config := &tls.Config{Certificates: []tls.Certificate{ca.Pair("server")}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.Pool()}
	ours, theirs := ca.Dir("loadtest"), tlsfilestest.NewAuthority(t, "other").Dir("other")
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	web.TLS, web.Config.ErrorLog = config.Clone(), slog.NewLogLogger(slog.DiscardHandler, 0)
	web.StartTLS()
	defer web.Close()
	address := serveEnvoy(t, "{name: r, key: [user], limit: 1000/week}", grpc.Creds(credentials.NewTLS(config)))

	mutual := []string{"--ca", ours.CA, "--cert", ours.Cert, "--key", ours.Key}
	for _, test := range []struct {
		name string
		args []string
		want string // "" if it is let in
	}{
		{"HTTP", append(mutual, "--url", web.URL), ""},
		{"HTTP, no certificate", []string{"--ca", ours.CA, "--url", web.URL}, "certificate required"},
		{"HTTP, the system's authorities", []string{"--url", web.URL}, "unknown authority"},
		{"HTTP, another authority's", []string{"--url", web.URL, "--ca", ours.CA, "--cert", theirs.Cert, "--key", theirs.Key}, "certificate required"},
		{"HTTP, no such file", []string{"--url", web.URL, "--ca", "none"}, "--ca, --cert, --key: open none"},
		{"gRPC", append(mutual, "--grpc", address), ""},
		{"gRPC, by scheme", append(mutual, "--grpc", "tls://"+address), ""},
		{"gRPC, the system's authorities", []string{"--grpc", "tls://" + address}, "unknown authority"},
		{"gRPC, without TLS", []string{"--grpc", address}, "no checker answers"},
	} {
		args := append(strings.Fields("http --rate 200 --duration 100ms --warmup 0s --timeout 1m"), test.args...)
		if test.want == "" {
			if r := load(t, args...); r.OK200 != 20 {
				t.Errorf("%s: %d answers", test.name, r.OK200)
			}
		} else if status, _, stderr := invoke(t.Context(), args...); status != 1 || !strings.Contains(stderr, test.want) {
			t.Errorf("%s: status %d, want %q: %s", test.name, status, test.want, stderr)
		}
	}
}

// serveEnvoy serves Envoy's rate limit service with a rule, and returns where.
func serveEnvoy(t *testing.T, rule string, options ...grpc.ServerOption) (address string) {
	t.Helper()
	server := grpc.NewServer(options...)
	envoylimit.Register(server, envoylimit.New(rulestest.Checker(t, "rules: ["+rule+"]"), envoylimit.Options{}))
	address, _ = grpctest.Serve(t, server, "127.0.0.1:0")
	return address
}

// TestSecuredServers: a live run on a NATS and a Redis that both have mutual TLS, users and
// passwords.
func TestSecuredServers(t *testing.T) {
	ca, password := tlsfilestest.NewAuthority(t, "authority"), filepath.Join(t.TempDir(), "password")
	f, pair := ca.Dir("loadtest"), ca.Pair("nats")
	tlsfilestest.Write(t, password, []byte(canary))
	nats := serverstest.NATSWith(t, servers.NATSOptions{Configure: func(o *server.Options) {
		o.TLS, o.TLSVerify = true, true
		o.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.Pool()}
		o.Users = []*server.User{{Username: "fleet", Password: canary}}
	}})
	args := append([]string{
		"run", "--limit", "100", "--no-sweep", "--html", "", "--json", "-",
		"--nats", nats.URL(), "--nats-ca", f.CA, "--nats-cert", f.Cert, "--nats-key", f.Key, "--nats-user", "fleet", "--nats-password-file", password,
		"--redis", secureRedis(t, f), "--redis-ca", f.CA, "--redis-cert", f.Cert, "--redis-key", f.Key, "--redis-user", "fleet",
	}, quick...)
	status, stdout, stderr := invokeIn(t.Context(), map[string]string{"OFFPATH_LOADTEST_REDIS_PASSWORD": canary}, args...)
	if status != 0 {
		t.Fatalf("status %d: %s", status, stderr)
	}
	if r := read(t, []byte(stdout)).Runs[0]; r.Params.Store != "redis" || !r.Conservation.Holds || r.Conservation.Counted == 0 {
		t.Errorf("in %s, %+v", r.Params.Store, r.Conservation)
	}
	if strings.Contains(stdout+stderr, canary) {
		t.Errorf("it tells a secret: %s%s", stdout, stderr)
	}
	if status, _, stderr := invoke(t.Context(), args...); status != 2 || !strings.Contains(stderr, "--redis-user needs a password") {
		t.Errorf("without a password: status %d: %s", status, stderr)
	}
}

// secureRedis returns the URL of a Redis that speaks TLS, with these files, and has a user.
func secureRedis(t *testing.T, f tlsfilestest.Files) (url string) {
	t.Helper()
	plain := serverstest.Redis(t)
	admin := redis.NewClient(&redis.Options{Addr: plain.Addr()})
	defer admin.Close()
	do := func(args ...any) error { return admin.Do(context.WithoutCancel(t.Context()), args...).Err() }
	for _, command := range [][]any{
		{"CONFIG", "SET", "tls-cert-file", f.Cert, "tls-key-file", f.Key, "tls-ca-cert-file", f.CA},
		{"ACL", "SETUSER", "fleet", "on", ">" + canary, "~*", "&*", "+@all"},
		{"ACL", "SETUSER", "default", "off"},
	} {
		must(t, do(command...))
	}
	for range 20 {
		_, port, _ := net.SplitHostPort(serverstest.Address(t))
		if do("CONFIG", "SET", "tls-port", port) == nil { // else somebody was faster
			return "rediss://localhost:" + port
		}
	}
	t.Fatal("no port is free")
	return ""
}
