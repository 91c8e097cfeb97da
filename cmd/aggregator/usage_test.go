package main

import (
	"context"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silence{})
	os.Exit(m.Run())
}

func TestUsageErrors(t *testing.T) {
	const both = "--nats nats://127.0.0.1:1 --redis redis://127.0.0.1:1 "
	tests := []struct {
		args string
		env  string
		want string // in stderr
	}{
		{"", "", "--nats URL is needed"},
		{"--redis redis://127.0.0.1:1", "", "--nats URL is needed"},
		{"--nats nats://127.0.0.1:1", "", "--redis URL is needed"},
		{both + "--loud", "", "unknown flag --loud"},
		{both + "start", "", `argument "start"`},
		{both + "ledger", "", `argument "ledger"`},
		{both + "--nats http://x", "", "--nats"},
		{both + "--redis http://x", "", "--redis"},
		{both + "--redis redis://", "", "--redis"},
		{both + "--redis redis://x/db", "", "--redis"},
		{both + "--admin x", "", "--admin"},
		{both + "--namespace a.b", "", "--namespace"},
		{both + "--shards -1", "", "--shards"},
		{both + "--shards 100000", "", "--shards"},
		{both + "--shards", "", "--shards: needs a value"},
		{both + "--log-level loud", "", "--log-level"},
		{both + "--gather 0s", "", "--gather"},
		{both + "--gather 2s", "", "--gather"},
		{both, "OFFPATH_ADMIN=x", "OFFPATH_ADMIN"},
		{both, "OFFPATH_NAMESPACE=a.b", "OFFPATH_NAMESPACE"},
		{both, "OFFPATH_SHARDS=few", "OFFPATH_SHARDS"},
		{both, "OFFPATH_LOG_LEVEL=loud", "OFFPATH_LOG_LEVEL"},
		{both, "OFFPATH_GATHER=2", "OFFPATH_GATHER"},
		{"--redis redis://127.0.0.1:1", "OFFPATH_NATS=http://x", "OFFPATH_NATS"},
		{"--nats nats://127.0.0.1:1", "OFFPATH_REDIS=http://x", "OFFPATH_REDIS"},
		{"ledger", "", "--redis URL is needed"},
		{"ledger --redis http://x", "", "--redis"},
		{"ledger --redis redis://127.0.0.1:1 --yaml", "", "unknown flag --yaml"},
		{"ledger --redis redis://127.0.0.1:1 all", "", `argument "all"`},
		{"ledger --redis redis://127.0.0.1:1 --json=maybe", "", "json"},
		{"ledger --redis redis://127.0.0.1:1 --namespace a.b", "", "--namespace"},
		{"ledger --redis redis://127.0.0.1:1", "OFFPATH_JSON=maybe", "OFFPATH_JSON"},
		{"ledgers", "", `argument "ledgers": there is no such command; want rules, ledger, block, fleet, get, reset, top, unblock, or flags only`},
		{"nats://u:geheim@127.0.0.1:1", "", `argument "nats://xxxxx@127.0.0.1:1": want flags only`},
		{"top", "", "--nats URL is needed"},
		{"fleet --nats nats://127.0.0.1:1 all", "", `argument "all"`},
		{"get --nats nats://127.0.0.1:1", "", "want one KEY"},
		{"get --nats nats://127.0.0.1:1 a b", "", "want one KEY"},
		{"block k --nats nats://127.0.0.1:1", "", "--rule NAME is needed"},
		{"block k --rule r", "", "--nats URL is needed"},
		{"block k --rule r --nats nats://127.0.0.1:1 --for 0s", "", "--for"},
		{"block k --rule r --nats nats://127.0.0.1:1 --for 9999h", "", "--for"},
		{"unblock k --nats nats://127.0.0.1:1", "", "--rule NAME is needed"},
		{"reset k --nats nats://127.0.0.1:1", "", "--rule NAME is needed"},
		{"reset k --rule r --nats http://x", "", "--nats"},
	}
	for _, test := range tests {
		t.Run(test.args+test.env, func(t *testing.T) {
			name, value, _ := strings.Cut(test.env, "=")
			status, stdout, stderr := daemontest.Run(t, run, map[string]string{name: value}, strings.Fields(test.args)...)
			if status != 2 || !strings.Contains(stderr, test.want) || stdout != "" {
				t.Errorf("status %d, want 2 and %q\nstdout %q\nstderr %q", status, test.want, stdout, stderr)
			}
		})
	}
}

