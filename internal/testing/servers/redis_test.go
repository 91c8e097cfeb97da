package servers_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/offpath-io/offpath/internal/testing/servers"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
)

// connect returns a client that is closed with the test.
func connect(t *testing.T, addr string) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, ContextTimeoutEnabled: true})
	t.Cleanup(func() { client.Close() })
	return client
}

func set(t *testing.T, client *redis.Client, key, value string) {
	t.Helper()
	if err := client.Set(t.Context(), key, value, 0).Err(); err != nil {
		t.Fatalf("set %s: %v", key, err)
	}
}

// want fails unless the key holds the value; "" stands for no key.
func want(t *testing.T, client *redis.Client, key, value string) {
	t.Helper()
	got, err := client.Get(t.Context(), key).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatalf("get %s: %v", key, err)
	}
	if got != value {
		t.Fatalf("get %s: got %q, want %q", key, got, value)
	}
}

// refuses reports whether nobody listens at the address.
func refuses(addr string) bool {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return true
	}
	conn.Close()
	return false
}

func TestRedisAnswers(t *testing.T) {
	r := serverstest.Redis(t)
	options, err := redis.ParseURL(r.URL())
	if err != nil {
		t.Fatal(err)
	}
	if options.Addr != r.Addr() {
		t.Errorf("URL leads to %s, want %s", options.Addr, r.Addr())
	}
	if r.PID() == 0 {
		t.Error("PID of a running server is 0")
	}
	client := connect(t, r.Addr())
	set(t, client, "a", "1")
	want(t, client, "a", "1")
}

func TestRedisTakesArguments(t *testing.T) {
	r := serverstest.Redis(t, "--maxmemory", "5mb")
	got, err := connect(t, r.Addr()).ConfigGet(t.Context(), "maxmemory").Result()
	if err != nil || got["maxmemory"] != "5242880" {
		t.Errorf("maxmemory is %v (%v), want 5242880", got, err)
	}
}

func TestRedisServersAreSeparate(t *testing.T) {
	one, two := serverstest.Redis(t), serverstest.Redis(t)
	set(t, connect(t, one.Addr()), "a", "1")
	want(t, connect(t, two.Addr()), "a", "")
}

func TestRedisStopEndsEverything(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	r := serverstest.Redis(t)
	if left := entries(t, os.TempDir()); len(left) != 1 {
		t.Fatalf("while it runs the temporary directory holds %v, want one directory", left)
	}
	for range 2 { // to stop what is stopped is no error
		if err := r.Stop(); err != nil {
			t.Fatal(err)
		}
		if !refuses(r.Addr()) || r.PID() != 0 {
			t.Fatal("still running after Stop")
		}
	}
	if left := entries(t, os.TempDir()); len(left) != 0 {
		t.Errorf("Stop left %v", left)
	}
	if err := r.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	want(t, connect(t, r.Addr()), "a", "")
}

func entries(t *testing.T, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range list {
		names = append(names, entry.Name())
	}
	return names
}

func TestRedisKilledAndRestartedIsEmpty(t *testing.T) {
	r := serverstest.Redis(t)
	addr, client := r.Addr(), connect(t, r.Addr())
	set(t, client, "a", "1")
	if err := r.Kill(); err != nil {
		t.Fatal(err)
	}
	if !refuses(addr) || r.PID() != 0 {
		t.Fatal("still running after Kill")
	}
	for _, how := range []string{"after Kill", "while it runs"} {
		if err := r.Restart(t.Context()); err != nil {
			t.Fatalf("restart %s: %v", how, err)
		}
		if r.Addr() != addr {
			t.Fatalf("restart %s: moved from %s to %s", how, addr, r.Addr())
		}
		client = connect(t, addr)
		want(t, client, "a", "")
		set(t, client, "a", "2")
	}
}

func TestRedisComesBackWithAnOlderSnapshot(t *testing.T) {
	r := serverstest.Redis(t)
	snapshot := filepath.Join(t.TempDir(), "old.rdb")
	client := connect(t, r.Addr())
	set(t, client, "a", "old")
	if err := r.SaveTo(t.Context(), snapshot); err != nil {
		t.Fatal(err)
	}
	set(t, client, "a", "new")
	set(t, client, "b", "new")

	for range 2 { // a snapshot can be used again
		if err := r.RestartFrom(t.Context(), snapshot); err != nil {
			t.Fatal(err)
		}
		client = connect(t, r.Addr())
		want(t, client, "a", "old")
		want(t, client, "b", "")
	}
	if err := r.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	want(t, connect(t, r.Addr()), "a", "")
}

func TestRedisRestartedInOrderKeepsAll(t *testing.T) {
	r := serverstest.Redis(t)
	for _, value := range []string{"1", "2"} {
		set(t, connect(t, r.Addr()), "a", value)
		if err := r.RestartInOrder(t.Context()); err != nil {
			t.Fatal(err)
		}
		want(t, connect(t, r.Addr()), "a", value)
	}
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := r.RestartInOrder(t.Context()); err == nil {
		t.Error("it takes a stopped server for one that has kept all")
	}
}

func TestRedisPausedDoesNotAnswer(t *testing.T) {
	r := serverstest.Redis(t)
	client := connect(t, r.Addr())
	set(t, client, "a", "1")
	if err := r.Pause(); err != nil {
		t.Fatal(err)
	}
	soon, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := client.Get(soon, "a").Err(); err == nil {
		t.Error("a paused server answers")
	}
	if err := r.Resume(); err != nil {
		t.Fatal(err)
	}
	want(t, client, "a", "1")
}

func TestRedisPausedCanBeStopped(t *testing.T) {
	r := serverstest.Redis(t)
	if err := r.Pause(); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > 4*time.Second {
		t.Errorf("Stop took %v: it waited for a process that could not hear it", took)
	}
	if err := r.Pause(); err == nil {
		t.Error("Pause of a stopped server succeeds")
	}
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
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %q does not say %q", err, test.want)
			}
			if left := entries(t, os.TempDir()); len(left) != 0 {
				t.Errorf("the failed start left %v", left)
			}
		})
	}
}

func TestRedisRestartSaysThatThePortIsTaken(t *testing.T) {
	r := serverstest.Redis(t)
	if err := r.Kill(); err != nil {
		t.Fatal(err)
	}
	intruder, err := net.Listen("tcp", r.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer intruder.Close()
	if err := r.Restart(t.Context()); err == nil || !strings.Contains(err.Error(), "port taken") {
		t.Errorf("restart on a taken port: %v, want an error that says so", err)
	}
}
