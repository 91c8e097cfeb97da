package httplimit_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/httplimit"
)

// raw sends bytes to a server and reads the answer's status, and how much was counted against whom it took us for.
func raw(t *testing.T, server *httptest.Server, bytes string) (status int, state string) {
	t.Helper()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	must(t, err)
	defer conn.Close()
	go func() { _, _ = fmt.Fprint(conn, bytes) }() // the server may answer before it has read all
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must(t, err)
	defer res.Body.Close()
	return res.StatusCode, res.Header.Get("RateLimit")
}

// A client that hangs up does not wait any more: net/http ends its request's context, and that ends the wait.
func TestHangingUpEndsTheWait(t *testing.T) {
	c := checker(t, "rules: [{name: r, key: [user], algorithm: leaky_bucket, limit: 1/hour, burst: 2, on_limit: queue, max_wait: 1h}]")
	came, gaveUp := make(chan bool, 2), make(chan error)
	limit := newLimit(t, c, httplimit.Options{
		User:   func(r *http.Request) string { came <- true; return byHeader(r) },
		Denied: func(_ http.ResponseWriter, r *http.Request, _ check.Decision) { gaveUp <- r.Context().Err() },
	})
	server := httptest.NewServer(limit.Handler(hello))
	defer server.Close()
	ctx, hangUp := context.WithCancel(t.Context())
	ask := func() error {
		r, err := http.NewRequestWithContext(ctx, "GET", server.URL, nil)
		if err != nil {
			return err
		}
		r.Header.Set("X-User", "kristie")
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		return res.Body.Close()
	}
	if err := ask(); err != nil { // its turn is at once
		t.Fatal(err)
	}
	<-came
	answered := make(chan error)
	go func() { answered <- ask() }()
	<-came
	hangUp()
	if err := <-answered; !errors.Is(err, context.Canceled) {
		t.Errorf("the client: %v", err)
	}
	if err := <-gaveUp; !errors.Is(err, context.Canceled) {
		t.Errorf("the server: %v", err)
	}
}

// What a client can send wrong, over a real socket.
func TestBadRequests(t *testing.T) {
	limit := newLimit(t, checker(t, "rules: [{name: r, key: [user], limit: 1/hour}]"), httplimit.Options{User: byHeader})
	server := httptest.NewServer(limit.Handler(hello))
	defer server.Close()

	half, err := net.Dial("tcp", server.Listener.Addr().String())
	must(t, err)
	defer half.Close()
	fmt.Fprint(half, "GET / HTTP/1.1\r\nHost: x\r\nX-User: ha") // and then silence, which keeps nobody

	long := strings.Repeat("l", 500_000)
	for _, tt := range []struct {
		want  []int // one after the other
		users []string
	}{
		{[]int{200, 429}, []string{"\xff\xfe\xfd", "\xff\xfe\xfc", `a|b\`, long, long + "m"}}, // each has a limit of its own
		{[]int{431, 431}, []string{strings.Repeat("l", 2_000_000)}},                           // more than the server reads
		{[]int{400, 400}, []string{"\x00"}},
	} {
		for _, user := range tt.users {
			for i, want := range tt.want {
				status, state := raw(t, server, "GET / HTTP/1.1\r\nHost: x\r\nX-User: "+user+"\r\n\r\n")
				if status != want || (state != "") != (want == 200 || want == 429) {
					t.Errorf("%.20q, %d: %d %q, want %d", user, i, status, state, want)
				}
			}
		}
	}
	fmt.Fprint(half, "lf\r\n\r\n")
	if res, err := http.ReadResponse(bufio.NewReader(half), nil); err != nil || res.StatusCode != 200 {
		t.Errorf("the other half: %v, %v", res, err)
	}
}

// Whatever a handler can do with its writer, it can do behind both middlewares: stream, and take the connection over.
func TestWritersKeepTheirPowers(t *testing.T) {
	c := checker(t, "rules: [{name: failures, match: {api: login}, key: [], limit: 100/day}]")
	limit := newLimit(t, c, httplimit.Options{})
	around := func(h http.HandlerFunc) http.Handler { return limit.Handler(guard(t, limit)(h)) }
	gate := make(chan struct{})
	mux := http.NewServeMux()
	mux.Handle("/stream", around(func(w http.ResponseWriter, _ *http.Request) {
		w.(http.Flusher).Flush()
		<-gate // until the client has read it
		_, _ = io.WriteString(w, "one\n")
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		<-gate
	}))
	mux.Handle("/takeover", around(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 299 Mine\r\n\r\n")
		_ = conn.Close()
	}))
	server := httptest.NewServer(mux)
	defer server.Close()
	res, err := http.Get(server.URL + "/stream")
	must(t, err)
	defer res.Body.Close()
	gate <- struct{}{}
	if got, err := bufio.NewReader(res.Body).ReadString('\n'); got != "one\n" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	close(gate)
	if status, _ := raw(t, server, "GET /takeover HTTP/1.1\r\nHost: x\r\n\r\n"); status != 299 {
		t.Errorf("status %d", status)
	}
}