func TestNoPasswordIsEverPrinted(t *testing.T) {
	for _, args := range []string{
		"--nats nats://me:geheim@127.0.0.1:x --redis redis://a",
		"--nats a --redis redis://me:geheim@",
		"--nats a --redis http://me:geheim@a",
		"ledger --redis redis://me:geheim@127.0.0.1:1",
	} {
		status, stdout, stderr := daemontest.Run(t, run, nil, strings.Fields(args)...)
		if status == 0 || strings.Contains(stdout+stderr, "geheim") {
			t.Errorf("%s: status %d\n%s%s", args, status, stdout, stderr)
		}
	}
	d := daemontest.Start(t, run, "--nats", "nats://me:geheim@127.0.0.1:1", "--redis", "redis://me:geheim@127.0.0.1:1",
		"--admin", "127.0.0.1:0", "--log-level", "debug")
	d.Await("it says what it waits for", func() bool {
		return strings.Contains(d.Stderr(), "waiting for NATS") && strings.Contains(d.Stderr(), "waiting for the store")
	})
	_, ready := d.Get("/readyz")
	if text := d.Stdout() + d.Stderr() + ready; strings.Contains(text, "geheim") {
		t.Errorf("it tells the password:\n%s", text)
	}
}

func TestHelpAndVersion(t *testing.T) {
	tests := []struct {
		args  string
		flags []string
	}{
		{"--help", []string{"nats", "redis", "admin", "namespace", "shards", "log-level", "gather"}},
		{"ledger --help", []string{"redis", "namespace", "json"}},
	}
	for _, test := range tests {
		status, stdout, stderr := daemontest.Run(t, run, nil, strings.Fields(test.args)...)
		if status != 0 || stderr != "" {
			t.Errorf("%s: status %d, stderr %q", test.args, status, stderr)
		}
		for _, flag := range test.flags {
			variable := "OFFPATH_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
			if !strings.Contains(stdout, "  --"+flag) || !strings.Contains(stdout, variable) {
				t.Errorf("%s says nothing of --%s, %s:\n%s", test.args, flag, variable, stdout)
			}
		}
	}
	for _, args := range []string{"--version", "ledger --version"} {
		status, stdout, stderr := daemontest.Run(t, run, nil, strings.Fields(args)...)
		if status != 0 || !strings.HasPrefix(stdout, "offpath aggregator ") || stderr != "" {
			t.Errorf("%s: status %d, stdout %q, stderr %q", args, status, stdout, stderr)
		}
	}
}

func TestPortInUse(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	status, stdout, stderr := daemontest.Run(t, run, nil,
		"--nats", "nats://127.0.0.1:1", "--redis", "redis://127.0.0.1:1", "--admin", listener.Addr().String())
	if status != 1 || !strings.Contains(stderr, listener.Addr().String()) || stdout != "" {
		t.Errorf("status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
}

func TestLedgerOfNobody(t *testing.T) {
	server := serverstest.Redis(t)
	status, stdout, stderr := daemontest.Run(t, run, nil, "ledger", "--redis", server.URL(), "--json")
	if status != 0 || stdout != `{"rules":{}}`+"\n" || stderr != "" {
		t.Errorf("an empty store: status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
	if keys := server.Addr(); countKeys(t, keys) != 0 {
		t.Error("looking at an empty store wrote something into it")
	}
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	status, stdout, stderr = daemontest.Run(t, run, nil, "ledger", "--redis", server.URL(), "--json")
	if status != 1 || stdout != "" || !strings.Contains(stderr, "read ledger") {
		t.Errorf("no store: status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
}

func countKeys(t *testing.T, address string) int64 {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: address})
	defer client.Close()
	n, err := client.DBSize(context.WithoutCancel(t.Context())).Result()
	if err != nil {
		t.Fatal(err)
	}
	return n
}
