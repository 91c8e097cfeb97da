package natsclient

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
)

var must = daemontest.Must

// soon is for connections that try again without a pause.
var soon = []nats.Option{nats.ReconnectWait(5 * time.Millisecond), nats.ReconnectJitter(0, 0)}

func TestOpenSaysWhetherNATSIsThere(t *testing.T) {
	server := serverstest.NATS(t)
	must(t, server.Stop())
	var log daemontest.Buffer
	conn, err := Open(server.URL(), "test", log.Logger(), soon...)
	must(t, err)
	defer Close(conn)
	log.Await(t, "waiting for NATS", 1)
	for i := range 2 {
		must(t, server.Restart())
		log.Await(t, "connected to NATS", i+1)
		if got := State(conn); got != "connected" {
			t.Errorf("state %q", got)
		}
		must(t, server.Stop())
		log.Await(t, "waiting for NATS", i+2)
	}
	if n := strings.Count(log.String(), "\n"); n != 5 {
		t.Errorf("%d lines, want one for each change:\n%s", n, &log)
	}
}

// TestLateRefusals: a refusal that is heard of when the next attempt has got in says nothing any
// more.
func TestLateRefusals(t *testing.T) {
	var log daemontest.Buffer
	s := &state{log: log.Logger()}
	s.stillAway(nats.ErrAuthorization)
	s.connected()
	s.stillAway(nats.ErrAuthorization)
	s.connected()
	if strings.Count(log.String(), "waiting for NATS") != 1 || strings.Count(log.String(), "connected to NATS") != 1 {
		t.Errorf("want one refusal and one connection:\n%s", &log)
	}
	s.away(nil)
	s.stillAway(nats.ErrAuthorization)
	if strings.Count(log.String(), "waiting for NATS") != 2 {
		t.Errorf("the refusal after the connection was lost is missing:\n%s", &log)
	}
}

// TestRefuses: what a server says of who we are is a refusal, which is told once, and not a
// complaint, which is told each time.
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

// TestWatchEnds: a closed connection leaves no goroutine that waits for news of it.
func TestWatchEnds(t *testing.T) {
	nats := serverstest.NATS(t)
	n := &state{log: slog.New(slog.DiscardHandler)}
	conn, err := Open(nats.URL(), "test", slog.New(slog.DiscardHandler))
	must(t, err)
	ended := make(chan struct{})
	go func() { defer close(ended); n.watch(conn) }()
	Close(conn)
	daemontest.Next(t, "it ends", ended)
}

// TestRun: it returns when it is told to, and when a server has complained of something after which
// the library connects no more.
func TestRun(t *testing.T) {
	const least = 16
	tooLong := func(t *testing.T, conn *nats.Conn, nats *servers.NATS) {
		must(t, nats.Reload(func(o *server.Options) { o.MaxPayload = least }))
		must(t, conn.Publish("subject", make([]byte, least+1))) // who is connected is not told of the new bound
	}
	for name, test := range map[string]struct {
		end      func(*testing.T, *nats.Conn, *servers.NATS)
		connects int    // how often, until it is told to end
		want     string // "" if it does not end before
	}{
		"nothing happens":       {func(*testing.T, *nats.Conn, *servers.NATS) {}, 1, ""},
		"a restart":             {func(t *testing.T, _ *nats.Conn, nats *servers.NATS) { must(t, nats.Restart()) }, 2, ""},
		"a message is too long": {tooLong, 0, "Maximum Payload Violation"},
		"somebody closes it":    {func(_ *testing.T, conn *nats.Conn, _ *servers.NATS) { conn.Close() }, 0, "connection closed"},
	} {
		t.Run(name, func(t *testing.T) {
			nats := serverstest.NATS(t)
			var log daemontest.Buffer
			conn, err := Open(nats.URL(), "test", log.Logger(), soon...)
			must(t, err)
			defer Close(conn)
			log.Await(t, "connected to NATS", 1)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			ended := make(chan error, 1)
			go func() { ended <- Run(ctx, conn) }()
			test.end(t, conn, nats)
			if test.want == "" {
				log.Await(t, "connected to NATS", test.connects)
				stop()
			}
			err = daemontest.Next(t, "it ends", ended)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}
