package daemon

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// diary notes what happens, in order.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) note(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, line)
}

// part runs until it is told to stop, and then takes its time.
func (d *diary) part(name string, takes time.Duration) Part {
	return Part{Name: name, Run: func(ctx context.Context) error {
		<-ctx.Done()
		d.note(name + " stops")
		timer := time.NewTimer(takes)
		defer timer.Stop()
		<-timer.C
		d.note(name + " has stopped")
		return nil
	}}
}

var quiet = slog.New(slog.DiscardHandler)

func TestPartsStopOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := Run(ctx, quiet, d.part("worker", 0), d.part("checker", time.Second), d.part("door", time.Minute)); err != nil {
			t.Fatal(err)
		}
		want := []string{
			"door stops", "door has stopped", "checker stops", "checker has stopped", "worker stops", "worker has stopped",
		}
		if !slices.Equal(d.lines, want) {
			t.Errorf("got  %q\nwant %q", d.lines, want)
		}
	})
}

func TestAPartThatFailsStopsTheRest(t *testing.T) {
	trouble := errors.New("trouble")
	tests := []struct {
		name string
		run  func(context.Context) error
		want string
	}{
		{"with an error", func(context.Context) error { return trouble }, "bad: trouble"},
		{"without a word", func(context.Context) error { return nil }, "bad: ended unasked"},
		{"while it stops", func(ctx context.Context) error { <-ctx.Done(); return trouble }, "bad: trouble"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var d diary
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				err := Run(ctx, quiet, d.part("first", 0), Part{"bad", test.run}, d.part("last", 0))
				if err == nil || err.Error() != test.want {
					t.Errorf("error %v, want %q", err, test.want)
				}
				if !slices.Contains(d.lines, "first has stopped") || !slices.Contains(d.lines, "last has stopped") {
					t.Errorf("the others did not stop: %q", d.lines)
				}
			})
		})
	}
}

func TestHTTPFinishesRequests(t *testing.T) {
	listener, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	asked, release := make(chan struct{}), make(chan struct{})
	part := HTTP("door", listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(asked)
		<-release
		_, _ = io.WriteString(w, "late, but here")
	}), quiet)

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- part.Run(ctx) }()
	got := make(chan string, 1)
	go func() { got <- get(URL(listener)) }()
	<-asked
	stop()
	// It must not end before the request has.
	select {
	case err := <-ended:
		t.Fatalf("ended with a request in hand: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(release)
	if answer := <-got; answer != "late, but here" {
		t.Errorf("answer %q", answer)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if answer := get(URL(listener)); !strings.Contains(answer, "refused") {
		t.Errorf("it still listens: %q", answer)
	}
}

func TestHTTPCutsOffWhoStays(t *testing.T) {
	listener, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	idle, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	accepted := make(chan struct{})
	server := &http.Server{ReadHeaderTimeout: time.Minute}
	server.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			close(accepted)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	go func() { <-accepted; stop() }()
	if finished, err := serve(ctx, server, listener, nil, time.Millisecond); finished || err != nil {
		t.Errorf("finished %v, error %v", finished, err)
	}
	if _, err := idle.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is still open")
	}
}

// TestHTTPEndsHalfRequests: a client that says half of it and falls silent is cut off, tuned or not.
func TestHTTPEndsHalfRequests(t *testing.T) {
	listener, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	read := func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err == nil {
			t.Error("half a body was whole")
		}
	}
	impatient := func(s *http.Server) {
		if s.ReadHeaderTimeout <= 0 || s.ReadTimeout <= 0 || s.WriteTimeout <= 0 || s.IdleTimeout <= 0 || s.MaxHeaderBytes <= 0 {
			t.Errorf("no bounds: %+v", s)
		}
		s.ReadHeaderTimeout, s.ReadTimeout, s.IdleTimeout = 20*time.Millisecond, 20*time.Millisecond, 20*time.Millisecond
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	part := HTTP("door", listener, http.HandlerFunc(read), slog.New(slog.DiscardHandler), impatient)
	go func() { ended <- part.Run(ctx) }()
	for _, sent := range []string{"", "GE", "GET / HTTP/1.1\r\nHo", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf"} {
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, sent)
		if _, err := io.ReadAll(conn); err != nil { // until it hangs up
			t.Errorf("%q: %v", sent, err)
		}
		_ = conn.Close()
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func get(url string) string {
	response, err := http.Get(url)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return string(body)
}

func TestListenSaysWhere(t *testing.T) {
	listener, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	address := listener.Addr().String()
	if _, err := Listen(address); err == nil || !strings.Contains(err.Error(), "listen on "+address) {
		t.Errorf("a busy port: %v", err)
	}
	wide, err := Listen(":0")
	if err != nil {
		t.Fatal(err)
	}
	defer wide.Close()
	if url := URL(wide); !strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Errorf("URL of every address: %s", url)
	}
}
