package offpath

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath/internal/natsclient"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/events/natsbus"
)

// link is the checker's connection to NATS, and the next one when the library closes that for good,
// as it does after some errors of a server. To the checker it is one check.Link.
type link struct {
	open      func() (*nats.Conn, error)
	namespace string
	name      string
	log       *slog.Logger
	delays    delays
	current   atomic.Pointer[session]
	tooLong   chan struct{} // a message exceeded what the server took when the connection was made
}

// session is the time of one connection.
type session struct {
	conn *nats.Conn
	link *natsbus.Checker
	over chan struct{} // closed when the next one is there
}

// delays are those of a link.
type delays struct {
	first, most time.Duration // between two connections: doubled from first to most
	lasting     time.Duration // a connection that has lasted for this begins with first again
	larger      time.Duration // between two attempts to be told of a larger max_payload
}

var usualDelays = delays{
	first: time.Second, most: 30 * time.Second, lasting: time.Minute, larger: 30 * time.Second,
}

// openLink returns a link with its first session, which need not be connected yet.
func openLink(o Options) (*link, error) {
	name := nameOf(o)
	options := o.NATSOptions
	if o.Name != "" { // so that accounts can keep JetStream's answers from other checkers
		options = append([]nats.Option{nats.CustomInboxPrefix("_INBOX." + o.Name)}, options...)
	}
	return newLink(o.Namespace, name, o.Log, func() (*nats.Conn, error) {
		return natsclient.Open(o.NATS, "offpath-checker-"+name, o.Log, options...)
	})
}

func newLink(
	namespace, name string, log *slog.Logger, open func() (*nats.Conn, error),
) (*link, error) {
	l := &link{
		open: open, namespace: namespace, name: name, log: log, delays: usualDelays,
		tooLong: make(chan struct{}, 1),
	}
	first, err := l.begin()
	l.current.Store(first)
	return l, err
}

func (l *link) begin() (*session, error) {
	conn, err := l.open()
	if err != nil {
		return nil, err
	}
	link, err := natsbus.NewChecker(conn, l.namespace, l.name)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &session{conn, link, make(chan struct{})}, nil
}

func (l *link) conn() *nats.Conn { return l.current.Load().conn }

// close closes the present connection. A nil link has none.
func (l *link) close() {
	if l != nil {
		natsclient.Close(l.conn())
	}
}

// run opens another connection whenever one has been closed for good, until ctx is done.
func (l *link) run(ctx context.Context) {
	var asking sync.WaitGroup
	defer asking.Wait()
	asking.Go(func() { l.askForLarger(ctx) })
	wait, since := l.delays.first, time.Now()
	for {
		now := l.current.Load()
		err := natsclient.Run(ctx, now.conn)
		if err == nil { // ctx is done
			return
		}
		if time.Since(since) >= l.delays.lasting {
			wait = l.delays.first
		}
		l.log.Error("reconnecting to NATS", "error", err, "delay", wait)
		if !pause(ctx, wait) {
			return
		}
		wait, since = min(2*wait, l.delays.most), time.Now()
		next, err := l.begin()
		if err != nil {
			l.log.Error("no other connection to NATS", "error", err)
			continue
		}
		l.current.Store(next)
		close(now.over)
	}
}

// askForLarger reconnects when a message was too long: a server says what it takes only when a
// connection is made, and may have had its settings changed since.
func (l *link) askForLarger(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.tooLong:
		}
		l.log.Warn("reconnecting to NATS, which takes no message of this length (max_payload)")
		_ = l.conn().ForceReconnect() // fails if it is closed or disconnected, which run sees to
		if !pause(ctx, l.delays.larger) {
			return
		}
	}
}

// pause waits, or returns false when ctx is done.
func pause(ctx context.Context, wait time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(wait):
		return true
	}
}

// each runs f with one session after the other, each time until the session is over or ctx is done.
// It returns nil when ctx is done, and an error of f that the end of the connection does not
// explain.
func (l *link) each(ctx context.Context, f func(context.Context, *session) error) error {
	for ctx.Err() == nil {
		now := l.current.Load()
		run, cancel := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() {
			select {
			case <-now.over:
				cancel()
			case <-ended:
			}
		}()
		err := f(run, now)
		cancel()
		close(ended)
		if err != nil && !now.conn.IsClosed() {
			return err
		}
		select {
		case <-ctx.Done():
		case <-now.over:
		}
	}
	return nil
}

// sent notes a message that was too long.
func (l *link) sent(err error) error {
	if errors.Is(err, nats.ErrMaxPayload) {
		select {
		case l.tooLong <- struct{}{}:
		default:
		}
	}
	return err
}

// Report sends a report by the present connection. The checker repeats what cannot be sent now, as
// it does with lease requests and hellos.
func (l *link) Report(shard uint32, toOwner bool, report []byte) error {
	return l.sent(l.current.Load().link.Report(shard, toOwner, report))
}

// Lease sends a request for permits.
func (l *link) Lease(shard uint32, toOwner bool, request []byte) error {
	return l.sent(l.current.Load().link.Lease(shard, toOwner, request))
}

// Hello sends a hello.
func (l *link) Hello(hello []byte) error { return l.sent(l.current.Load().link.Hello(hello)) }

// Listen hands over what comes by any of the connections.
func (l *link) Listen(ctx context.Context, h func(events.Kind, []byte)) error {
	return l.each(ctx, func(ctx context.Context, s *session) error { return s.link.Listen(ctx, h) })
}
