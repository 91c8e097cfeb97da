// Package natsclient opens connections to NATS that reconnect for as long as it takes, and logs
// when they are connected and why they are not.
package natsclient

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

// closeTimeout bounds the last flush of a connection.
const closeTimeout = time.Second

// Open returns a connection that connects and reconnects in the background, for as long as it
// takes, with further options. It logs each change once: that it is connected, or why it is not. It
// also tries again after refusals, since the server's settings or the files of the options can
// change. The error is that of a malformed URL or of an option.
func Open(url, name string, log *slog.Logger, options ...nats.Option) (*nats.Conn, error) {
	log = log.With("nats", redact.URLs(url))
	s := &state{log: log}
	conn, err := natsbus.Connect(url, name, append([]nats.Option{
		nats.IgnoreAuthErrorAbort(),
		nats.ConnectHandler(func(*nats.Conn) { s.connected() }),
		nats.ReconnectHandler(func(*nats.Conn) { s.connected() }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { s.away(err) }),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { s.away(err) }),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			if sub == nil && refuses(err) {
				s.away(err)
				return
			}
			log.Warn("error of NATS", "error", err, "subject", subject(sub))
		}),
	}, options...)...)
	if err != nil {
		return nil, err
	}
	go s.watch(conn)
	return conn, nil
}

// watch logs refusals by either side during the handshake, for which the library calls no handler.
// It ends with the connection.
func (s *state) watch(conn *nats.Conn) {
	changes := conn.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	defer conn.RemoveStatusListener(changes)
	for !conn.IsClosed() {
		<-changes
		if err := conn.LastError(); err != nil && refuses(err) {
			s.stillAway(err)
		}
	}
}

// refuses reports whether an error says that one side refuses the other.
func refuses(err error) bool {
	for _, reason := range []error{
		nats.ErrTLS, nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired,
		nats.ErrSecureConnWanted, nats.ErrNkeysNotSupported,
	} {
		if errors.Is(err, reason) {
			return true
		}
	}
	// A server's error about our certificate has no type. It can arrive after the handshake.
	return strings.Contains(err.Error(), "remote error: tls: ")
}

// Run returns nil once ctx is done. If the connection is closed before that, it returns an error
// that says why: after some errors of a server, such as a message beyond a reloaded max_payload,
// the library closes a connection for good.
func Run(ctx context.Context, conn *nats.Conn) error {
	closed := conn.StatusChanged(nats.CLOSED)
	defer conn.RemoveStatusListener(closed)
	if !conn.IsClosed() { // else there is no further change
		select {
		case <-ctx.Done():
			return nil
		case <-closed:
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	err := cmp.Or(conn.LastError(), nats.ErrConnectionClosed)
	return fmt.Errorf("the connection is closed for good, after: %w", err)
}

// Close flushes and closes the connection.
func Close(conn *nats.Conn) {
	if conn.IsConnected() {
		_ = conn.FlushTimeout(closeTimeout) // there is no way to send the rest
	}
	conn.Close()
}

func subject(sub *nats.Subscription) string {
	if sub == nil {
		return ""
	}
	return sub.Subject
}

// state logs changes of a connection's state: the handlers are called for every attempt.
type state struct {
	log *slog.Logger

	mu      sync.Mutex
	waiting bool
	there   bool
	refused string // the refusal that was logged last, while waiting
}

func (s *state) connected() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.there {
		s.log.Info("connected to NATS")
	}
	s.there, s.waiting, s.refused = true, false, ""
}

// away notes that there is no connection; err is nil after Close. A refusal is logged even if
// another reason to wait was.
func (s *state) away(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.awayLocked(err)
}

// stillAway is away for what may be heard late: the connection may have been made meanwhile.
func (s *state) stillAway(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.there {
		s.awayLocked(err)
	}
}

func (s *state) awayLocked(err error) {
	refusal := ""
	if err != nil && refuses(err) {
		refusal = strings.ToLower(err.Error()) // the library has two spellings of one
	}
	if err != nil && (!s.waiting || refusal != "" && refusal != s.refused) {
		s.log.Warn("waiting for NATS", "error", err)
		s.waiting, s.refused = true, refusal
	}
	s.there = false
}

// State returns the connection's state in lower case, such as connected or reconnecting.
func State(conn *nats.Conn) string { return strings.ToLower(conn.Status().String()) }
