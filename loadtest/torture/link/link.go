// Package link is a TCP proxy on loopback between two parts of a fleet. Its faults, such as a delay
// or a partition, change while it runs. Like TCP it never duplicates, reorders or alters bytes.
package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Faults are what a Link does to its connections. The zero value is a link without faults.
type Faults struct {
	// Delay is added to the time of travel of all bytes, each way. It is pipelined: it does not
	// limit throughput below a full queue per Delay.
	Delay time.Duration
	// Jitter is the most that comes on top of Delay, drawn for each chunk: what one read returns,
	// at most 4 KiB. Bytes stay in order.
	Jitter time.Duration
	// Rate is in bytes per second, each way of each connection; 0 is no limit.
	Rate int
	// Loss is the share of chunks, 0 to 1, that arrive 200 ms later, as after a retransmission by
	// TCP. Everything behind such a chunk waits for it.
	Loss float64
	// HoldTo and HoldFrom are a partition: bytes to or from the target wait until it ends, and so
	// do the end of a stream and a reset. A connection opened during HoldTo is accepted, but the
	// target does not hear of it before the end.
	HoldTo, HoldFrom bool
	// Refuse resets new connections at once.
	Refuse bool
}

// Link forwards connections to its target until it is closed. It is safe for concurrent use. It
// queues up to 256 chunks (1 MiB) in each direction of a connection; then it stops reading.
type Link struct {
	target    string
	listener  net.Listener
	accepting chan struct{} // closed when no more connections are accepted

	mu      sync.Mutex
	faults  Faults
	changed chan struct{} // closed when faults are replaced
	conns   map[*conn]struct{}
}

// conn is an accepted connection.
type conn struct {
	reset context.CancelFunc
	ended chan struct{} // closed when its sockets are closed and its goroutines have ended
}

// Listen returns a link from a free port of 127.0.0.1 to a target, host:port, which need not be up:
// while it cannot be reached, connections are accepted and then reset. The error is that of the
// listener, or that target is not of this form.
func Listen(target string) (*Link, error) { return ListenOn(0, target) }

// ListenOn is Listen on a port of the caller's choice.
func ListenOn(port int, target string) (*Link, error) {
	if _, _, err := net.SplitHostPort(target); err != nil {
		return nil, fmt.Errorf("link: target: %w", err)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("link: %w", err)
	}
	l := &Link{
		target: target, listener: listener, accepting: make(chan struct{}),
		changed: make(chan struct{}), conns: map[*conn]struct{}{},
	}
	go l.accept()
	return l, nil
}

// Addr returns the address to connect to instead of the target, host:port.
func (l *Link) Addr() string { return l.listener.Addr().String() }

// Set replaces the faults in force, for open connections too, at once: what waits only for the old
// ones goes on. One chunk for each direction may be past the faults already, and still arrives.
func (l *Link) Set(f Faults) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = f
	close(l.changed)
	l.changed = make(chan struct{})
}

// Faults returns the faults in force.
func (l *Link) Faults() Faults {
	f, _ := l.inForce()
	return f
}

// inForce returns the faults, and a channel that is closed when they are replaced.
func (l *Link) inForce() (Faults, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.faults, l.changed
}

// Cut resets all open connections on both sides, even during a partition, and drops what is queued.
// It returns when that is done, and how many there were. A connection that the kernel has not yet
// handed over escapes.
func (l *Link) Cut() int {
	l.mu.Lock()
	var open []*conn
	for c := range l.conns {
		open = append(open, c)
	}
	l.mu.Unlock()
	for _, c := range open {
		c.reset()
	}
	for _, c := range open {
		<-c.ended
	}
	return len(open)
}

// Close stops listening, resets all connections as Cut does, and waits for the link's goroutines.
// The error is that of the listener; a second Close returns net.ErrClosed.
func (l *Link) Close() error {
	err := l.listener.Close()
	<-l.accepting
	l.Cut()
	return err
}

func (l *Link) accept() {
	defer close(l.accepting)
	for {
		client, err := l.listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // such as no more file descriptors, until some are closed
			time.Sleep(10 * time.Millisecond)
		case l.Faults().Refuse:
			abort(client.(*net.TCPConn))
		default:
			l.open(client.(*net.TCPConn))
		}
	}
}

// open serves a connection in a goroutine.
func (l *Link) open(client *net.TCPConn) {
	ctx, cancel := context.WithCancel(context.Background())
	c := &conn{reset: cancel, ended: make(chan struct{})}
	l.mu.Lock()
	l.conns[c] = struct{}{}
	l.mu.Unlock()
	go func() {
		defer close(c.ended)
		if server, err := l.dial(ctx); err != nil {
			abort(client)
		} else {
			relay(ctx, cancel, client, server, l.inForce)
		}
		cancel()
		l.mu.Lock()
		delete(l.conns, c)
		l.mu.Unlock()
	}()
}

// dial connects to the target. The request waits for the end of HoldTo and a refusal for that of
// HoldFrom, since a partition holds up these packets too.
func (l *Link) dial(ctx context.Context) (*net.TCPConn, error) {
	atOnce := func(Faults) time.Time { return time.Time{} }
	if err := wait(ctx, l.inForce, heldTo, atOnce); err != nil {
		return nil, err
	}
	server, err := new(net.Dialer).DialContext(ctx, "tcp", l.target)
	if err != nil {
		_ = wait(ctx, l.inForce, heldFrom, atOnce) // or the context is done: a reset in any case
		return nil, err
	}
	return server.(*net.TCPConn), nil
}

// relay forwards both directions until both streams have ended, one side has been reset, or the
// context is cancelled, and closes both sides.
func relay(ctx context.Context, cancel func(), client, server *net.TCPConn, faults source) {
	var broken atomic.Bool
	var all, writers sync.WaitGroup
	all.Go(func() {
		<-ctx.Done()
		abort(client) // which ends reads and writes
		abort(server)
	})
	forward := func(src, dst *net.TCPConn, held func(Faults) bool) {
		d := newDirection(faults, held, &broken)
		all.Go(func() { d.read(ctx, src) })
		writers.Go(func() {
			err := d.write(ctx, dst)
			if err != nil {
				broken.Store(true)
			}
			if err == errReset {
				cancel()
			}
			// When a write has failed, the other direction still carries what dst had sent before
			// it went away, and then the reset.
		})
	}
	forward(client, server, heldTo)
	forward(server, client, heldFrom)
	writers.Wait()
	if !broken.Load() {
		_ = client.Close() // not a reset: the kernel may still have bytes to send
		_ = server.Close()
	}
	cancel()
	all.Wait()
}

// abort closes a connection with a reset.
func abort(c *net.TCPConn) {
	_ = c.SetLinger(0) // fails if it is closed already
	_ = c.Close()
}
