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

	"github.com/offpath-io/offpath/cmd/checker/api"
	"github.com/offpath-io/offpath/internal/testing/apitest"
)

// described checks the answers of all tests. The pattern lists refusals that a schema cannot
// express: those of headers, of times, and of parameters that come twice.
var described = apitest.Load(api.Description(), `not trusted|denied=..403|as the client sent it|original |want one duration|bytes, more than|about:blank`)

// TestMain looks whether each answer that is described has occurred, after all tests.
func TestMain(m *testing.M) { described.Main(m, Path) }

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
	r.RemoteAddr, r.Host = "10.0.0.1:4711", "c"
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
		want    string // method, host, path and query
	}{
		{"Traefik, Caddy", []string{"X-Forwarded-Method: PUT", "X-Forwarded-Uri: /a/b?c=d", "X-Forwarded-Host: example.com", "X-Forwarded-Proto: https"}, "PUT example.com /a/b?c=d"},
		{"nginx, the older way", []string{"X-Original-Method: PUT", "X-Original-URI: /a/b?c=d"}, "PUT c /a/b?c=d"},
		{"nginx at Kubernetes", []string{"X-Original-Method: GET", "X-Original-URL: https://example.com/a/b?c=d"}, "GET example.com /a/b?c=d"},
		{"both ways, and they agree", []string{"X-Forwarded-Uri: /a?b", "X-Original-URL: http://example.com/a?b", "X-Original-URI: /a?b"}, "GET c /a?b"},
		{"the same twice", []string{"X-Forwarded-Uri: /a", "X-Forwarded-Uri: /a"}, "GET c /a"},
		{"no path in the URL", []string{"X-Forwarded-Uri: /", "X-Original-URL: https://example.com"}, "GET c /"},
		{"nothing told", nil, "GET c "},
		{"told as nothing", []string{"X-Forwarded-Uri: ", "X-Original-Method: "}, "GET c "},
		{"two slashes are no host", []string{"X-Forwarded-Uri: //login"}, "GET c //login"},
		{"a URL in the query", []string{"X-Forwarded-Uri: /a?to=http://b/c"}, "GET c /a?to=http://b/c"},
		{"escapes", []string{"X-Forwarded-Uri: /%6bristie%ff"}, "GET c /kristie\xff"},
		{"bytes that are not UTF-8", []string{"X-Forwarded-Uri: /\xff\xfe"}, "GET c /\xff\xfe"},
		{"a star", []string{"X-Forwarded-Method: OPTIONS", "X-Forwarded-Uri: *"}, "OPTIONS c *"},
	} {
		s := new(seen)
		w := httptest.NewRecorder()
		newAdapter(t, s, new(bytes.Buffer)).ServeHTTP(w, authRequest(Path, append(tt.headers, "Cookie: id=7")...))
		if w.Code != 200 || w.Body.Len() != 0 || w.Header().Get("RateLimit") == "" {
			t.Errorf("%s: %d %v %s", tt.why, w.Code, w.Header(), w.Body)
			continue
		}
		r := s.request
		got := r.Method + " " + r.Host + " " + r.URL.Path
		if r.URL.RawQuery != "" {
			got += "?" + r.URL.RawQuery
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.why, got, tt.want)
		}
		if c, err := r.Cookie("id"); err != nil || c.Value != "7" || r.RemoteAddr != "10.0.0.1:4711" {
			t.Errorf("%s: the client's own headers are lost: %v, %v", tt.why, r.Header, r.RemoteAddr)
		}
	}
}

