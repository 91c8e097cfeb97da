package checker

import (
	"bufio"
	"fmt"
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

// get makes one request with headers of the form "Name: value", and fails the test if it is
// answered with another status.
func get(t *testing.T, want int, method, url string, headers ...string) (header http.Header, body string) {
	t.Helper()
	headers = append(headers, "Connection: close")
	response, body, err := daemontest.Fetch(t, http.DefaultClient, method, url, "", headers...)
	must(t, err)
	if response.StatusCode != want {
		t.Errorf("%s %s %.60q: status %d, want %d; %v", method, url, headers, response.StatusCode, want, response.Header)
	}
	return response.Header, body
}

func authOf(d *daemontest.Daemon) string {
	return strings.TrimSuffix(apiOf(d), "/v1/check") + "/v1/auth"
}

func proxyOf(d *daemontest.Daemon) string { return d.Find(`proxy +(http://[^,]+),`) }

// TestForwardAuth: a client has its limit, wherever it says that it comes from.
func TestForwardAuth(t *testing.T) {
	url := authOf(startChecker(t, "--rules", writeFile(t, doorRules)))
	for i, want := range []int{200, 200, 200, 429, 429} {
		spoofed := fmt.Sprintf("X-Forwarded-For: 6.6.6.%d, 192.0.2.1", i)
		h, _ := get(t, want, "GET", url, spoofed, "X-Forwarded-Uri: /a", "X-Forwarded-Method: GET")
		if left := fmt.Sprintf(`"per-ip";r=%d;t=`, max(2-i, 0)); !strings.HasPrefix(h.Get("RateLimit"), left) {
			t.Errorf("request %d: %v", i+1, h)
		}
		denied := want == 429
		if denied != (h.Get("Retry-After") != "") || denied != (h.Get("Content-Type") == "application/problem+json") {
			t.Errorf("request %d: %v", i+1, h)
		}
	}
	for _, want := range []int{200, 429} { // of the original request
		get(t, want, "GET", url,
			"X-Forwarded-For: 192.0.2.2", "X-Original-Method: POST", "X-Original-URI: //login?a=b", "X-User: kristie")
	}
}

// TestForwardAuthOfStrangers: who is not trusted is not answered, and the operator reads why.
func TestForwardAuthOfStrangers(t *testing.T) {
	d := startChecker(t, "--rules", writeFile(t, doorRules), "--trusted-proxies", "none")
	get(t, 400, "GET", authOf(d), "X-Forwarded-For: 192.0.2.1")
	d.AwaitLog("proxy=127.0.0.1:")
}

func TestForwardAuthReadsWhatItIsTold(t *testing.T) {
	url := authOf(startChecker(t, "--rules", writeFile(t, doorRules),
		"--forwarded-header", "Forwarded", "--ipv6-prefix", "48", "--ratelimit-headers", "x-ratelimit"))
	for i, want := range []string{"2", "1", "0"} {
		h, _ := get(t, 200, "GET", url,
			fmt.Sprintf(`Forwarded: for="[2001:db8:1:%d::1]"`, i), fmt.Sprintf("X-Forwarded-For: 192.0.2.%d", i))
		equal(t, fmt.Sprint("left after request ", i+1), h.Get("X-RateLimit-Remaining"), want)
	}
}

// TestSpellingsOfOneRequest: however a client writes a path or a host, it gets no further than by
// the plain one: neither to the service behind the proxy, nor past a proxy that asks.
func TestSpellingsOfOneRequest(t *testing.T) {
	const spelled = `
rules:
  - {name: api, match: {path: "/api/*"}, key: [], limit: 1/day}
  - {name: shop, match: {"header:Host": "Shop.example.com:8000"}, key: ["header:host"], limit: 1/day}
  - {name: any-shop, match: {path: /, "header:Host": "*"}, key: ["header:Host"], limit: 2/day}
  - {name: login, match: {folded_path: /login/}, key: [], limit: 1/day}
`
	type row struct {
		path, host string
		want       int
	}
	for _, rows := range [][]row{
		{
			{"/api/x", "a", 200},
			{"/api/x", "b", 429},
			{"/api/../x", "b", 400},
			{"/api/%2e%2e/x", "b", 400},
			{"/api/..%2fx", "b", 400},
			{"/api%2f..%2fx", "b", 400},
			{"/api/..%5cx", "b", 400},
			{"/api/..;a=b/x", "b", 400}, // which some take for /x
			{"/x/../api/x", "b", 400},
			{"/api/./x", "b", 400},
			{"/api/..", "b", 400},
			{"/api%00/x", "b", 400}, // which some take for /api
			{"*", "b", 400},         // which goes on as /*
			{"//api//x", "b", 429},
			{"/api/..x/.well-known/...", "b", 429}, // are names as others
			{"/.hidden/x..", "b", 200},
		},
		{{"/", "shop.example.com", 200}, {"/", "SHOP.example.com", 429}, {"/", "shop.example.com.", 429}, {"/", "shop.example.com:80", 429}, {"/", "shop.example.com.:8000", 429}, {"/", "shop.example.com:80:80", 429}, {"/", "shop.example.com:x", 429}},
		{{"/", "[2001:db8::1]:80", 200}, {"/", "[2001:DB8::1]", 200}, {"/", "[2001:db8::1]:443", 429}, {"/", "[2001:db8::1]x", 429}},
		{{"/Login", "a", 200}, {"/login/", "b", 429}, {"/LOGIN", "b", 429}, {"/login/x", "b", 200}},
	} {
		d, served := startProxy(t, "--rules", writeFile(t, spelled))
		reached := int64(0)
		for _, r := range rows {
			if got := rawGet(t, strings.TrimPrefix(proxyOf(d), "http://"), r.path, r.host); got != r.want {
				t.Errorf("proxy: %s of %s: status %d, want %d", r.path, r.host, got, r.want)
			}
			if r.want == 200 {
				reached++
			}
		}
		equal(t, "requests that the service served", served.Load(), reached)

		url := authOf(startChecker(t, "--rules", writeFile(t, spelled)))
		for _, r := range rows {
			get(t, r.want, "GET", url, "X-Forwarded-For: 192.0.2.1", "X-Forwarded-Uri: "+r.path, "X-Forwarded-Host: "+r.host)
		}
	}
}

// rawGet returns the status of the answer to a request whose target and host are sent as they are.
func rawGet(t *testing.T, address, target, host string) int {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	must(t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", target, host)
	must(t, err)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must(t, err)
	must(t, response.Body.Close())
	return response.StatusCode
}

// startProxy starts a service that says whom it is asked by, and a checker before it.
func startProxy(t *testing.T, args ...string) (*daemontest.Daemon, *atomic.Int64) {
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
	args = append([]string{"--rules", writeFile(t, doorRules), "--upstream", service.URL, "--proxy", "127.0.0.1:0"}, args...)
	return startChecker(t, args...), &served
}

// TestProxy: limits hold in front of a service, for clients as they are and not as they say.
func TestProxy(t *testing.T) {
	d, served := startProxy(t)
	for i, want := range []int{200, 200, 200, 429, 429} {
		h, text := get(t, want, "GET", proxyOf(d)+"/a", fmt.Sprintf("X-Forwarded-For: 6.6.6.%d", i))
		denied := want == 429
		if denied != (text != "127.0.0.1") || denied != (h.Get("Retry-After") != "") || h.Get("RateLimit") == "" {
			t.Errorf("request %d: %s %v", i+1, text, h)
		}
	}
	equal(t, "requests that the service served", served.Load(), 3)
	get(t, 429, "POST", proxyOf(d)+"/v1/check") // what asks a checker is no business of the service's clients
	d.MustStop()
}

// TestProxyBehindAnother: clients are those that a trusted proxy tells of; and only what failed is
// charged, and then not even tried.
func TestProxyBehindAnother(t *testing.T) {
	d, served := startProxy(t, "--trusted-proxies", "127.0.0.1", "--charge-on", "401,403")
	for i := range 5 {
		told := fmt.Sprintf("6.6.6.6, 192.0.2.%d", i)
		if _, text := get(t, 200, "GET", proxyOf(d), "X-Forwarded-For: "+told); text != told+", 127.0.0.1" {
			t.Errorf("client %d: %s", i, text)
		}
	}
	before := served.Load()
	for _, tt := range []struct {
		path string
		want int
	}{{"/works", 200}, {"/fails", 401}, {"/fails", 401}, {"/fails", 429}} {
		get(t, tt.want, "GET", proxyOf(d)+tt.path, "X-Forwarded-For: 192.0.2.9")
	}
	equal(t, "requests that the service served", served.Load()-before, 3)
	if strings.Contains(d.Stderr(), "outcome") {
		t.Errorf("complaints about nothing:\n%s", d.Stderr())
	}
}

// TestProxySaysWhatItCannotKnow: a rule by user applies to no request that is passed on.
func TestProxySaysWhatItCannotKnow(t *testing.T) {
	d := startChecker(t, "--rules", writeFile(t, daily(15)), "--upstream", "http://127.0.0.1:1", "--proxy", "127.0.0.1:0")
	if !strings.Contains(d.Stderr(), "attributes=[user]") {
		t.Errorf("stderr:\n%s", d.Stderr())
	}
	get(t, 502, "GET", proxyOf(d))
}

// TestProxyWithoutRules: nothing is passed on before there are rules.
func TestProxyWithoutRules(t *testing.T) {
	w := httptest.NewRecorder()
	new(adapters).proxy(w, httptest.NewRequest("POST", "/", strings.NewReader("body")))
	if w.Code != 503 || w.Header().Get("Retry-After") == "" || w.Header().Get("Connection") != "close" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}

// TestOversizedHeaders: both listeners take headers of 40 KiB, and refuse those of 80.
func TestOversizedHeaders(t *testing.T) {
	d, _ := startProxy(t)
	for _, url := range []string{authOf(d), proxyOf(d)} {
		address, path, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
		conn, err := net.Dial("tcp", address)
		must(t, err)
		defer conn.Close()
		go fmt.Fprintf(conn, "GET /%s HTTP/1.1\r\nHost: a\r\nX: %s\r\n\r\n", path, strings.Repeat("x", 80<<10))
		if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, " 431 ") {
			t.Errorf("%s: %q, %v", url, line, err)
		}
		get(t, 200, "GET", url, "X: "+strings.Repeat("x", 40<<10))
	}
}

// TestPagesOfOtherSites: what a site has a browser on this machine ask is refused, and charged to
// nobody, unless the site is known. At forward-auth the header is the original request's.
func TestPagesOfOtherSites(t *testing.T) {
	d := startChecker(t, "--rules", writeFile(t, daily(2)), "--allow-origin", "https://ops.example:8443, https://b.example")
	base := strings.TrimSuffix(apiOf(d), "/v1/check")
	for _, tt := range []struct {
		method, url, body, origin string
		want                      int
	}{
		{"POST", base + "/v1/check", kristie, "https://evil.example", 403},
		{"POST", base + "/v1/check", kristie, base, 403}, // none of its pages: a site may have given its name this address
		{"POST", base + "/v1/check", kristie, "null", 403},
		{"POST", base + "/v1/check", kristie, "", 403},
		{"POST", base + "/v1/check", kristie, "https://ops.example", 403}, // another port
		{"POST", base + "/v1/settle", `{}`, "https://evil.example", 403},
		{"POST", base + "/v1/check", kristie, "https://ops.example:8443", 200},
		{"POST", base + "/v1/check", kristie, "HTTPS://B.example", 200},
		{"POST", base + "/v1/check", kristie, "https://b.example", 429},
		{"GET", base + "/v1/auth", "", "https://evil.example", 200},
		{"GET", d.Admin() + "/metrics", "", "https://evil.example", 403},
		{"GET", d.Admin() + "/metrics", "", "https://b.example", 200},
	} {
		response, text, err := daemontest.Fetch(t, http.DefaultClient, tt.method, tt.url, tt.body, "Origin: "+tt.origin)
		must(t, err)
		if response.StatusCode != tt.want || tt.want == 403 && !strings.Contains(text, "--allow-origin") {
			t.Errorf("%s %s for a page of %q: %d %.200s, want %d", tt.method, tt.url, tt.origin, response.StatusCode, text, tt.want)
		}
	}
}

// TestAnySite: * stands for all.
func TestAnySite(t *testing.T) {
	d := startChecker(t, "--rules", writeFile(t, daily(2)), "--allow-origin", "*")
	get(t, 200, "GET", d.Admin()+"/metrics", "Origin: https://evil.example")
}
