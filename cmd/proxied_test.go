package cmd_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/testing/servers"
)

// service is behind the proxy. It says who asks, and for what.
type service struct {
	*httptest.Server
	served  atomic.Int64
	reached atomic.Int64 // requests, those that are too odd to be served among them
}

func startService(t *testing.T) *service {
	s := new(service)
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.served.Add(1)
		switch r.URL.Path {
		case "/forbidden":
			http.Error(w, "by the service", http.StatusForbidden)
			return
		case "/upgrade":
			if protocol := strings.Join(r.Header["Upgrade"], ", "); protocol != "" {
				upgrade(w, protocol)
				return
			}
		}
		body, err := io.ReadAll(r.Body)
		fmt.Fprint(w, r.Method, " ", r.RequestURI, " ", r.Header["X-Forwarded-For"], " ", len(body), " ", err)
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateActive {
			s.reached.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// proxied is a service behind a proxy.
type proxied struct {
	t       *testing.T
	proxy   *servers.Program
	service *service
}

// answer is what a client gets.
type answer struct {
	status int
	header http.Header
	body   string
}

// dial connects to the proxy from an address of this machine.
func (x proxied) dial(ctx context.Context, from string) (net.Conn, error) {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := dialer.DialContext(ctx, "tcp", strings.TrimPrefix(x.proxy.URL(), "http://"))
	if err != nil {
		return nil, fmt.Errorf("%w (macOS needs: sudo ifconfig lo0 alias %s); the proxy's log ends:\n%s", err, from, x.proxy.Log())
	}
	return conn, nil
}

// ask makes a request from an address of this machine, with headers of the form "Name: value".
func (x proxied) ask(from, method, path, body string, headers ...string) answer {
	x.t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return x.dial(ctx, from) }}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(x.t.Context(), method, x.proxy.URL()+path, strings.NewReader(body))
	must(x.t, err)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	response, err := (&http.Client{Transport: transport, Timeout: 2 * time.Minute}).Do(r)
	if err != nil {
		x.t.Fatalf("%v; the proxy's log ends:\n%s", err, x.proxy.Log())
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	must(x.t, err)
	return answer{response.StatusCode, response.Header, string(text)}
}

// raw sends bytes on a connection of their own, and returns what is answered: no body if the proxy
// made none.
func (x proxied) raw(from, request string) (net.Conn, *bufio.Reader, *http.Response) {
	x.t.Helper()
	conn, err := x.dial(x.t.Context(), from)
	must(x.t, err)
	x.t.Cleanup(func() { _ = conn.Close() })
	fmt.Fprint(conn, request)
	answers := bufio.NewReader(conn)
	response, err := http.ReadResponse(answers, nil)
	if err != nil {
		x.t.Fatalf("%.60q: %v; the proxy's log ends:\n%s", request, err, x.proxy.Log())
	}
	return conn, answers, response
}

// tunnel asks to speak another protocol from now on.
func tunnel(protocol string) string {
	return "GET /upgrade HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: " + protocol +
		"\r\nHTTP2-Settings: AAMAAABk\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
}

// limitHolds: five requests pass, whatever the client says of itself; and no header of the limit is
// missing.
func (x proxied) limitHolds() {
	for i := range 8 {
		a := x.ask("127.0.0.2", "GET", "/a%2Fb?c=d", "",
			fmt.Sprintf("X-Forwarded-For: 6.6.6.%d", i), fmt.Sprintf("Forwarded: for=6.6.6.%d", i), "X-Real-Ip: 6.6.6.6",
			"X-Original-Uri: /free", "X-Original-Url: http://a/free", "X-Original-Method: PUT",
			"X-Forwarded-Method: PUT", "X-Forwarded-Uri: /free", "X-Forwarded-Host: a")
		left := max(4-i, 0)
		if !strings.HasPrefix(a.header.Get("RateLimit"), fmt.Sprintf(`"per-ip";r=%d;t=`, left)) ||
			a.header.Get("RateLimit-Policy") != `"per-ip";q=5;w=86400` {
			x.t.Errorf("request %d: headers %v", i+1, a.header)
		}
		if i < 5 {
			if a.status != 200 || a.body != "GET /a%2Fb?c=d [127.0.0.2] 0 <nil>" || a.header.Get("Retry-After") != "" {
				x.t.Errorf("request %d: %+v", i+1, a)
			}
			continue
		}
		seconds, err := strconv.Atoi(a.header.Get("Retry-After"))
		if a.status != 429 || err != nil || seconds < 1 || seconds > 2*86400 || a.header.Get("Cache-Control") != "no-store" {
			x.t.Errorf("request %d: %+v", i+1, a)
		}
	}
	if served := x.service.served.Load(); served != 5 {
		x.t.Errorf("the service served %d", served)
	}
}

// otherClients: the limit is each client's own, and no client can use up another's.
func (x proxied) otherClients() {
	a := x.ask("127.0.0.3", "GET", "/", "", "X-Forwarded-For: 127.0.0.2")
	if a.status != 200 || !strings.HasPrefix(a.header.Get("RateLimit"), `"per-ip";r=4;`) {
		x.t.Errorf("another client: %+v", a)
	}
}

// otherRules: method, path and cookies are the original request's; a rule's status is the client's.
func (x proxied) otherRules() {
	const from = "127.0.0.4"
	for i, tt := range []struct {
		method, path, session string
		status                int
	}{
		{"POST", "/login?a=b", "1", 200}, {"POST", "//login", "1", 429}, {"POST", "/login", "2", 200}, {"PUT", "/login", "1", 200},
		{"GET", "/search", "1", 200}, {"GET", "/search?again", "1", 503},
		{"GET", "/%ff%fe", "1", 200}, // not UTF-8
	} {
		a := x.ask(from, tt.method, tt.path, "body", "Cookie: session="+tt.session)
		if a.status != tt.status || (a.status != 200) != (a.header.Get("Retry-After") != "") {
			x.t.Errorf("request %d, %+v: %+v", i+1, tt, a)
		}
	}
	for range 10 {
		a := x.ask(from, "POST", "/free", strings.Repeat("x", 100_000))
		if a.status != 200 || a.body != "POST /free [127.0.0.4] 100000 <nil>" {
			x.t.Fatalf("%+v", a)
		}
		for name := range a.header {
			if strings.HasPrefix(name, "Ratelimit") {
				x.t.Errorf("an empty header: %v", a.header)
			}
		}
	}
}

// upgrades: WebSockets pass, and what the service itself forbids is its own word.
func (x proxied) upgrades() {
	const from = "127.0.0.5"
	if a := x.ask(from, "GET", "/forbidden", ""); a.status != 403 || a.body != "by the service\n" {
		x.t.Errorf("%+v", a)
	}
	conn, answers, response := x.raw(from, tunnel("websocket"))
	if response.StatusCode != 101 || response.Header.Get("RateLimit") == "" {
		x.t.Fatal(response)
	}
	for i := range 2 {
		fmt.Fprintln(conn, "frame", i)
		if line, err := answers.ReadString('\n'); err != nil || line != fmt.Sprintln("frame", i) {
			x.t.Fatalf("%q, %v", line, err)
		}
	}
}

// upgrade answers what it is told.
func upgrade(w http.ResponseWriter, protocol string) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return // the client says it
	}
	defer conn.Close()
	fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n"+
		"Sec-WebSocket-Accept: ICX+Yqv66kxgM0FcWaLWlFLwTAI=\r\n\r\n", protocol)
	_, _ = io.Copy(conn, rw)
}

