package forwardauth

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// seen is a limit that keeps the request that it decides about, and denies with a status if that is
// not 0.
type seen struct {
	request *http.Request
	denies  int
}

func (s *seen) limit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.request = r
		w.Header().Set("RateLimit", "as it is")
		if s.denies == 0 {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Retry-After", "7")
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(s.denies)
		fmt.Fprintf(w, `{"type":"about:blank","title":"Denied","status":%d}`, s.denies)
	})
}

func newAdapter(t testing.TB, s *seen, log *bytes.Buffer) http.Handler {
	return described.Check(t, New(Options{
		Limit:  s.limit,
		Trusts: func(remote string) bool { return strings.HasPrefix(remote, "10.") },
		Log:    slog.New(slog.NewTextHandler(log, nil)),
	}))
}

// authRequest is a GET of target by a trusted proxy, with headers of the form "Name: value".
func authRequest(target string, headers ...string) *http.Request {
	r := httptest.NewRequest("GET", target, nil)
	r.RemoteAddr, r.Host = "10.0.0.1:4711", "checker:8080"
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	return r
}

// TestOriginal: the request that a proxy describes is decided.
func TestOriginal(t *testing.T) {
	for _, tt := range []struct {
		why     string
		headers []string
		method  string
		host    string
		path    string
		query   string
	}{
		{"Traefik, Caddy", []string{"X-Forwarded-Method: PUT", "X-Forwarded-Uri: /a/b?c=d", "X-Forwarded-Host: example.com", "X-Forwarded-Proto: https"}, "PUT", "example.com", "/a/b", "c=d"},
		{"nginx, the older way", []string{"X-Original-Method: PUT", "X-Original-URI: /a/b?c=d"}, "PUT", "checker:8080", "/a/b", "c=d"},
		{"nginx at Kubernetes", []string{"X-Original-Method: GET", "X-Original-URL: https://example.com/a/b?c=d"}, "GET", "example.com", "/a/b", "c=d"},
		{"both ways, and they agree", []string{"X-Forwarded-Uri: /a?b", "X-Original-URL: http://example.com/a?b", "X-Original-URI: /a?b"}, "GET", "checker:8080", "/a", "b"},
		{"the same twice", []string{"X-Forwarded-Uri: /a", "X-Forwarded-Uri: /a"}, "GET", "checker:8080", "/a", ""},
		{"no path in the URL", []string{"X-Forwarded-Uri: /", "X-Original-URL: https://example.com"}, "GET", "checker:8080", "/", ""},
		{"nothing told", nil, "GET", "checker:8080", "", ""},
		{"told as nothing", []string{"X-Forwarded-Uri: ", "X-Original-Method: "}, "GET", "checker:8080", "", ""},
		{"two slashes are no host", []string{"X-Forwarded-Uri: //login"}, "GET", "checker:8080", "//login", ""},
		{"a URL in the query", []string{"X-Forwarded-Uri: /a?to=http://b/c"}, "GET", "checker:8080", "/a", "to=http://b/c"},
		{"escapes", []string{"X-Forwarded-Uri: /%6bristie%ff"}, "GET", "checker:8080", "/kristie\xff", ""},
		{"bytes that are not UTF-8", []string{"X-Forwarded-Uri: /\xff\xfe"}, "GET", "checker:8080", "/\xff\xfe", ""},
		{"a star", []string{"X-Forwarded-Method: OPTIONS", "X-Forwarded-Uri: *"}, "OPTIONS", "checker:8080", "*", ""},
	} {
		s := new(seen)
		w := httptest.NewRecorder()
		newAdapter(t, s, new(bytes.Buffer)).ServeHTTP(w, authRequest(Path, append(tt.headers, "Cookie: id=7")...))
		if w.Code != 200 || w.Body.Len() != 0 || w.Header().Get("RateLimit") == "" {
			t.Errorf("%s: %d %v %s", tt.why, w.Code, w.Header(), w.Body)
			continue
		}
		r := s.request
		if r.Method != tt.method || r.Host != tt.host || r.URL.Path != tt.path || r.URL.RawQuery != tt.query {
			t.Errorf("%s: %s %s %q %q", tt.why, r.Method, r.Host, r.URL.Path, r.URL.RawQuery)
		}
		if c, err := r.Cookie("id"); err != nil || c.Value != "7" || r.RemoteAddr != "10.0.0.1:4711" {
			t.Errorf("%s: the client's own headers are lost: %v, %v", tt.why, r.Header, r.RemoteAddr)
		}
	}
}

