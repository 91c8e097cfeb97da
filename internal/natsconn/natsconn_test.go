package natsconn

import (
	"errors"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
)

// logs is a log that can be waited for.
type logs struct{ daemontest.Buffer }

// patience is how long anything may take, however slow the machine is.
const patience = time.Minute

// await waits until a pattern is in the log so many times, in whatever case.
func (l *logs) await(t *testing.T, pattern string, times int) {
	t.Helper()
	want := regexp.MustCompile("(?i)" + pattern)
	for end := time.Now().Add(patience); len(want.FindAllString(l.String(), times)) < times; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%q is not there %d times:\n%s", pattern, times, l)
		}
	}
}

func (l *logs) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// soon is for connections that try again without a pause.
var soon = []nats.Option{nats.ReconnectWait(5 * time.Millisecond), nats.ReconnectJitter(0, 0)}

func TestOpenSaysWhetherNATSIsThere(t *testing.T) {
	server := serverstest.NATS(t)
	must(t, server.Stop())
	var log logs
	conn, err := Open(server.URL(), "test", log.logger(), soon...)
	must(t, err)
	defer Close(conn)
	log.await(t, "waiting for NATS", 1)
	for i := range 2 {
		must(t, server.Restart())
		log.await(t, "connected to NATS", i+1)
		if got := State(conn); got != "connected" {
			t.Errorf("state %q", got)
		}
		must(t, server.Stop())
		log.await(t, "waiting for NATS", i+2)
	}
	if n := strings.Count(log.String(), "\n"); n != 5 {
		t.Errorf("%d lines, want one for each change:\n%s", n, &log)
	}
}

func TestOpenRefusesWhatIsNoURL(t *testing.T) {
	if conn, err := Open("nats://a b:x", "test", slog.New(slog.DiscardHandler)); err == nil {
		conn.Close()
		t.Error("it was taken")
	}
}

// TestRefuses: what a server says of who we are is a refusal, which is told once, and not a complaint, which is told each time.
func TestRefuses(t *testing.T) {
	for err, want := range map[error]bool{
		nats.ErrAuthorization: true, nats.ErrAuthExpired: true, nats.ErrAuthRevoked: true, nats.ErrAccountAuthExpired: true,
		errors.New("remote error: tls: bad certificate"): true, nats.ErrSlowConsumer: false, nats.ErrPermissionViolation: false,
	} {
		if refuses(err) != want {
			t.Errorf("%v: want %v", err, want)
		}
	}
}
