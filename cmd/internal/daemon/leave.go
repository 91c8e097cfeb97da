package daemon

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// lingerTime is how long idle connections stay open once a server has stopped listening: a request
// that was just sent on one is still answered.
const lingerTime = 250 * time.Millisecond

// lingerPoll is how often to check whether that is over.
const lingerPoll = 5 * time.Millisecond

// Leaving stops a daemon so that no request fails. Told to stop, the daemon first reports that it
// is not ready, and keeps answering for a while: load balancers need it to notice. From then on
// each answer asks its client to close the connection. Only then do its servers stop. It is safe
// for concurrent use.
type Leaving struct {
	delay  time.Duration
	linger time.Duration
	begun  atomic.Bool

	mu       sync.Mutex
	announce []func()
}

// NewLeaving returns a Leaving that has not begun. The delay is how long servers keep accepting
// connections after it has.
func NewLeaving(delay time.Duration) *Leaving {
	return &Leaving{delay: delay, linger: lingerTime}
}

// Begun reports whether the daemon is leaving: it is not ready any more.
func (l *Leaving) Begun() bool { return l.begun.Load() }

// Announce has f called once when leaving begins. It is for use before Run.
func (l *Leaving) Announce(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.announce = append(l.announce, f)
}

// Part returns the part that leaves when it is told to stop, and returns when the servers may stop.
// It must be the last part given to [Run], so that it is stopped first.
func (l *Leaving) Part(log *slog.Logger) Part {
	return Part{Name: "leaving", Run: func(ctx context.Context) error {
		<-ctx.Done()
		l.begin()
		if l.delay > 0 {
			log.Info("not ready any more; servers stop soon", "delay", l.delay)
			time.Sleep(l.delay)
		}
		return nil
	}}
}

func (l *Leaving) begin() {
	if l.begun.Swap(true) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.announce {
		f()
	}
}

// HTTP is [HTTP] for a server of a daemon that leaves. When it is told to stop it closes the
// listener, and keeps answering on open connections until all are closed, or idle for 250 ms; then
// it does as HTTP does. All of that takes at most 5 s: streams do not end by themselves, and the
// parts that stop after the server have their time too.
func (l *Leaving) HTTP(
	name string, listener net.Listener, handler http.Handler, log *slog.Logger,
	tune ...func(*http.Server),
) Part {
	open := &connections{leaving: l}
	return httpPart(name, listener, handler, log, open.linger, append(tune, open.watch))
}

// connections are those of one server.
type connections struct {
	leaving *Leaving
	shut    atomic.Bool // the listener is closed

	mu    sync.Mutex
	open  map[net.Conn]http.ConnState
	asked time.Time // when a connection was last at work
}

// watch has the server's answers ask clients to close their connections once the daemon leaves, and
// follows the connections. An answer to a request for another protocol sets its own header.
func (c *connections) watch(s *http.Server) {
	c.open = make(map[net.Conn]http.ConnState)
	handler, before := s.Handler, s.ConnState
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if (c.leaving.Begun() || c.shut.Load()) && r.Header.Get("Upgrade") == "" {
			w.Header().Set("Connection", "close")
		}
		handler.ServeHTTP(w, r)
	})
	s.ConnState = func(conn net.Conn, state http.ConnState) {
		c.note(conn, state)
		if before != nil {
			before(conn, state)
		}
	}
}

func (c *connections) note(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = time.Now()
	if state == http.StateClosed || state == http.StateHijacked {
		delete(c.open, conn)
	} else {
		c.open[conn] = state
	}
}

// linger closes the listener and waits until the connections are idle, or ctx is done.
func (c *connections) linger(ctx context.Context, listener net.Listener) {
	c.shut.Store(true)
	_ = listener.Close() // the server closes it again, and would return the error
	begun := time.Now()
	poll := time.NewTicker(lingerPoll)
	defer poll.Stop()
	for !c.over(begun) {
		select {
		case <-poll.C:
		case <-ctx.Done():
			return
		}
	}
}

func (c *connections) over(begun time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.open) == 0 {
		return true
	}
	for _, state := range c.open {
		if state == http.StateActive {
			return false
		}
	}
	return time.Since(begun) >= c.leaving.linger && time.Since(c.asked) >= c.leaving.linger
}
