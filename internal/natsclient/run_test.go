package natsclient

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
)

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
			select {
			case err := <-ended:
				if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
					t.Errorf("%v, want %q", err, test.want)
				}
			case <-time.After(daemontest.Patience):
				t.Errorf("it goes on with a connection that is %s", State(conn))
			}
		})
	}
}
