package main

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
)

// doorRules tell each thing that a request is made of.
const doorRules = `
rules:
  - name: per-ip
    key: [ip]
    limit: 3/day
  - name: login
    match: {method: POST, path: /login}
    key: ["header:X-User"]
    limit: 1/day
  - name: failures
    match: {outcome: charged}
    key: [ip]
    limit: 2/day
    replaces: [per-ip]
`

// get makes one request with headers of the form "Name: value".
func get(t *testing.T, method, url string, headers ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	r.Close = true
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	response.Body = io.NopCloser(strings.NewReader(string(body)))
	return response
}

func authOf(d *daemontest.Daemon) string {
	return strings.TrimSuffix(doorOf(d), "/v1/check") + "/v1/auth"
}

// TestForwardAuth: a client has its limit, wherever it says that it comes from.
func TestForwardAuth(t *testing.T) {
	url := authOf(start1(t, "--rules", writeFile(t, doorRules)))
	for i := range 5 {
		spoofed := fmt.Sprintf("X-Forwarded-For: 6.6.6.%d, 192.0.2.1", i)
		response := get(t, "GET", url, spoofed, "X-Forwarded-Uri: /a", "X-Forwarded-Method: GET")
		left := max(2-i, 0)
		if want := map[bool]int{true: 200, false: 429}[i < 3]; response.StatusCode != want || !strings.HasPrefix(response.Header.Get("RateLimit"), fmt.Sprintf(`"per-ip";r=%d;t=`, left)) {
			t.Errorf("request %d: %d %v", i+1, response.StatusCode, response.Header)
		}
		if denied := i >= 3; denied != (response.Header.Get("Retry-After") != "") || denied != (response.Header.Get("Content-Type") == "application/problem+json") {
			t.Errorf("request %d: %v", i+1, response.Header)
		}
	}
	if response := get(t, "POST", url+"?denied=403", "X-Forwarded-For: 192.0.2.1"); response.StatusCode != 403 || response.Header.Get("X-Denied-Status") != "429" {
		t.Errorf("for nginx: %d %v", response.StatusCode, response.Header)
	}
	for i, want := range []int{200, 429} { // of the original request
		response := get(t, "GET", url, "X-Forwarded-For: 192.0.2.2", "X-Original-Method: POST", "X-Original-URI: //login?a=b", "X-User: kristie")
		if response.StatusCode != want {
			t.Errorf("login %d: %d %v", i+1, response.StatusCode, response.Header)
		}
	}
	if response := get(t, "GET", url, "X-Forwarded-Uri: /a", "X-Original-URI: /b"); response.StatusCode != 400 {
		t.Errorf("a client adds a path: %d", response.StatusCode)
	}
}

// TestForwardAuthOfStrangers: who is not trusted is not answered, and the operator reads why.
func TestForwardAuthOfStrangers(t *testing.T) {
	d := start1(t, "--rules", writeFile(t, doorRules), "--trusted-proxies", "none")
	if response := get(t, "GET", authOf(d), "X-Forwarded-For: 192.0.2.1"); response.StatusCode != 400 {
		t.Errorf("%d", response.StatusCode)
	}
	d.Await("the log says it", func() bool { return strings.Contains(d.Stderr(), "proxy=127.0.0.1:") })
}

func TestForwardAuthReadsWhatItIsTold(t *testing.T) {
	url := authOf(start1(t, "--rules", writeFile(t, doorRules), "--forwarded-header", "Forwarded", "--ipv6-prefix", "48", "--ratelimit-headers", "x-ratelimit"))
	for i, want := range []string{"2", "1", "0"} {
		response := get(t, "GET", url, fmt.Sprintf(`Forwarded: for="[2001:db8:1:%d::1]"`, i), fmt.Sprintf("X-Forwarded-For: 192.0.2.%d", i))
		if got := response.Header.Get("X-RateLimit-Remaining"); got != want || response.StatusCode != 200 {
			t.Errorf("request %d: %d, %q left", i+1, response.StatusCode, got)
		}
	}
}

func proxyOf(d *daemontest.Daemon) string { return d.Find(`proxy +(http://[^,]+),`) }

// behind starts a service that says what it is told, and a checker before it.
func behind(t *testing.T, args ...string) (*daemontest.Daemon, *atomic.Int64) {
	t.Helper()
	var served atomic.Int64
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		if r.URL.Path == "/fails" {
			w.WriteHeader(http.StatusUnauthorized)
		}
		fmt.Fprint(w, r.Header.Get("X-Forwarded-For"))
	}))
	t.Cleanup(service.Close)
	return start1(t, append(args, "--rules", writeFile(t, doorRules), "--upstream", service.URL, "--proxy", "127.0.0.1:0")...), &served
}