// TestRefused: an invalid request is not decided.
func TestRefused(t *testing.T) {
	query := func(text string) *http.Request { return authRequest(Path + "?" + text) }
	const disagree = "as the client sent it"
	get := func(headers ...string) *http.Request { return authRequest(Path, headers...) }
	from := func(peer string) *http.Request { r := get(); r.RemoteAddr = peer; return r }
	with := func(method string) *http.Request { r := get(); r.Method = method; return r }
	for _, tt := range []struct {
		why  string
		r    *http.Request
		says string
	}{
		{"a stranger", from("192.0.2.1:80"), "not trusted: see --trusted-proxies"},
		{"a socket", from("@"), "not trusted"},
		{"no path, by POST", func() *http.Request { r := get("X-Forwarded-Uri: what?"); r.Method = "POST"; return r }(), "invalid URI"},
		{"another method", with("PUT"), "want GET or POST"},
		{"a client adds its own path", get("X-Forwarded-Uri: /login", "X-Original-URI: /free"), `X-Forwarded-Uri \"/login\" and X-Original-Uri \"/free\"`},
		{"or its own URL", get("X-Forwarded-Uri: /login", "X-Original-URL: http://a/free"), disagree},
		{"or another query", get("X-Forwarded-Uri: /login?a", "X-Original-URL: http://a/login"), disagree},
		{"or its own method", get("X-Original-Method: POST", "X-Forwarded-Method: GET"), disagree},
		{"or a line", get("X-Forwarded-Uri: /login", "X-Forwarded-Uri: /free"), disagree},
		{"or a host", get("X-Forwarded-Host: a", "X-Forwarded-Host: b"), disagree},
		{"no path", get("X-Forwarded-Uri: what?"), `original URI \"what?\": invalid URI for request`},
		{"a URL without a path", get("X-Forwarded-Uri: x:login"), `original URI \"x:login\": no path`},
		{"a fragment, which some services take off", get("X-Forwarded-Uri: /x#/../login"), `original URI \"/x#/../login\": has a fragment`},
		{"a fragment of a URL", get("X-Original-URL: http://example.com/login?a#b"), "has a fragment"},
		{"nothing but a fragment", get("X-Forwarded-Uri: #login"), `original URI \"#login\": has a fragment`},
		{"a bad escape", get("X-Forwarded-Uri: /%zz"), "invalid URL escape"},
		{"a control character", get("X-Forwarded-Uri: /a\x7f"), "invalid control character"},
		{"a long path", get("X-Forwarded-Uri: /" + strings.Repeat("x", MaxURI)), "16385 bytes, more than 16384"},
		{"a long bad path", get("X-Forwarded-Uri: " + strings.Repeat("x", MaxURI)), `xxx\": invalid URI`},
		{"no method", get("X-Forwarded-Method: GET /"), `original method \"GET /\"`},
		{"a method with bad UTF-8", get("X-Forwarded-Method: \xff"), "original method"},
		{"no status", query("denied=no"), "want one status from 400 to 599"},
		{"a status that lets pass", query("denied=200"), "want one status from 400 to 599"},
		{"a huge status", query("denied=99999999999999999999"), "want one status"},
		{"no time", query("wait=long"), "want one duration up to 25s"},
		{"a long time", query("wait=26s"), "want one duration up to 25s"},
		{"a negative time", query("wait=-1s"), "want one duration"},
		{"two times", query("wait=1s&wait=2s"), "want one duration"},
		{"two statuses", query("denied=403&denied=401"), "want one status"},
	} {
		s := new(seen)
		w := httptest.NewRecorder()
		newAdapter(t, s, new(bytes.Buffer)).ServeHTTP(w, tt.r)
		body, status := w.Body.String(), 400
		if tt.r.Method == "PUT" {
			status = 405
		}
		if w.Code != status || !strings.HasPrefix(body, `{"error":"`) || !strings.Contains(body, tt.says) || s.request != nil {
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

// FuzzOriginal: nothing makes it panic; headers that disagree are refused; and the first header is
// decided.
func FuzzOriginal(f *testing.F) {
	f.Add("GET", "/a?b", "", "", "")
	f.Add("", "/a", "/a", "http://h/a", "GET")
	f.Add("PUT", "//x", "", "https://h", "POST")
	f.Add("", "*", "\xff", "://", "%")
	f.Fuzz(func(t *testing.T, method, uri, other, whole, otherMethod string) {
		r := httptest.NewRequest("GET", Path, nil)
		r.Header = http.Header{
			forwardedMethod: {method}, forwardedURI: {uri}, originalURI: {other}, originalURL: {whole}, originalMethod: {otherMethod},
		}
		asked, err := originalRequest(t.Context(), r)
		if err != nil {
			if len(err.Error()) > 1000 {
				t.Fatalf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		for _, m := range []string{method, otherMethod} {
			if m != "" && m != asked.Method {
				t.Fatalf("%q and %q: method %q", method, otherMethod, asked.Method)
			}
		}
		if uri != "" && other != "" && target(uri) != target(other) || uri != "" && whole != "" && target(uri) != target(whole) {
			t.Fatalf("%q, %q, %q: decided as %q", uri, other, whole, asked.RequestURI)
		}
		if asked.URL == nil || uri != "" && asked.RequestURI != uri {
			t.Fatalf("%q: decided as %q", uri, asked.RequestURI)
		}
	})
}
