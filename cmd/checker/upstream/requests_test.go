package upstream

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// exchange sends bytes, and returns the first answer, whose body may break off.
func exchange(t *testing.T, url, sent string) (*http.Response, string) {
	t.Helper()
	conn := dial(t, url)
	go func() { _, _ = io.WriteString(conn, sent) }()
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%.40q: %v", sent, err)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("%.40q: %v", sent, err)
	}
	return response, string(body)
}

// TestOddRequests: those that rules would see otherwise than the service does not reach it; others
// arrive byte for byte.
func TestOddRequests(t *testing.T) {
	url := start(t, options(t, service(t, "http", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s of %s: %q", r.RequestURI, r.Host, r.URL.Path)
	})))
	for _, tt := range []struct {
		why, line, header string
		status            int
		answer            string // how it begins
	}{
		{"a header that is too long", "GET /", "X: " + strings.Repeat("x", maxHeader+8<<10) + "\r\n", 431, ""},
		{"a path that is too long", "GET /" + strings.Repeat("x", maxHeader+8<<10), "", 431, ""},
		{"a bad escape", "GET /%zz", "", 400, ""},
		{"two lengths", "POST /", "Content-Length: 1\r\nContent-Length: 2\r\n", 400, ""},
		{"a tunnel", "CONNECT 127.0.0.1:22", "", 405, `{"title"`},
		{"a target without a path", "GET x:login", "", 400, `{"title":"Bad Request",`},
		{"a target without a path", "GET mailto:a@b", "", 400, `{"title"`},
		{"a target without a path", "GET http:login", "", 400, `{"title"`},
		{"a whole URL", "GET http://other/login?a", "", 200, `/login?a of other: "/login"`},
		{"a whole URL", "GET http://other", "", 200, `/ of other: "/"`},
		{"a fragment", "GET /login#a", "", 200, `/login%23a of a: "/login#a"`},
		{"no UTF-8", "GET /\xff%fe", "", 200, "/%FF%FE of a: \"/\\xff\\xfe\""},
	} {
		response, body := exchange(t, url, tt.line+" HTTP/1.1\r\nHost: a\r\n"+tt.header+"\r\n")
		if response.StatusCode != tt.status || !strings.HasPrefix(body, tt.answer) {
			t.Errorf("%s: %.40s: %d %s, want %d %s", tt.why, tt.line, response.StatusCode, body, tt.status, tt.answer)
		}
	}
	if response, _ := exchange(t, url, "GET / HTTP/1.1\r\n\r\n"); response.StatusCode != 400 {
		t.Errorf("no host: %d", response.StatusCode)
	}
}

// TestOtherUpgrades: within another protocol than WebSockets, HTTP/2 for example, requests would
// come that nobody limits.
func TestOtherUpgrades(t *testing.T) {
	url := start(t, options(t, service(t, "http", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "upgrade %q connection %q", r.Header["Upgrade"], r.Header["Connection"])
	})))
	for _, protocol := range []string{"h2c", "H2C", "h2c, websocket", "websocket, h2c", "HTTP/2.0", "TLS/1.0"} {
		_, body := exchange(t, url, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: "+
			protocol+"\r\nHTTP2-Settings: AAMAAABk\r\n\r\n")
		if want := "upgrade [] connection []"; body != want {
			t.Errorf("%s: %s; want %s", protocol, body, want)
		}
	}
}

// TestLoops: a proxy whose service is itself, or another proxy whose service it is, answers, and
// asks its limit once.
func TestLoops(t *testing.T) {
	for _, way := range []string{"http", "h2c"} {
		for _, length := range []int{1, 2} {
			var asked atomic.Int64
			var servers []*httptest.Server
			for range length {
				servers = append(servers, httptest.NewUnstartedServer(nil))
			}
			for i, s := range servers {
				o := options(t, way+"://"+servers[(i+1)%length].Listener.Addr().String())
				o.Limit = func(next http.Handler) http.Handler {
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if asked.Add(1) > 10 {
							w.WriteHeader(http.StatusTeapot)
							return
						}
						next.ServeHTTP(w, r)
					})
				}
				s.Config.Handler = New(o)
				Tune(s.Config)
				s.Start()
				t.Cleanup(s.Close)
			}
			r := request(t, "GET", servers[0].URL, nil)
			r.Header.Set("Connection", "Cdn-Loop") // which is to be taken off on the way, and is not
			response, body := do(t, client(t, 1), r)
			if response.StatusCode != http.StatusLoopDetected || !strings.Contains(body, `"status":508`) || asked.Load() != int64(length) {
				t.Errorf("%s, %d proxies: status %d, %d times asked: %s", way, length, response.StatusCode, asked.Load(), body)
			}
		}
	}
}

// TestLoopHeader: others that have written themselves down stay, and are not taken for this proxy.
func TestLoopHeader(t *testing.T) {
	at := start(t, options(t, service(t, "http", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, strings.Join(r.Header.Values(loopHeader), " | "))
	})))
	for _, tt := range []struct {
		before []string
		want   string // and then this proxy
	}{
		{nil, ""},
		{[]string{"a.example"}, "a.example, "},
		{[]string{"a.example; x=\"1,2\"", "b,offpath-"}, "a.example; x=\"1,2\", b,offpath-, "},
	} {
		r := request(t, "GET", at, nil)
		r.Header[loopHeader] = tt.before
		response, body := do(t, client(t, 1), r)
		mark, ok := strings.CutPrefix(body, tt.want)
		if response.StatusCode != http.StatusOK || !ok || !strings.HasPrefix(mark, "offpath-") || strings.ContainsAny(mark, ", ") {
			t.Errorf("%q: %d %q", tt.before, response.StatusCode, body)
		}
	}
}
