// Package natsconn opens a daemon's connection to NATS, and says in its log when that is there.
package natsconn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath/internal/redact"
	"github.com/offpath-io/offpath/pkg/events/natsbus"
)

// closeTimeout is how long the last messages have to leave.
const closeTimeout = time.Second

// Open returns a connection that is made, and made again, in the background, for as long as it takes, with these options beside
// its own. The log says once for each change whether it is there, and why not: what a server refuses now, it may take once
// its settings or our files have changed. The error is for a malformed URL.
func Open(url, name string, log *slog.Logger, options ...nats.Option) (*nats.Conn, error) {
	log = log.With("nats", redact.URLs(url))
	n := &news{log: log}
	closed := make(chan struct{})
	conn, err := natsbus.Connect(url, name, append([]nats.Option{
		nats.IgnoreAuthErrorAbort(),
		nats.ClosedHandler(func(*nats.Conn) { close(closed) }),
		nats.ConnectHandler(func(*nats.Conn) { n.connected() }),
		nats.ReconnectHandler(func(*nats.Conn) { n.connected() }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { n.away(err) }),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { n.away(err) }),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			if sub == nil && refuses(err) {
				n.away(err)
				return
			}
			log.Warn("NATS has a complaint", "error", err, "subject", subject(sub))
		}),
	}, options...)...)
	if err != nil {
		return nil, err
	}
	go n.watch(conn, closed)
	return conn, nil
}

// watch tells of servers that are reached but refuse us, or that we refuse: for those the library calls no handler. It
// ends with the connection.
func (n *news) watch(conn *nats.Conn, closed <-chan struct{}) {
	changes := conn.StatusChanged(nats.RECONNECTING)
	defer conn.RemoveStatusListener(changes)
	for {
		select {
		case <-closed:
			return
		case <-changes:
		}
		if err := conn.LastError(); err != nil && refuses(err) {
			n.away(err)
		}
	}
}

// refuses reports whether an error says that one of the two sides does not want the other.
func refuses(err error) bool {
	for _, reason := range []error{
		nats.ErrTLS, nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired,
		nats.ErrSecureConnWanted, nats.ErrNkeysNotSupported,
	} {
		if errors.Is(err, reason) {
			return true
		}
	}
	// What a server says of our certificate has no type. It may come after the handshake.
	return strings.Contains(err.Error(), "remote error: tls: ")
}

// Run returns nil once ctx is done. If the connection is closed before, it returns an error that says why: there are complaints of a
// server, such as that a message is longer than it takes since its settings were changed, after which the library closes a connection for
// good. Without another one nothing would be counted, for ever.
func Run(ctx context.Context, conn *nats.Conn) error {
	closed := conn.StatusChanged(nats.CLOSED)
	defer conn.RemoveStatusListener(closed)
	if !conn.IsClosed() { // else nobody tells
		select {
		case <-ctx.Done():
			return nil
		case <-closed:
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("the connection is closed for good, after: %w", cmp.Or(conn.LastError(), nats.ErrConnectionClosed))
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
	refused string // the refusal that was logged last while waiting
}

func (n *news) connected() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.there {
		n.log.Info("connected to NATS")
	}
	n.there, n.waiting, n.refused = true, false, ""
}

// away notes that there is no connection; a nil error is that of our own Close. A refusal is news even if there was another
// reason to wait before.
func (n *news) away(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	refusal := ""
	if err != nil && refuses(err) {
		refusal = strings.ToLower(err.Error()) // the library has two spellings of one
	}
	if err != nil && (!n.waiting || refusal != "" && refusal != n.refused) {
		n.log.Warn("waiting for NATS", "error", err)
		n.waiting, n.refused = true, refusal
	}
	n.there = false
}

// State returns the connection's state in lower case, such as connected or reconnecting.
func State(conn *nats.Conn) string { return strings.ToLower(conn.Status().String()) }
