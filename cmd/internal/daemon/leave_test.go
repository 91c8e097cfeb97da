package daemon

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestLeavingComesFirst: readiness goes first, and the servers stay open for the delay.
func TestLeavingComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		leaving := NewLeaving(3 * time.Second)
		leaving.Announce(func() { d.note("told") })
		begun := time.Now()
		server := Part{Name: "server", Run: func(ctx context.Context) error {
			<-ctx.Done()
			d.note("server closes after " + time.Since(begun).String())
			if !leaving.Begun() {
				t.Error("the server closes before anybody was told")
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
		must(t, Run(ctx, quiet, server, leaving.Part(quiet)))
		if want := []string{"told", "server closes after 1h0m3s"}; !slices.Equal(d.lines, want) {
			t.Errorf("got  %q\nwant %q", d.lines, want)
		}
	})
}

// openLeaving is openServer for one that leaves.
func openLeaving(t *testing.T, handler http.HandlerFunc) server {
	t.Helper()
	return openServer(t, func(l net.Listener) Part { return NewLeaving(0).HTTP("server", l, handler, quiet) })
}

// TestLeavingLosesNoConnection: what is sent on a connection that is open when the server closes is
// answered, and its client told to go.
func TestLeavingLosesNoConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := openLeaving(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
		client := d.dial(t, get)
		defer client.Close()
		lines := bufio.NewReader(client)
		if answer, body := answerOn(t, lines); answer.Close || body != "hello" {
			t.Fatalf("before: %+v", answer)
		}
		d.stop()
		<-d.Closed()
		time.Sleep(lingerTime - time.Millisecond)
		go func() { _, _ = io.WriteString(client, get) }()
		if answer, body := answerOn(t, lines); !answer.Close || body != "hello" {
			t.Errorf("on the open connection: %+v", answer)
		}
		must(t, <-d.ended)
	})
}

// TestLeavingEnds although a client keeps its connection and says nothing. A stream that does not
// end holds the stop up for the 5 s of a server, and not twice as long: what comes after it has to
// deliver hits before whoever has told it to stop loses patience.
func TestLeavingEnds(t *testing.T) {
	for _, stream := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			d := openLeaving(t, func(_ http.ResponseWriter, r *http.Request) {
				if stream {
					<-r.Context().Done()
				}
			})
			client := d.dial(t, get)
			defer client.Close()
			if stream {
				synctest.Wait()
				d.stopTakes(t, stopTimeout)
				return
			}
			answerOn(t, bufio.NewReader(client))
			d.stopTakes(t, lingerTime)
		})
	}
}

// TestLeavingLetsProtocolsChange: an answer to who asks for another protocol, such as WebSocket's,
// says itself what becomes of the connection, also while the daemon leaves.
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

// stubborn's Accept does not notice that it is closed until it is closed again.
type stubborn struct {
	net.Listener
	accepting, again chan struct{}
	closed           atomic.Bool
}

func (l *stubborn) Accept() (net.Conn, error) {
	close(l.accepting)
	<-l.again
	return nil, net.ErrClosed
}

func (l *stubborn) Close() error {
	if l.closed.CompareAndSwap(false, true) {
		return l.Listener.Close()
	}
	close(l.again)
	return l.Listener.Close()
}

// TestLeavingClosesTwice: it is no error that who lingers has closed the listener before the server
// does.
func TestLeavingClosesTwice(t *testing.T) {
	inner, err := Listen("127.0.0.1:0")
	must(t, err)
	listener := &stubborn{Listener: inner, accepting: make(chan struct{}), again: make(chan struct{})}
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		<-listener.accepting
		stop()
	}()
	must(t, NewLeaving(0).HTTP("server", listener, http.NotFoundHandler(), quiet).Run(ctx))
}
