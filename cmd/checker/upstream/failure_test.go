package upstream

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
)

// listener accepts connections and does this with each.
func listener(t testing.TB, with func(net.Conn)) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
			go with(conn)
		}
	}()
	return "http://" + l.Addr().String()
}

// checkProblem asks, and has to get a problem with this status that does not tell where the service
// is.
func checkProblem(t *testing.T, c *http.Client, url string, status int) {
	t.Helper()
	response, body := do(t, c, request(t, "GET", url, nil))
	var p struct {
		Status int
		Detail string
	}
	if err := json.Unmarshal([]byte(body), &p); err != nil || p.Status != status || p.Detail == "" || strings.Contains(body, "127.0.0.1") {
		t.Errorf("%v, %s", err, body)
	}
	if response.StatusCode != status || response.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%s %v, want %d", response.Status, response.Header, status)
	}
}

// checkLoggedOnce fails the test unless there is one line in the log, of this service.
func checkLoggedOnce(t *testing.T, log *daemontest.Buffer, service string) {
	t.Helper()
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, service) {
		t.Errorf("it is not logged once: %s", text)
	}
}

// TestServiceFails: a service that is not reached, or does not speak HTTP, is a bad gateway; see
// TestSilentService, too.
func TestServiceFails(t *testing.T) {
	const gone = "127.0.0.1:1" // a port that no other server gets
	say := func(text string) string {
		return listener(t, func(conn net.Conn) {
			_, _ = http.ReadRequest(bufio.NewReader(conn))
			_, _ = io.WriteString(conn, text)
			_ = conn.Close()
		})
	}
	for why, target := range map[string]string{
		"nobody is there":           "http://" + gone,
		"nobody is there, HTTP/2":   "h2c://" + gone,
		"it hangs up":               say(""),
		"it does not speak HTTP":    say("what?\r\n\r\n"),
		"a header that is too long": say("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", maxAnswerHeader) + "\r\n\r\n"),
	} {
		t.Run(why, func(t *testing.T) {
			var log daemontest.Buffer
			o := options(t, target)
			o.Log = log.Logger()
			url := start(t, o)
			for range 2 {
				checkProblem(t, client(t, 1), url, http.StatusBadGateway)
			}
			checkLoggedOnce(t, &log, target)
		})
	}
}

// TestServiceComesBack: that is logged too, and the next failure again.
func TestServiceComesBack(t *testing.T) {
	var log daemontest.Buffer
	var fails atomic.Bool
	o := options(t, service(t, "http", func(http.ResponseWriter, *http.Request) {
		if fails.Load() {
			panic(http.ErrAbortHandler)
		}
	}))
	o.Log = log.Logger()
	url := start(t, o)
	for _, fail := range []bool{false, true, true, false, false, true} {
		fails.Store(fail)
		do(t, client(t, 1), request(t, "POST", url, nil))
	}
	text := log.String()
	if strings.Count(text, "does not answer") != 2 || strings.Count(text, "answers again") != 1 || strings.Count(text, "\n") != 3 {
		t.Errorf("log:\n%s", text)
	}
}
