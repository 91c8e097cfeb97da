// Package serverstest starts the servers of package servers for the length of a test.
//
// A server that cannot be started fails the test; it never skips it, since a green run would then mean nothing.
package serverstest

import (
	"testing"

	"github.com/offpath-io/offpath/internal/servers"
)

// Redis starts a private redis-server, with further arguments for it if given ("--maxmemory", "100mb"), and stops it
// when the test is over.
func Redis(t testing.TB, args ...string) *servers.Redis {
	t.Helper()
	r, err := servers.StartRedis(t.Context(), servers.RedisOptions{Args: args})
	if err != nil {
		t.Fatal(err)
	}
	stopAfter(t, r.Stop)
	return r
}

// RedisCluster starts a private Redis Cluster of three masters and stops it when the test is over. The start takes 2 s;
// share one between subtests.
func RedisCluster(t testing.TB) *servers.RedisCluster {
	t.Helper()
	c, err := servers.StartRedisCluster(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	stopAfter(t, c.Stop)
	return c
}

// NATS starts a private nats-server without JetStream and stops it when the test is over.
func NATS(t testing.TB) *servers.NATS { return startNATS(t, servers.NATSOptions{}) }

// JetStream starts a private nats-server with JetStream, whose files are in a temporary directory, and stops it when the test is over.
func JetStream(t testing.TB) *servers.NATS { return startNATS(t, servers.NATSOptions{JetStream: true}) }

func startNATS(t testing.TB, options servers.NATSOptions) *servers.NATS {
	t.Helper()
	n, err := servers.StartNATS(options)
	if err != nil {
		t.Fatal(err)
	}
	stopAfter(t, n.Stop)
	return n
}

func stopAfter(t testing.TB, stop func() error) {
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
