package servers_test

import (
	"bytes"
	"log/slog"
	"net/url"
	"os"
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
	if err != nil || string(answer.Data) != "hello" {
		t.Fatalf("request: %v, %v", answer, err)
	}
}

func TestNATSAnswers(t *testing.T) {
	n := serverstest.NATS(t)
	echo(t, dial(t, n.URL()), dial(t, n.URL()))
	js, err := dial(t, n.URL()).JetStream()
	must(t, err)
	if _, err := js.AccountInfo(); err == nil {
		t.Error("JetStream is on, and nobody has asked for it")
	}
}

func TestNATSRestartKeepsThePort(t *testing.T) {
	n := serverstest.NATS(t)
	before := n.URL()
	back := make(chan struct{}, 2)
	onReturn := nats.ReconnectHandler(func(*nats.Conn) { back <- struct{}{} })
	asker, answerer := dial(t, before, onReturn), dial(t, before, onReturn)
	for range 3 {
		must(t, n.Restart())
		if n.URL() != before {
			t.Fatalf("moved from %s to %s", before, n.URL())
		}
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

func TestNATSStoppedAndStartedAgain(t *testing.T) {
	n := serverstest.NATS(t)
	parsed, err := url.Parse(n.URL())
	must(t, err)
	for range 2 { // to stop what is stopped is no error
		must(t, n.Stop())
		if !refuses(parsed.Host) {
			t.Fatal("still listening after Stop")
		}
	}
	must(t, n.Restart())
	echo(t, dial(t, n.URL()), dial(t, n.URL()))
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
	if _, err := bucket.PutString("a", "1"); err != nil {
		t.Fatal(err)
	}
	must(t, n.Restart())
	js, err = dial(t, n.URL()).JetStream()
	must(t, err)
	bucket, err = js.KeyValue("rules")
	must(t, err)
	if got, err := bucket.Get("a"); err != nil || string(got.Value()) != "1" {
		t.Errorf("after a restart: %v, %v", got, err)
	}
	must(t, n.Stop())
	if left := entries(t, os.TempDir()); len(left) != 0 {
		t.Errorf("Stop left %v", left)
	}
}

func TestNATSSaysThatThePortIsTaken(t *testing.T) {
	n := serverstest.NATS(t)
	parsed, err := url.Parse(n.URL())
	must(t, err)
	port, err := strconv.Atoi(parsed.Port())
	must(t, err)
	second, err := servers.StartNATS(servers.NATSOptions{Port: port})
	if err == nil {
		second.Stop()
		t.Fatal("two servers on one port")
	}
	if !strings.Contains(err.Error(), "port taken") {
		t.Errorf("error %q does not say that the port is taken", err)
	}
}

func TestNATSLogsToTheLoggerIfGiven(t *testing.T) {
	var out bytes.Buffer
	n, err := servers.StartNATS(servers.NATSOptions{Logger: slog.New(slog.NewTextHandler(&out, nil))})
	must(t, err)
	must(t, n.Stop())
	if !strings.Contains(out.String(), "Listening for client connections") {
		t.Errorf("the log is %q", out.String())
	}
}