func text(t *testing.T, r *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// TestProxy: limits hold in front of a service, for clients as they are and not as they say.
func TestProxy(t *testing.T) {
	d, served := behind(t)
	for i := range 5 {
		response := get(t, "GET", proxyOf(d)+"/a", fmt.Sprintf("X-Forwarded-For: 6.6.6.%d", i))
		if want := map[bool]int{true: 200, false: 429}[i < 3]; response.StatusCode != want || response.Header.Get("RateLimit") == "" {
			t.Errorf("request %d: %d %v", i+1, response.StatusCode, response.Header)
		}
		if i < 3 && text(t, response) != "127.0.0.1" || i >= 3 && response.Header.Get("Retry-After") == "" {
			t.Errorf("request %d: %v", i+1, response.Header)
		}
	}
	if served.Load() != 3 {
		t.Errorf("the service served %d", served.Load())
	}
	// What asks a checker is no business of the service's clients.
	if response := get(t, "POST", proxyOf(d)+"/v1/check"); response.StatusCode != 429 {
		t.Errorf("the door is on the proxy's address: %d", response.StatusCode)
	}
	if d.Stop() != 0 {
		t.Errorf("stderr:\n%s", d.Stderr())
	}
}

func TestProxyBehindAnother(t *testing.T) {
	d, _ := behind(t, "--trusted-proxies", "127.0.0.1")
	for i := range 5 {
		response := get(t, "GET", proxyOf(d), fmt.Sprintf("X-Forwarded-For: 6.6.6.6, 192.0.2.%d", i))
		if want := fmt.Sprintf("6.6.6.6, 192.0.2.%d, 127.0.0.1", i); response.StatusCode != 200 || text(t, response) != want {
			t.Errorf("client %d: %d", i, response.StatusCode)
		}
	}
}

// TestProxyChargesByOutcome: only what failed counts, and then it is not even tried.
func TestProxyChargesByOutcome(t *testing.T) {
	lenient, _ := behind(t, "--charge-on", "401,403", "--trusted-proxies", "127.0.0.1")
	for i, tt := range []struct {
		path string
		want int
	}{{"/works", 200}, {"/fails", 401}, {"/works", 200}} {
		if response := get(t, "GET", proxyOf(lenient)+tt.path, "X-Forwarded-For: 192.0.2.1"); response.StatusCode != tt.want {
			t.Errorf("%d: %s: %d", i, tt.path, response.StatusCode)
		}
	}
	d, served := behind(t, "--charge-on", "401")
	for i, want := range []int{401, 401, 429} {
		if response := get(t, "GET", proxyOf(d)+"/fails"); response.StatusCode != want {
			t.Errorf("failure %d: %d", i+1, response.StatusCode)
		}
	}
	if served.Load() != 2 {
		t.Errorf("the service served %d", served.Load())
	}
	if strings.Contains(d.Stderr(), "outcome") {
		t.Errorf("complaints about nothing:\n%s", d.Stderr())
	}
}

// TestProxySaysWhatItCannotKnow: a rule by user applies to no request that is passed on.
func TestProxySaysWhatItCannotKnow(t *testing.T) {
	d := start1(t, "--rules", writeFile(t, slowRules), "--upstream", "http://127.0.0.1:1", "--proxy", "127.0.0.1:0")
	if !strings.Contains(d.Stderr(), "attributes=[user]") {
		t.Errorf("stderr:\n%s", d.Stderr())
	}
	if response := get(t, "GET", proxyOf(d)); response.StatusCode != 502 {
		t.Errorf("%d", response.StatusCode)
	}
}

// TestProxyWithoutRules: nothing is passed on before there are rules.
func TestProxyWithoutRules(t *testing.T) {
	l := newLiving(slog.New(slog.DiscardHandler), nil, nil)
	w := httptest.NewRecorder()
	l.proxy(w, httptest.NewRequest("POST", "/", strings.NewReader("body")))
	if w.Code != 503 || w.Header().Get("Retry-After") == "" || w.Header().Get("Connection") != "close" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}

func TestProxyPortInUse(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	busy := listener.Addr().String()
	status, _, stderr := daemontest.Run(t, run, nil, append([]string{"--upstream", "http://127.0.0.1:1", "--proxy", busy}, anywhere...)...)
	if status != 1 || !strings.Contains(stderr, busy) {
		t.Errorf("status %d, stderr %q", status, stderr)
	}
}

// TestOversizedHeaders: both doors say so.
func TestOversizedHeaders(t *testing.T) {
	d, _ := behind(t)
	for _, url := range []string{authOf(d), proxyOf(d)} {
		address, path, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		go fmt.Fprintf(conn, "GET /%s HTTP/1.1\r\nHost: a\r\nX: %s\r\n\r\n", path, strings.Repeat("x", 80<<10))
		if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, " 431 ") {
			t.Errorf("%s: %q, %v", url, line, err)
		}
		if response := get(t, "GET", url, "X: "+strings.Repeat("x", 40<<10)); response.StatusCode != 200 {
			t.Errorf("%s: 40 KiB: %d", url, response.StatusCode)
		}
	}
}
