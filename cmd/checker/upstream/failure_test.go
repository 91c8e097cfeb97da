package upstream

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// listener accepts connections and does this with each.
func listener(t testing.TB, with func(net.Conn)) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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

// TestServiceFails: each way to fail has its status, and a problem that does not tell where the service is.
func TestServiceFails(t *testing.T) {
	dead := listener(t, func(net.Conn) {})
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = gone.Close()
	say := func(text string) func(net.Conn) {
		return func(conn net.Conn) {
			_, _ = http.ReadRequest(bufio.NewReader(conn))
			_, _ = io.WriteString(conn, text)
			_ = conn.Close()
		}
	}
	type failure struct {
		why, target string
		status      int
	}
	atOnce(t, []failure{
		{"nobody is there", "http://" + gone.Addr().String(), 502},
		{"nobody is there, HTTP/2", "h2c://" + gone.Addr().String(), 502},
		{"it is silent", dead, 504},
		{"it is silent, HTTP/2", strings.Replace(dead, "http", "h2c", 1), 504},
		{"it hangs up", listener(t, say("")), 502},
		{"it does not speak HTTP", listener(t, say("what?\r\n\r\n")), 502},
		{"a header that is too long", listener(t, say("HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", maxAnswerHeader)+"\r\n\r\n")), 502},
	}, func(f failure) string { return f.why }, func(t *testing.T, tt failure) {
		var log safe
		o := options(t, tt.target)
		if tt.status == http.StatusGatewayTimeout {
			o.Answer = short
		}
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
		url := start(t, o)
		for range 2 {
			response, body := do(t, client(t, 1), request(t, "GET", url, nil))
			var p struct {
				Title  string
				Status int
				Detail string
			}
			if err := json.Unmarshal([]byte(body), &p); err != nil || p.Status != tt.status || p.Detail == "" {
				t.Errorf("%v, %s", err, body)
			}
			if response.StatusCode != tt.status || response.Header.Get("Content-Type") != "application/problem+json" || strings.Contains(body, "127.0.0.1") {
				t.Errorf("%s %v %s", response.Status, response.Header, body)
			}
		}
		if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, o.Target.String()) {
			t.Errorf("it is not logged once: %s", text)
		}
	})
}

// TestServiceComesBack: that is logged too, and the next failure again.
func TestServiceComesBack(t *testing.T) {
	var log safe
	var fails atomic.Bool
	o := options(t, service(t, "http", func(http.ResponseWriter, *http.Request) {
		if fails.Load() {
			panic(http.ErrAbortHandler)
		}
	}))
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
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

// TestServiceBreaksOff: a client cannot take half an answer for a whole one.
func TestServiceBreaksOff(t *testing.T) {
	for _, way := range ways {
		target := service(t, way.scheme, func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "half")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		})
		response, err := client(t, way.client).Do(request(t, "GET", start(t, options(t, target)), nil))
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(response.Body); err == nil || string(body) != "half" {
			t.Errorf("%+v: %q, %v", way, body, err)
		}
		_ = response.Body.Close()
	}
}
