// Package natsconn opens a daemon's connection to NATS, and says in its log when that is there.
package natsconn

import (
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/pkg/events/natsbus"
)

// closeTimeout is how long the last messages have to leave.
const closeTimeout = time.Second

// Open returns a connection that is made, and made again, in the background, for as long as it takes.
// The log says once for each change whether it is there. The error is for a malformed URL or for a
// server that will never let us in, such as one that wants other credentials.
func Open(url, name string, log *slog.Logger) (*nats.Conn, error) {
	log = log.With("nats", flags.Redact(url))
	n := &news{log: log}
	return natsbus.Connect(url, name,
		nats.ConnectHandler(func(*nats.Conn) { n.connected() }),
		nats.ReconnectHandler(func(*nats.Conn) { n.connected() }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { n.away(err) }),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { n.away(err) }),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			log.Warn("NATS has a complaint", "error", err, "subject", subject(sub))
		}),
	)
}

// Close sends what is still to be sent and closes the connection.
func Close(conn *nats.Conn) {
	if conn.IsConnected() {
		_ = conn.FlushTimeout(closeTimeout) // nobody is left to tell
	}
	conn.Close()
}

func subject(sub *nats.Subscription) string {
	if sub == nil {
		return ""
	}
	return sub.Subject
}

// news logs changes only: the handlers are called for every attempt.
type news struct {
	log *slog.Logger

	mu      sync.Mutex
	waiting bool
	there   bool
}

func (n *news) connected() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.there {
		n.log.Info("connected to NATS")
	}
	n.there, n.waiting = true, false
}

// away notes that there is no connection; a nil error is that of our own Close.
func (n *news) away(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil && !n.waiting {
		n.log.Warn("waiting for NATS", "error", err)
		n.waiting = true
	}
	n.there = false
}

// State returns the connection's state in lower case, such as connected or reconnecting.
func State(conn *nats.Conn) string { return strings.ToLower(conn.Status().String()) }
