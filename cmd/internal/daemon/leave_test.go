package daemon

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestLeavingComesFirst: readiness goes first, and the doors stay open for the delay.
func TestLeavingComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		leaving := NewLeaving(3 * time.Second)
		leaving.Announce(func() { d.note("told") })
		begun := time.Now()
		door := Part{Name: "door", Run: func(ctx context.Context) error {
			<-ctx.Done()
			d.note("door closes after " + time.Since(begun).String())
			if !leaving.Begun() {
				t.Error("the door closes before anybody was told")
			}
			return nil
		}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		time.AfterFunc(time.Hour-time.Nanosecond, func() {
			if leaving.Begun() {
				t.Error("it leaves unasked")
			}
		})
		if err := Run(ctx, quiet, door, leaving.Part(quiet)); err != nil {
			t.Fatal(err)
		}
		if want := []string{"told", "door closes after 1h0m3s"}; !slices.Equal(d.lines, want) {
			t.Errorf("got  %q\nwant %q", d.lines, want)
		}
	})
}

const patience = 20 * time.Second

// TestLeavingLosesNoConnection: what is sent on a connection that is open when the door closes is answered, and told to go.
func TestLeavingLosesNoConnection(t *testing.T) {
	listener, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	leaving := NewLeaving(0)
	leaving.linger = patience // it ends when all connections have
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	part := leaving.HTTP("door", listener, hello, quiet)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- part.Run(ctx) }()

	client := &http.Client{Transport: &http.Transport{}}
	reused := false
	ask := func() (*http.Response, error) {
		trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused }}
		request, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), "POST", URL(listener), strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
		}
		return response, err
	}
	if response, err := ask(); err != nil || response.Close {
		t.Fatalf("before: %v, %v", response, err)
	}
	stop()
	for end := time.Now().Add(20 * time.Second); !isRefused(URL(listener)); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it goes on taking connections")
		}
	}
	switch response, err := ask(); {
	case err != nil:
		t.Errorf("on the open connection: %v", err)
	case !reused || !response.Close:
		t.Errorf("reused %v, asked to close %v", reused, response.Close)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestLeavingLetsProtocolsChange: an answer to who asks for another protocol, such as WebSocket's, says itself what becomes of the
// connection, also while the daemon leaves.
func TestLeavingLetsProtocolsChange(t *testing.T) {
	leaving := NewLeaving(0)
	server := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	(&connections{leaving: leaving}).watch(server)
	leaving.begin()
	for upgrade, want := range map[string]string{"": "close", "websocket": ""} {
		r, w := httptest.NewRequest("GET", "/", nil), httptest.NewRecorder()
		r.Header.Set("Upgrade", upgrade)
		server.Handler.ServeHTTP(w, r)
		if got := w.Header().Get("Connection"); got != want {
			t.Errorf("Upgrade %q: Connection %q, want %q", upgrade, got, want)
		}
	}
}

func isRefused(url string) bool {
	answer := get(url)
	return strings.Contains(answer, "refused")
}

// TestLeavingEnds although a client keeps its connection and says nothing.
func TestLeavingEnds(t *testing.T) {
	listener, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	leaving := NewLeaving(0)
	part := leaving.HTTP("door", listener, http.NotFoundHandler(), quiet)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- part.Run(ctx) }()
	client := &http.Client{Transport: &http.Transport{}}
	response, err := client.Get(URL(listener))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// slowListener's Accept does not notice that it is closed until it is closed again.
type slowListener struct {
	net.Listener
	accepting, again chan struct{}
	closed           atomic.Bool
}

func (l *slowListener) Accept() (net.Conn, error) {
	close(l.accepting)
	<-l.again
	return nil, net.ErrClosed
}

func (l *slowListener) Close() error {
	if l.closed.CompareAndSwap(false, true) {
		return l.Listener.Close()
	}
	close(l.again)
	return l.Listener.Close()
}

// TestLeavingClosesTwice: it is no error that who lingers has closed the listener before the server does.
func TestLeavingClosesTwice(t *testing.T) {
	inner, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener := &slowListener{Listener: inner, accepting: make(chan struct{}), again: make(chan struct{})}
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		<-listener.accepting
		stop()
	}()
	if err := NewLeaving(0).HTTP("door", listener, http.NotFoundHandler(), quiet).Run(ctx); err != nil {
		t.Error(err)
	}
}

// pipes is a listener of connections within the process, whose time synctest can tell.
type pipes struct {
	come   chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{come: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.come:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// TestLeavingWaitsOnceForAStream: a stream that does not end holds the stop up for the 5 s of a door, and not twice as long: what comes
// after it has to deliver hits before whoever has told it to stop loses patience.
func TestLeavingWaitsOnceForAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener, asked := newPipes(), make(chan struct{})
		stream := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			close(asked)
			<-r.Context().Done()
		})
		part := NewLeaving(0).HTTP("door", listener, stream, quiet)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- part.Run(ctx) }()
		client, server := net.Pipe()
		defer client.Close()
		listener.come <- server
		go func() { _, _ = io.WriteString(client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n") }()
		<-asked
		begun := time.Now()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took != stopTimeout {
			t.Errorf("it took %v, want %v", took, stopTimeout)
		}
	})
}
