package servers_test

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/offpath-io/offpath/internal/testing/servers"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
)

// expect reports what was found unless it is as expected.
func expect(t *testing.T, ok bool, found string, args ...any) {
	if !ok {
		t.Helper()
		t.Errorf(found, args...)
	}
}

// require is expect for what the rest of a test needs.
func require(t *testing.T, ok bool, found string, args ...any) {
	if !ok {
		t.Helper()
		t.Fatalf(found, args...)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	require(t, err == nil, "%v", err)
}

// refuses reports whether nobody listens at the address.
func refuses(addr string) bool {
	conn, err := net.Dial("tcp", addr)
	if err == nil {
		conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

func entries(t *testing.T, dir string) (names []string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	must(t, err)
	for _, entry := range list {
		names = append(names, entry.Name())
	}
	return names
}

// nothingLeft fails if there is something in the temporary directory.
func nothingLeft(t *testing.T) {
	t.Helper()
	left := entries(t, os.TempDir())
	expect(t, len(left) == 0, "left: %v", left)
}

func TestStopEndsEverything(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	must(t, serverstest.JetStream(t).Stop())
	r := serverstest.Redis(t)
	left := entries(t, os.TempDir())
	require(t, len(left) == 1, "while it runs the temporary directory holds %v, want one directory", left)
	for range 2 { // to stop what is stopped is no error
		must(t, r.Stop())
		require(t, refuses(r.Addr()) && r.PID() == 0, "still running after Stop")
	}
	nothingLeft(t)
	must(t, r.Restart(t.Context()))
}

func TestRedisStartErrors(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, test := range []struct {
		name    string
		ctx     context.Context
		options servers.RedisOptions
		want    string
	}{
		{"no such binary", t.Context(), servers.RedisOptions{Binary: "redis-server-of-nobody"}, "install the package redis-server"},
		{"an unknown argument", t.Context(), servers.RedisOptions{Args: []string{"--no-such-thing", "1"}}, "no-such-thing"},
		{"a context that has ended", ended, servers.RedisOptions{}, "context canceled"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			r, err := servers.StartRedis(test.ctx, test.options)
			if err == nil {
				r.Stop()
				t.Fatal("no error")
			}
			expect(t, strings.Contains(err.Error(), test.want), "error %q does not say %q", err, test.want)
			nothingLeft(t)
		})
	}
}

func TestRedisRestartSaysThatThePortIsTaken(t *testing.T) {
	r := serverstest.Redis(t)
	must(t, r.Kill())
	intruder, err := net.Listen("tcp", r.Addr())
	must(t, err)
	defer intruder.Close()
	err = r.Restart(t.Context())
	expect(t, err != nil && strings.Contains(err.Error(), "port taken"), "restart on a taken port: %v", err)
}
