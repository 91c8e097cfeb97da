package daemon

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
)

// server is an HTTP part at work in virtual time.
type server struct {
	*daemontest.Pipes
	stop  func()
	ended chan error
}

func openServer(t *testing.T, part func(net.Listener) Part) server {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	d := server{daemontest.NewPipes(), stop, make(chan error, 1)}
	go func() { d.ended <- part(d).Run(ctx) }()
	return d
}

// dial connects a client, and has it say something.
func (d server) dial(t *testing.T, said string) net.Conn {
	t.Helper()
	client, err := d.Dial(t.Context(), "", "")
	must(t, err)
	go func() { _, _ = io.WriteString(client, said) }()
	return client
}

// stopTakes stops the server, and holds how long that takes.
func (d server) stopTakes(t *testing.T, want time.Duration) {
	t.Helper()
	synctest.Wait() // a connection that has just ended would hold a stop up until it looks again
	begun := time.Now()
	d.stop()
	must(t, <-d.ended)
	if took := time.Since(begun); took != want {
		t.Errorf("it took %v to stop, want %v", took, want)
	}
}

const get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"

// answerOn reads the next answer on a connection.
func answerOn(t *testing.T, lines *bufio.Reader) (answer *http.Response, body string) {
	t.Helper()
	answer, err := http.ReadResponse(lines, nil)
	must(t, err)
	text, err := io.ReadAll(answer.Body)
	must(t, err)
	return answer, string(text)
}

// TestHTTPFinishesRequests: a stop waits for a request in hand, and takes no other.
func TestHTTPFinishesRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		d := openServer(t, func(l net.Listener) Part {
			return HTTP("server", l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				<-release
				_, _ = io.WriteString(w, "late, but here")
			}), quiet)
		})
		client := d.dial(t, get)
		defer client.Close()
		synctest.Wait()
		d.stop()
		time.Sleep(stopTimeout - time.Second)
		<-d.Closed()
		if len(d.ended) > 0 {
			t.Fatal("ended with a request in hand")
		}
		close(release)
		if _, body := answerOn(t, bufio.NewReader(client)); body != "late, but here" {
			t.Errorf("answer %q", body)
		}
		must(t, <-d.ended)
	})
}

// TestHTTPCutsOffSlowClients: one that goes on with its request for hours holds a stop up for 5 s.
func TestHTTPCutsOffSlowClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := openServer(t, func(l net.Listener) Part {
			return HTTP("server", l, http.NotFoundHandler(), quiet, func(s *http.Server) { s.ReadHeaderTimeout, s.ReadTimeout = time.Hour, time.Hour })
		})
		client := d.dial(t, "GE")
		synctest.Wait()
		d.stopTakes(t, stopTimeout)
		if _, err := client.Read(make([]byte, 1)); err == nil {
			t.Error("the connection is still open")
		}
	})
}

// TestHTTPEndsHalfRequests: a client that says half of it and falls silent is cut off.
func TestHTTPEndsHalfRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if _, err := io.ReadAll(r.Body); err == nil {
				t.Error("half a body was whole")
			}
		})
		d := openServer(t, func(l net.Listener) Part {
			return HTTP("server", l, handler, quiet, func(s *http.Server) {
				if s.WriteTimeout <= 0 || s.IdleTimeout <= 0 || s.MaxHeaderBytes <= 0 {
					t.Errorf("no bounds: %+v", s)
				}
			})
		})
		for sent, want := range map[string]time.Duration{
			"": headerTimeout, "GE": headerTimeout, "GET / HTTP/1.1\r\nHo": headerTimeout,
			"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf": readTimeout,
		} {
			begun := time.Now()
			client := d.dial(t, sent)
			_, err := io.ReadAll(client) // until it hangs up
			if took := time.Since(begun); err != nil || took != want {
				t.Errorf("%q: %v after %v, want %v", sent, err, took, want)
			}
			_ = client.Close()
		}
		d.stopTakes(t, 0)
	})
}