// bodies: denials are problems.
func (x proxied) bodies(whole bool) {
	for path, want := range map[string]string{"/": "quota-exceeded", "/search": "temporary-reduced-capacity"} {
		from := map[string]string{"/": "127.0.0.2", "/search": "127.0.0.4"}[path]
		a := x.ask(from, "GET", path, "")
		var problem struct {
			Type     string
			Status   int
			Violated []string `json:"violated-policies"`
		}
		if err := json.Unmarshal([]byte(a.body), &problem); err != nil {
			x.t.Errorf("%s: %v: %+v", path, err, a)
		}
		if a.header.Get("Content-Type") != "application/problem+json" || !strings.HasSuffix(problem.Type, "#"+want) ||
			problem.Status != a.status || whole != (len(problem.Violated) == 1) {
			x.t.Errorf("%s: %+v", path, a)
		}
	}
}

// without: when the checker has gone, what the configuration says.
func (x proxied) without(open bool) {
	a := x.ask("127.0.0.2", "GET", "/", "")
	if open && (a.status != 200 || a.header.Get("RateLimit") != "") || !open && a.status != 502 {
		x.t.Errorf("without a checker: %+v", a)
	}
}

// bypasses tries ways round a limit, each from an address of its own: no request reaches the
// service that was not counted, and the proxy goes on.
func (x proxied) bypasses() {
	client := 5
	var many strings.Builder
	for i := range 98 { // as many as HAProxy takes of a client
		fmt.Fprintf(&many, "X-%d: 1\r\n", i)
	}
	for why, request := range map[string]string{
		"HTTP/2 in a tunnel":                      tunnel("h2c"),
		"with another word":                       tunnel("h2c, websocket"),
		"after it":                                tunnel("websocket, h2c"),
		"on another line":                         tunnel("h2c\r\nUpgrade: websocket"),
		"on the first line":                       tunnel("websocket\r\nUpgrade: h2c"),
		"a header that the checker does not read": "GET / HTTP/1.1\r\nHost: a\r\nX-Odd: a\x01b\r\n\r\n",
		"many headers":                            "GET / HTTP/1.1\r\nHost: a\r\n" + many.String() + "\r\n",
		"a long header":                           "GET / HTTP/1.1\r\nHost: a\r\nX-Long: " + strings.Repeat("x", 15_000) + "\r\n\r\n",
		"a long path":                             "GET /" + strings.Repeat("x", 14_000) + " HTTP/1.1\r\nHost: a\r\n\r\n",
		"a fragment":                              "GET /search#a HTTP/1.1\r\nHost: a\r\n\r\n",
	} {
		client++
		reached := x.service.reached.Load()
		_, _, response := x.raw(fmt.Sprint("127.0.0.", client), request)
		if x.service.reached.Load() != reached && response.Header.Get("RateLimit") == "" ||
			response.StatusCode == http.StatusSwitchingProtocols && response.Header.Get("Upgrade") != "websocket" {
			x.t.Errorf("%s: the service was reached, and nothing counted: %d %v", why, response.StatusCode, response.Header)
		}
		if a := x.ask("127.0.0.4", "GET", "/free", ""); a.status != 200 {
			x.t.Errorf("%s: then the proxy says %+v", why, a)
		}
	}
	// Whatever the proxy and the service make of them, no rule is for the one and passed for the other.
	for _, target := range []string{"/a/../search", "/a/%2e%2e/search", "/a/..%2fsearch"} {
		reached := x.service.reached.Load()
		_, _, response := x.raw("127.0.0.4", "GET "+target+" HTTP/1.1\r\nHost: a\r\n\r\n")
		if response.StatusCode != http.StatusBadRequest || x.service.reached.Load() != reached {
			x.t.Errorf("%s: status %d, and the service was reached: %v", target, response.StatusCode, x.service.reached.Load() != reached)
		}
	}
}
