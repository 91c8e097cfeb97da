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
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

// echo fails unless a request through the server is answered.
func echo(t *testing.T, asker, answerer *nats.Conn) {
	t.Helper()
	sub, err := answerer.Subscribe("echo", func(m *nats.Msg) { m.Respond(m.Data) })
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Unsubscribe()
	if err := answerer.FlushTimeout(20 * time.Second); err != nil {
		t.Fatal(err)
	}
	answer, err := asker.Request("echo", []byte("hello"), 20*time.Second)
	if err != nil || string(answer.Data) != "hello" {
		t.Fatalf("request: %v, %v", answer, err)
	}
}

func TestNATSAnswers(t *testing.T) {
	n := serverstest.NATS(t)
	echo(t, dial(t, n.URL()), dial(t, n.URL()))
	js, err := dial(t, n.URL()).JetStream()
	if err != nil {
		t.Fatal(err)
	}
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
		if err := n.Restart(); err != nil {
			t.Fatal(err)
		}
		if n.URL() != before {
			t.Fatalf("moved from %s to %s", before, n.URL())
		}
		for range 2 {
			select {
			case <-back:
			case <-time.After(10 * time.Second):
				t.Fatal("a connection does not come back")
			}
		}
		echo(t, asker, answerer)
	}
}

func TestNATSStoppedAndStartedAgain(t *testing.T) {
	n := serverstest.NATS(t)
	parsed, err := url.Parse(n.URL())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // to stop what is stopped is no error
		if err := n.Stop(); err != nil {
			t.Fatal(err)
		}
		if !refuses(parsed.Host) {
			t.Fatal("still listening after Stop")
		}
	}
	if err := n.Restart(); err != nil {
		t.Fatal(err)
	}
	echo(t, dial(t, n.URL()), dial(t, n.URL()))
}

func TestNATSJetStreamKeepsItsDataOverARestart(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	n, err := servers.StartNATS(servers.NATSOptions{JetStream: true})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Stop()
	js, err := dial(t, n.URL()).JetStream()
	if err != nil {
		t.Fatal(err)
	}
	bucket, err := js.CreateKeyValue(&nats.KeyValueConfig{Bucket: "rules"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bucket.PutString("a", "1"); err != nil {
		t.Fatal(err)
	}
	if err := n.Restart(); err != nil {
		t.Fatal(err)
	}
	js, err = dial(t, n.URL()).JetStream()
	if err != nil {
		t.Fatal(err)
	}
	bucket, err = js.KeyValue("rules")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := bucket.Get("a"); err != nil || string(got.Value()) != "1" {
		t.Errorf("after a restart: %v, %v", got, err)
	}
	if err := n.Stop(); err != nil {
		t.Fatal(err)
	}
	if left := entries(t, os.TempDir()); len(left) != 0 {
		t.Errorf("Stop left %v", left)
	}
}

func TestNATSSaysThatThePortIsTaken(t *testing.T) {
	n := serverstest.NATS(t)
	parsed, err := url.Parse(n.URL())
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(parsed.Port())
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	second, err := servers.StartNATS(servers.NATSOptions{Port: port})
	if err == nil {
		second.Stop()
		t.Fatal("two servers on one port")
	}
	if !strings.Contains(err.Error(), "port taken") {
		t.Errorf("error %q does not say that the port is taken", err)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("it took %v to notice", took)
	}
}

func TestNATSLogsToTheLoggerIfGiven(t *testing.T) {
	var out bytes.Buffer
	n, err := servers.StartNATS(servers.NATSOptions{Logger: slog.New(slog.NewTextHandler(&out, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Stop(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "Listening for client connections") {
		t.Errorf("the log is %q", out.String())
	}
}