// TestRefused: an invalid request is not decided.
func TestRefused(t *testing.T) {
	get := func(headers ...string) *http.Request { return authRequest(Path, headers...) }
	from := func(peer string) *http.Request { r := get(); r.RemoteAddr = peer; return r }
	with := func(method string) *http.Request { r := get(); r.Method = method; return r }
	for _, tt := range []struct {
		why    string
		r      *http.Request
		status int
		says   string
	}{
		{"a stranger", from("192.0.2.1:80"), 400, "not trusted: see --trusted-proxies"},
		{"a socket", from("@"), 400, "not trusted"},
		{"no path, by POST", func() *http.Request { r := get("X-Forwarded-Uri: what?"); r.Method = "POST"; return r }(), 400, "invalid URI"},
		{"another method", with("PUT"), 405, "want GET or POST"},
		{"a client adds its own path", get("X-Forwarded-Uri: /login", "X-Original-URI: /free"), 400, `X-Forwarded-Uri \"/login\" and X-Original-Uri \"/free\"`},
		{"or its own URL", get("X-Forwarded-Uri: /login", "X-Original-URL: http://a/free"), 400, "as the client sent it"},
		{"or another query", get("X-Forwarded-Uri: /login?a", "X-Original-URL: http://a/login"), 400, "as the client sent it"},
		{"or its own method", get("X-Original-Method: POST", "X-Forwarded-Method: GET"), 400, "as the client sent it"},
		{"or a line", get("X-Forwarded-Uri: /login", "X-Forwarded-Uri: /free"), 400, "as the client sent it"},
		{"or a host", get("X-Forwarded-Host: a", "X-Forwarded-Host: b"), 400, "as the client sent it"},
		{"no path", get("X-Forwarded-Uri: what?"), 400, `original URI \"what?\": invalid URI for request`},
		{"a URL without a path", get("X-Forwarded-Uri: x:login"), 400, `original URI \"x:login\": no path`},
		{"a fragment, which some services take off", get("X-Forwarded-Uri: /x#/../login"), 400, `original URI \"/x#/../login\": has a fragment`},
		{"a fragment of a URL", get("X-Original-URL: http://example.com/login?a#b"), 400, "has a fragment"},
		{"nothing but a fragment", get("X-Forwarded-Uri: #login"), 400, `original URI \"#login\": has a fragment`},
		{"a bad escape", get("X-Forwarded-Uri: /%zz"), 400, "invalid URL escape"},
		{"a control character", get("X-Forwarded-Uri: /a\x7f"), 400, "invalid control character"},
		{"a long path", get("X-Forwarded-Uri: /" + strings.Repeat("x", MaxURI)), 400, "16385 bytes, more than 16384"},
		{"a long bad path", get("X-Forwarded-Uri: " + strings.Repeat("x", MaxURI)), 400, `xxx\": invalid URI`},
		{"no method", get("X-Forwarded-Method: GET /"), 400, `original method \"GET /\"`},
		{"a method with bad UTF-8", get("X-Forwarded-Method: \xff"), 400, "original method"},
		{"no status", authRequest(Path + "?denied=no"), 400, "want one status from 400 to 599"},
		{"a status that lets pass", authRequest(Path + "?denied=200"), 400, "want one status from 400 to 599"},
		{"a huge status", authRequest(Path + "?denied=99999999999999999999"), 400, "want one status"},
		{"no time", authRequest(Path + "?wait=long"), 400, "want one duration up to 25s"},
		{"a long time", authRequest(Path + "?wait=26s"), 400, "want one duration up to 25s"},
		{"a negative time", authRequest(Path + "?wait=-1s"), 400, "want one duration"},
		{"two times", authRequest(Path + "?wait=1s&wait=2s"), 400, "want one duration"},
		{"two statuses", authRequest(Path + "?denied=403&denied=401"), 400, "want one status"},
	} {
		s := new(seen)
		w := httptest.NewRecorder()
		newAdapter(t, s, new(bytes.Buffer)).ServeHTTP(w, tt.r)
		body := w.Body.String()
		if w.Code != tt.status || !strings.HasPrefix(body, `{"error":"`) || !strings.Contains(body, tt.says) || s.request != nil {
			t.Errorf("%s: %d %s, decided: %v", tt.why, w.Code, body, s.request != nil)
		}
		if len(body) > 400 {
			t.Errorf("%s: an error of %d bytes", tt.why, len(body))
		}
		if strings.Contains(body, "192.0.2.1") {
			t.Errorf("%s: it tells who asks: %s", tt.why, body)
		}
	}
}

