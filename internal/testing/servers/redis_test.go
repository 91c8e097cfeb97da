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

// require ends the test with what was found, unless that is as expected.
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

// wantFiles checks how many files and directories are in the temporary directory.
func wantFiles(t *testing.T, want int) {
	t.Helper()
	left, err := os.ReadDir(os.TempDir())
	require(t, err == nil && len(left) == want, "in the temporary directory: %v, %v, want %d", left, err, want)
}

func TestStopEndsEverything(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	must(t, serverstest.JetStream(t).Stop())
	r := serverstest.Redis(t)
	wantFiles(t, 1)
	for range 2 { // to stop what is stopped is no error
		must(t, r.Stop())
		require(t, refuses(r.Addr()) && r.PID() == 0, "still running after Stop")
	}
	wantFiles(t, 0)
	must(t, r.Restart(t.Context()))
}

func TestRedisStartErrors(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, test := range []struct {
		name string
		ctx  context.Context
		path string
		args []string
		want string
	}{
		{"no such program", t.Context(), "/nowhere", nil, "install the package redis-server"},
		{"an unknown argument", t.Context(), os.Getenv("PATH"), []string{"--no-such-thing", "1"}, "no-such-thing"},
		{"a context that has ended", ended, os.Getenv("PATH"), nil, "context canceled"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			t.Setenv("PATH", test.path)
			_, err := servers.StartRedis(test.ctx, servers.RedisOptions{Args: test.args})
			require(t, err != nil && strings.Contains(err.Error(), test.want), "error %v does not say %q", err, test.want)
			wantFiles(t, 0)
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
	require(t, err != nil && strings.Contains(err.Error(), "port taken"), "restart on a taken port: %v", err)
}
