// Package serverstest starts the servers of package servers for the length of a test.
//
// A server that cannot be started fails the test; it never skips it, since a green run would then
// mean nothing.
package serverstest

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/offpath-io/offpath/internal/testing/servers"
)

// Redis starts a private redis-server, with further arguments for it if given ("--maxmemory",
// "100mb"), and stops it when the test is over.
func Redis(t testing.TB, args ...string) *servers.Redis {
	t.Helper()
	return running(servers.StartRedis(t.Context(), servers.RedisOptions{Args: args}))(t)
}

// RedisCluster starts a private Redis Cluster of three masters and stops it when the test is over.
// The start takes 2 s; share one between subtests.
func RedisCluster(t testing.TB) *servers.RedisCluster {
	t.Helper()
	return running(servers.StartRedisCluster(t.Context(), 3))(t)
}

// NATS starts a private nats-server without JetStream and stops it when the test is over.
func NATS(t testing.TB) *servers.NATS { return NATSWith(t, servers.NATSOptions{}) }

// JetStream starts a private nats-server with JetStream, whose files are in a temporary directory,
// and stops it when the test is over.
func JetStream(t testing.TB) *servers.NATS { return NATSWith(t, servers.NATSOptions{JetStream: true}) }

// NATSWith starts a private nats-server as these options say, and stops it when the test is over.
func NATSWith(t testing.TB, options servers.NATSOptions) *servers.NATS {
	t.Helper()
	return running(servers.StartNATS(options))(t)
}

// patience is how long a server may take for anything. The library's own bounds, 2 s for a
// connection and 5 s for a request of JetStream, fail a test whose machine stands still for a
// while.
const patience = time.Minute

// Connect returns a connection to the server at url, which comes back soon after the server does,
// with further options, if given. It is closed when the test is over.
func Connect(t testing.TB, url string, options ...nats.Option) *nats.Conn {
	t.Helper()
	conn := must(nats.Connect(url, append([]nats.Option{
		nats.MaxReconnects(-1), nats.ReconnectWait(10 * time.Millisecond), nats.Timeout(patience),
	}, options...)...))(t)
	t.Cleanup(conn.Close)
	return conn
}

// JetStreamOf returns JetStream of a connection.
func JetStreamOf(t testing.TB, conn *nats.Conn) jetstream.JetStream {
	t.Helper()
	return must(jetstream.New(conn, jetstream.WithDefaultTimeout(patience)))(t)
}

// Bucket opens a key-value bucket of the server at url, as anybody sees it who may write into it.
func Bucket(t testing.TB, url, name string) jetstream.KeyValue {
	t.Helper()
	return must(JetStreamOf(t, Connect(t, url)).KeyValue(t.Context(), name))(t)
}

// DropBucket deletes a key-value bucket of the server at url, so that it can be made again at once.
// A server with no other stream could refuse that: when its last stream is gone nats-server
// removes, in the background, the directory that the next one is about to use ("error creating
// store for stream"). So another stream is there first.
func DropBucket(t testing.TB, url, name string) {
	t.Helper()
	js := JetStreamOf(t, Connect(t, url))
	must(js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "another", Subjects: []string{"another"}}))(t)
	if err := js.DeleteKeyValue(t.Context(), name); err != nil {
		t.Fatal(err)
	}
}

// Address returns an address for a server that the test starts, stops and starts again. One that
// the system chose could be given to any client as its own, while nobody listens there.
func Address(t testing.TB) string {
	t.Helper()
	return must(servers.FreeAddress())(t)
}

// NATSCluster starts a private cluster of three nats-servers without JetStream and stops it when
// the test is over.
func NATSCluster(t testing.TB) []*servers.NATS {
	t.Helper()
	cluster := must(servers.StartNATSCluster(3))(t)
	for _, n := range cluster {
		running(n, nil)(t)
	}
	return cluster
}

// Program starts a foreign server, such as a proxy, on a free port, and stops it when the test is
// over.
func Program(t testing.TB, options servers.ProgramOptions) *servers.Program {
	t.Helper()
	return running(servers.StartProgram(t.Context(), options))(t)
}

// running returns a server that was started, and stops it when the test is over.
func running[T interface{ Stop() error }](server T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		must(server, err)(t)
		t.Cleanup(func() {
			if err := server.Stop(); err != nil {
				t.Error(err)
			}
		})
		return server
	}
}

// must returns the result of a call, unless it has failed: then the test ends.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
