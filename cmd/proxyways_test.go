package cmd_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
)

// raw sends bytes on a connection of their own, and returns the answer, which has no body if the proxy made none.
func (x proxied) raw(from, request string) *http.Response {
	x.t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := dialer.DialContext(x.t.Context(), "tcp", strings.TrimPrefix(x.proxy.URL(), "http://"))
	if err != nil {
		x.t.Fatalf("%v; the proxy's log ends:\n%s", err, x.proxy.Log())
	}
	x.t.Cleanup(func() { _ = conn.Close() })
	fmt.Fprint(conn, request)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		x.t.Fatalf("%.60q: %v; the proxy's log ends:\n%s", request, err, x.proxy.Log())
	}
	return response
}

// tunnel asks to speak another protocol from now on.
func tunnel(protocol string) string {
	return "GET /upgrade HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: " + protocol +
		"\r\nHTTP2-Settings: AAMAAABk\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
}

// ways round a limit, none of which there is: no request reaches the service that was not counted, and the proxy goes on.
func (x proxied) ways() {
	const from = "127.0.0.6"
	var many strings.Builder
	for i := range 98 { // as many as HAProxy takes of a client
		fmt.Fprintf(&many, "X-%d: 1\r\n", i)
	}
	for _, tt := range []struct{ why, request string }{
		{"HTTP/2 in a tunnel", tunnel("h2c")},
		{"with another word", tunnel("h2c, websocket")},
		{"after it", tunnel("websocket, h2c")},
		{"on another line", tunnel("h2c\r\nUpgrade: websocket")},
		{"on the first line", tunnel("websocket\r\nUpgrade: h2c")},
		{"a header that the checker does not read", "GET / HTTP/1.1\r\nHost: a\r\nX-Odd: a\x01b\r\n\r\n"},
		{"many headers", "GET / HTTP/1.1\r\nHost: a\r\n" + many.String() + "\r\n"},
		{"a long header", "GET / HTTP/1.1\r\nHost: a\r\nX-Long: " + strings.Repeat("x", 15_000) + "\r\n\r\n"},
		{"a long path", "GET /" + strings.Repeat("x", 14_000) + " HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"a fragment", "GET /search#a HTTP/1.1\r\nHost: a\r\n\r\n"},
	} {
		reached := x.service.reached.Load()
		response := x.raw(from, tt.request)
		if x.service.reached.Load() != reached && response.Header.Get("RateLimit") == "" || response.StatusCode == http.StatusSwitchingProtocols && response.Header.Get("Upgrade") != "websocket" {
			x.t.Errorf("%s: the service was reached, and nothing counted: %d %v", tt.why, response.StatusCode, response.Header)
		}
		if a := x.ask("127.0.0.4", "GET", "/free", ""); a.status != 200 {
			x.t.Errorf("%s: then the proxy says %+v", tt.why, a)
		}
	}
}
