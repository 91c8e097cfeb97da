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

// lingerTime is how long connections on which nothing is asked stay open once a door has closed:
// who has just sent a request on one is still answered.
const lingerTime = 250 * time.Millisecond

// lingerPoll is how often it is looked whether that is over.
const lingerPoll = 5 * time.Millisecond

// Leaving is how a daemon with doors leaves so that no request fails. Told to stop, it first says
// so, to those who look whether it is ready, and goes on answering for a while: load balancers need
// it to take notice. From then on each answer asks its client to close the connection. Only then do
// the doors close. It is safe for concurrent use.
type Leaving struct {
	delay  time.Duration
	linger time.Duration
	begun  atomic.Bool

	mu       sync.Mutex
	announce []func()
}

// NewLeaving returns one that has not begun. The delay is how long doors stay open after it has.
func NewLeaving(delay time.Duration) *Leaving {
	return &Leaving{delay: delay, linger: lingerTime}
}

// Begun says whether the daemon is leaving: it is not ready any more.
func (l *Leaving) Begun() bool { return l.begun.Load() }

// Announce has f called once when leaving begins. It is for use before Run.
func (l *Leaving) Announce(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.announce = append(l.announce, f)
}

// Part returns the part that leaves when it is told to stop, and returns when the doors may close.
// It has to be the last one of those given to Run, so that it is stopped first.
func (l *Leaving) Part(log *slog.Logger) Part {
	return Part{Name: "leaving", Run: func(ctx context.Context) error {
		<-ctx.Done()
		l.begin()
		if l.delay > 0 {
			log.Info("not ready any more; the doors close soon", "in", l.delay)
			timer := time.NewTimer(l.delay)
			defer timer.Stop()
			<-timer.C
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

// HTTP is [HTTP] for a door of a daemon that leaves. When it is told to stop it closes the
// listener, and goes on answering on open connections until all are closed, or nothing has been
// asked on any for 250 ms; then it does as HTTP does. All of that takes 5 s at the most: streams do
// not end by themselves, and what comes after the doors has its time too.
func (l *Leaving) HTTP(name string, listener net.Listener, handler http.Handler, log *slog.Logger, tune ...func(*http.Server)) Part {
	open := &connections{leaving: l}
	return httpPart(name, listener, handler, log, open.linger, append(tune, open.watch))
}

// connections are those of one door.
type connections struct {
	leaving *Leaving
	shut    atomic.Bool // the listener is closed

	mu    sync.Mutex
	open  map[net.Conn]http.ConnState
	asked time.Time // when a connection was last at work
}

// watch lets the server's answers ask clients to go, once the daemon leaves, and follows its
// connections. An answer to a request for another protocol speaks of its connection itself.
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

// linger closes the listener and waits until nobody asks any more, or ctx is done.
func (c *connections) linger(ctx context.Context, listener net.Listener) {
	c.shut.Store(true)
	_ = listener.Close() // the server closes it again, and would say what is wrong
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
