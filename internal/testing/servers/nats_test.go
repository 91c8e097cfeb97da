package servers_test

import (
	"bytes"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath/internal/testing/servers"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
)

// dial returns a connection that is closed with the test and keeps trying to come back.
func dial(t *testing.T, url string, options ...nats.Option) *nats.Conn {
	t.Helper()
	options = append(options, nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))
	conn, err := nats.Connect(url, options...)
	must(t, err)
	t.Cleanup(conn.Close)
	return conn
}

// echo fails unless a request through the server is answered.
func echo(t *testing.T, asker, answerer *nats.Conn) {
	t.Helper()
	sub, err := answerer.Subscribe("echo", func(m *nats.Msg) { m.Respond(m.Data) })
	must(t, err)
	defer sub.Unsubscribe()
	must(t, answerer.FlushTimeout(time.Minute))
	answer, err := asker.Request("echo", []byte("hello"), time.Minute)
	require(t, err == nil && string(answer.Data) == "hello", "request: %v, %v", answer, err)
}

// TestNATSComesBackOnItsPort, after a restart and after a stop, and its clients with it. It has no
// JetStream that nobody has asked for.
func TestNATSComesBackOnItsPort(t *testing.T) {
	n := serverstest.NATS(t)
	before := n.URL()
	back := make(chan struct{}, 2)
	onReturn := nats.ReconnectHandler(func(*nats.Conn) { back <- struct{}{} })
	asker, answerer := dial(t, before, onReturn), dial(t, before, onReturn)
	js, err := asker.JetStream()
	must(t, err)
	_, err = js.AccountInfo()
	expect(t, err != nil, "JetStream is on")
	for stops := range 3 { // to stop what is stopped is no error
		for range stops {
			must(t, n.Stop())
			require(t, refuses(host(t, n)), "still listening after Stop")
		}
		must(t, n.Restart())
		require(t, n.URL() == before, "moved from %s to %s", before, n.URL())
		for range 2 {
			select {
			case <-back:
			case <-time.After(time.Minute):
				t.Fatal("a connection does not come back")
			}
		}
		echo(t, asker, answerer)
	}
}

// host is where a server listens.
func host(t *testing.T, n *servers.NATS) string {
	t.Helper()
	parsed, err := url.Parse(n.URL())
	must(t, err)
	return parsed.Host
}

func TestNATSJetStreamKeepsItsDataOverARestart(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	n, err := servers.StartNATS(servers.NATSOptions{JetStream: true})
	must(t, err)
	defer n.Stop()
	js, err := dial(t, n.URL()).JetStream()
	must(t, err)
	bucket, err := js.CreateKeyValue(&nats.KeyValueConfig{Bucket: "rules"})
	must(t, err)
	_, err = bucket.PutString("a", "1")
	must(t, err)
	must(t, n.Restart())
	js, err = dial(t, n.URL()).JetStream()
	must(t, err)
	bucket, err = js.KeyValue("rules")
	must(t, err)
	got, err := bucket.Get("a")
	expect(t, err == nil && string(got.Value()) == "1", "after a restart: %v, %v", got, err)
	must(t, n.Stop())
	nothingLeft(t)
}

func TestNATSSaysThatThePortIsTaken(t *testing.T) {
	n := serverstest.NATS(t)
	_, text, err := net.SplitHostPort(host(t, n))
	must(t, err)
	port, err := strconv.Atoi(text)
	must(t, err)
	second, err := servers.StartNATS(servers.NATSOptions{Port: port})
	if err == nil {
		second.Stop()
		t.Fatal("two servers on one port")
	}
	expect(t, strings.Contains(err.Error(), "port taken"), "error %q does not say that the port is taken", err)
}

func TestNATSLogsToTheLoggerIfGiven(t *testing.T) {
	var out bytes.Buffer
	n, err := servers.StartNATS(servers.NATSOptions{Logger: slog.New(slog.NewTextHandler(&out, nil))})
	must(t, err)
	must(t, n.Stop())
	expect(t, strings.Contains(out.String(), "Listening for client connections"), "the log is %q", out.String())
}
