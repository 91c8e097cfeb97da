package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath/cmd/internal/daemon"
	"github.com/offpath-io/offpath/internal/natsconn"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/events/natsbus"
)

// lifeline is the checker's connection to NATS, and the next one when the library closes that for good, which it does after some
// complaints of a server. To the checker it is one link: nothing behind it may end a checker, or take from it what it has counted.
type lifeline struct {
	open       func() (*nats.Conn, error)
	namespace  string
	name       string
	log        *slog.Logger
	soon, late time.Duration // between two connections
	askAgain   time.Duration // see askForMore
	at         atomic.Pointer[strand]
	tooLong    chan struct{} // a message was longer than the server takes, as it said when it was connected
}

// strand is one of the connections.
type strand struct {
	conn *nats.Conn
	link *natsbus.Checker
	over chan struct{} // closed when the next one is there
}

const (
	// reopenSoon and reopenLate are how long it takes until another connection is opened: more each time, as long as none lasts for lasting.
	reopenSoon, reopenLate = time.Second, 30 * time.Second
	lasting                = time.Minute
	// askAgainEvery is the least time between two connections that are made anew since a message was too long.
	askAgainEvery = 30 * time.Second
)

// newLifeline returns one with its first connection, which need not be there yet. An error is that there can be none.
func newLifeline(open func() (*nats.Conn, error), namespace, name string, log *slog.Logger) (*lifeline, error) {
	l := &lifeline{
		open: open, namespace: namespace, name: name, log: log, soon: reopenSoon, late: reopenLate, askAgain: askAgainEvery,
		tooLong: make(chan struct{}, 1),
	}
	first, err := l.begin()
	l.at.Store(first)
	return l, err
}

func (l *lifeline) begin() (*strand, error) {
	conn, err := l.open()
	if err != nil {
		return nil, err
	}
	link, err := natsbus.NewChecker(conn, l.namespace, l.name)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &strand{conn, link, make(chan struct{})}, nil
}

// conn is the present connection.
func (l *lifeline) conn() *nats.Conn { return l.at.Load().conn }

// close sends what is still to be sent, and closes the connection. The part has to have ended.
func (l *lifeline) close() { natsconn.Close(l.conn()) }

// part opens another connection when there has to be one.
func (l *lifeline) part() daemon.Part {
	return daemon.Part{Name: "NATS", Run: func(ctx context.Context) error {
		var asking sync.WaitGroup
		defer asking.Wait()
		asking.Go(func() { l.askForMore(ctx) })
		wait, since := l.soon, time.Now()
		for {
			now := l.at.Load()
			err := natsconn.Run(ctx, now.conn)
			if err == nil { // ctx is done
				return nil
			}
			if time.Since(since) >= lasting {
				wait = l.soon
			}
			l.log.Error("NATS: another connection is opened", "because", err, "in", wait)
			if !pause(ctx, wait) {
				return nil
			}
			wait, since = min(2*wait, l.late), time.Now()
			next, err := l.begin()
			if err != nil {
				l.log.Error("NATS: no other connection", "error", err)
				continue
			}
			l.at.Store(next)
			close(now.over)
		}
	}}
}

// askForMore makes the connection anew when a message was too long: a server says what it takes at the beginning only, and may have
// had its settings changed since.
func (l *lifeline) askForMore(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.tooLong:
		}
		l.log.Warn("NATS takes no message that is so long (max_payload): the connection is made anew")
		_ = l.conn().ForceReconnect() // else it is closed, or away already
		if !pause(ctx, l.askAgain) {
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

// sent takes in what became of a message.
func (l *lifeline) sent(err error) error {
	if errors.Is(err, nats.ErrMaxPayload) {
		select {
		case l.tooLong <- struct{}{}:
		default:
		}
	}
	return err
}

// each runs f with one connection after the other, each time until that is over or ctx is done, and returns when ctx is done. An error of f
// that is not the connection's end is returned at once.
func (l *lifeline) each(ctx context.Context, f func(context.Context, *strand) error) error {
	for ctx.Err() == nil {
		now := l.at.Load()
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

// Report is the present connection's, as are Lease and Hello: what cannot be sent now is sent again by who asks.
func (l *lifeline) Report(shard uint32, aggregator uint64, report []byte) error {
	return l.sent(l.at.Load().link.Report(shard, aggregator, report))
}

// Lease sends a request for permits.
func (l *lifeline) Lease(shard uint32, aggregator uint64, request []byte) error {
	return l.sent(l.at.Load().link.Lease(shard, aggregator, request))
}

// Hello sends a hello.
func (l *lifeline) Hello(hello []byte) error { return l.sent(l.at.Load().link.Hello(hello)) }

// Listen hands over what comes by any of the connections.
func (l *lifeline) Listen(ctx context.Context, h func(events.Kind, []byte)) error {
	return l.each(ctx, func(ctx context.Context, s *strand) error { return s.link.Listen(ctx, h) })
}