// TestStrangersAreLoggedOnce: the operator learns which address to trust, and the log does not
// fill.
func TestStrangersAreLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	d := newAdapter(t, new(seen), &log)
	for range 3 {
		r := authRequest(Path)
		r.RemoteAddr = "192.0.2.1:80"
		d.ServeHTTP(httptest.NewRecorder(), r)
	}
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "proxy=192.0.2.1:80") {
		t.Errorf("log %q", text)
	}
}

func TestDenied(t *testing.T) {
	for _, tt := range []struct {
		target string
		denies int
		status int
		tells  string
	}{
		{Path, 429, 429, ""}, {Path, 503, 503, ""}, {Path, 0, 200, ""},
		{Path, 400, 400, ""}, {Path + "?denied=403", 400, 403, "400"},
		{Path + "?denied=403", 429, 403, "429"}, {Path + "?denied=403", 503, 403, "503"}, {Path + "?denied=401", 429, 401, "429"},
		{Path + "?denied=403", 0, 200, ""}, {Path + "?a=b&%zz;&deny=403", 429, 429, ""}, {Path + "?%zz&denied=403", 429, 403, "429"},
	} {
		w := httptest.NewRecorder()
		r := authRequest(tt.target)
		r.Method = "POST" // as GET
		newAdapter(t, &seen{denies: tt.denies}, new(bytes.Buffer)).ServeHTTP(httptest.NewRecorder(), r)
		newAdapter(t, &seen{denies: tt.denies}, new(bytes.Buffer)).ServeHTTP(w, authRequest(tt.target))
		if w.Code != tt.status || w.Header().Get(DeniedStatus) != tt.tells || w.Header().Get("RateLimit") == "" {
			t.Errorf("%s, %d: %d %v", tt.target, tt.denies, w.Code, w.Header())
		}
		if got := w.Header().Get("Retry-After"); (got == "7") != (tt.denies != 0) {
			t.Errorf("%s, %d: Retry-After %q", tt.target, tt.denies, got)
		}
	}
}

// TestWait: a request waits less than proxies do, unless it asks for more.
func TestWait(t *testing.T) {
	for target, want := range map[string]time.Duration{Path: Wait, Path + "?denied=403": Wait, Path + "?wait=25s": 25 * time.Second, Path + "?wait=0s": 0} {
		synctest.Test(t, func(t *testing.T) {
			limit := func(http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					<-r.Context().Done()
					w.WriteHeader(http.StatusTooManyRequests)
				})
			}
			began := time.Now()
			New(Options{Limit: limit, Trusts: func(string) bool { return true }}).ServeHTTP(httptest.NewRecorder(), authRequest(target))
			if waited := time.Since(began); waited != want {
				t.Errorf("%s: %v, want %v", target, waited, want)
			}
		})
	}
}
