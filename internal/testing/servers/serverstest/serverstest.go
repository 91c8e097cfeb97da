// Package serverstest starts the servers of package servers for the length of a test.
//
// A server that cannot be started fails the test; it never skips it, since a green run would then mean nothing.
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
	r, err := servers.StartRedis(t.Context(), servers.RedisOptions{Args: args})
	if err != nil {
		t.Fatal(err)
	}
	stopAfter(t, r.Stop)
	return r
}

// RedisCluster starts a private Redis Cluster of three masters and stops it when the test is over.
// The start takes 2 s; share one between subtests.
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

// JetStream starts a private nats-server with JetStream, whose files are in a temporary directory,
// and stops it when the test is over.
func JetStream(t testing.TB) *servers.NATS { return startNATS(t, servers.NATSOptions{JetStream: true}) }

// patience is how long a server may take for anything. The library's own bounds, 2 s for a
// connection and 5 s for a request of JetStream, fail a test whose machine stands still for a while.
const patience = time.Minute

// Connect returns a connection to the server at url, which comes back soon after the server does,
// with further options, if given. It is closed when the test is over.
func Connect(t testing.TB, url string, options ...nats.Option) *nats.Conn {
	t.Helper()
	conn, err := nats.Connect(url, append([]nats.Option{
		nats.MaxReconnects(-1), nats.ReconnectWait(10 * time.Millisecond), nats.Timeout(patience),
	}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

// JetStreamOf returns JetStream of a connection.
func JetStreamOf(t testing.TB, conn *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(conn, jetstream.WithDefaultTimeout(patience))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// Bucket opens a key-value bucket of the server at url, as anybody sees it who may write into it.
func Bucket(t testing.TB, url, name string) jetstream.KeyValue {
	t.Helper()
	js := JetStreamOf(t, Connect(t, url))
	kv, err := js.KeyValue(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return kv
}

// DropBucket deletes a key-value bucket of the server at url, so that it can be made again at once.
// A server with no other stream could refuse that: when its last stream is gone nats-server
// removes, in the background, the directory that the next one is about to use ("error creating
// store for stream"). So another stream is there first.
func DropBucket(t testing.TB, url, name string) {
	t.Helper()
	js := JetStreamOf(t, Connect(t, url))
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "another", Subjects: []string{"another"}}); err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteKeyValue(t.Context(), name); err != nil {
		t.Fatal(err)
	}
}

// Address returns an address for a server that the test starts, stops and starts again. One that the
// system chose could be given to any client as its own, while nobody listens there.
func Address(t testing.TB) string {
	t.Helper()
	address, err := servers.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// NATSWith starts a private nats-server as these options say, and stops it when the test is over.
func NATSWith(t testing.TB, options servers.NATSOptions) *servers.NATS {
	t.Helper()
	return startNATS(t, options)
}

func startNATS(t testing.TB, options servers.NATSOptions) *servers.NATS {
	t.Helper()
	n, err := servers.StartNATS(options)
	if err != nil {
		t.Fatal(err)
	}
	stopAfter(t, n.Stop)
	return n
}

// NATSCluster starts a private cluster of three nats-servers without JetStream and stops it when
// the test is over.
func NATSCluster(t testing.TB) []*servers.NATS {
	t.Helper()
	cluster, err := servers.StartNATSCluster(3)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range cluster {
		stopAfter(t, n.Stop)
	}
	return cluster
}

// Program starts a foreign server, such as a proxy, on a free port, and stops it when the test is
// over.
func Program(t testing.TB, options servers.ProgramOptions) *servers.Program {
	t.Helper()
	p, err := servers.StartProgram(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	stopAfter(t, p.Stop)
	return p
}

func stopAfter(t testing.TB, stop func() error) {
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
