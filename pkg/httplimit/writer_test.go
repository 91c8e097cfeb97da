package httplimit_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/offpath-io/offpath/pkg/httplimit"
)

// Whatever a handler can do with its writer, it can do behind both middlewares: stream, by a type assertion and by a
// controller, and take the connection over.
func TestWritersKeepTheirPowers(t *testing.T) {
	c := checker(t, "rules: [{name: failures, match: {api: login}, key: [], limit: 100/day}]")
	limit := newLimit(t, c, httplimit.Options{})
	around := func(h http.HandlerFunc) http.Handler { return limit.Handler(guard(t, limit)(h)) }
	gate := make(chan struct{})
	mux := http.NewServeMux()
	mux.Handle("/stream", around(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "one\n")
		w.(http.Flusher).Flush()
		<-gate // until the client has read it
		_, _ = io.WriteString(w, "two\n")
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
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n\r\nraw")
	}))
	server := httptest.NewServer(mux)
	defer server.Close()

	res, err := http.Get(server.URL + "/stream")
	must(t, err)
	defer res.Body.Close()
	lines := bufio.NewReader(res.Body)
	for _, want := range []string{"one\n", "two\n"} {
		if got, err := lines.ReadString('\n'); got != want || err != nil {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
		gate <- struct{}{}
	}

	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	must(t, err)
	defer conn.Close()
	fmt.Fprint(conn, "GET /takeover HTTP/1.1\r\nHost: x\r\n\r\n")
	if got, _ := io.ReadAll(conn); !strings.HasSuffix(string(got), "\r\n\r\nraw") {
		t.Errorf("%q", got)
	}
}
