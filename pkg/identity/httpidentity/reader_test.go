package httpidentity

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/offpath-io/offpath/pkg/identity"
)

func reader(t testing.TB, o Options, names ...string) *Reader {
	t.Helper()
	rd, err := builder(t, o).Reader(names)
	must(t, err)
	return rd
}

// request is one with all that attributes are made of.
func request() *http.Request {
	r := httptest.NewRequest("POST", "http://api.example.com/v1//users/%6bristie?page=2", nil)
	r.RemoteAddr = "[2001:db8:1:2:3:4:5:6]:4711"
	r.Pattern = "POST /v1/users/{name}"
	r.Header = http.Header{"X-Tenant": {"gold", "silver"}, "X-Empty": {""}, "X-None": {}, "X-Forwarded-For": {"192.0.2.1"}}
	r.AddCookie(&http.Cookie{Name: "session", Value: "s1"})
	r.AddCookie(&http.Cookie{Name: "session", Value: "s2"})
	r.AddCookie(&http.Cookie{Name: "empty"})
	return r
}

func TestAttributes(t *testing.T) {
	options := Options{Sources: map[string]Source{
		"user":   FromHeader("x-tenant"),
		"tier":   func(*http.Request) (string, bool) { return "", true },
		"nobody": func(*http.Request) (string, bool) { return "somebody", false },
		"method": func(*http.Request) (string, bool) { return "overridden", true },
	}}
	for _, tt := range []struct {
		why, name, want string
		options         Options
		missing         bool
	}{
		{why: "IPv6 by /64", name: "ip", want: "2001:db8:1:2::/64"},
		{why: "as set", name: "ip", want: "2001:db8::/32", options: Options{IPv6Prefix: 32}},
		{why: "behind a proxy", name: "ip", want: "192.0.2.1", options: Options{TrustedProxies: proxies(t, "2001:db8::/32")}},
		{why: "behind a proxy, as set", name: "ip", want: "192.0.2.0/24", options: Options{TrustedProxies: proxies(t, "2001:db8::/32"), IPv4Prefix: 24}},
		{why: "not grouped", name: "address", want: "2001:db8:1:2:3:4:5:6", options: Options{IPv6Prefix: 32}},
		{why: "method", name: "method", want: "POST"},
		{why: "path: unescaped, clean, no query", name: "path", want: "/v1/users/kristie"},
		{why: "folded: in lower case, with a slash", name: "folded_path", want: "/v1/users/kristie/"},
		{why: "route", name: "route", want: "POST /v1/users/{name}"},
		{why: "the first of two headers", name: "header:X-Tenant", want: "gold"},
		{why: "in any case", name: "header:x-tenant", want: "gold"},
		{why: "an empty header is there", name: "header:X-Empty", want: ""},
		{why: "no values", name: "header:X-None", missing: true},
		{why: "no header", name: "header:X-User", missing: true},
		{why: "the host is no header to net/http", name: "header:host", want: "api.example.com"},
		{why: "the first of two cookies", name: "cookie:session", want: "s1"},
		{why: "an empty cookie is there", name: "cookie:empty", want: ""},
		{why: "case counts", name: "cookie:Session", missing: true},
		{why: "a source", name: "user", want: "gold", options: options},
		{why: "a source with an empty value", name: "tier", want: "", options: options},
		{why: "a source without one", name: "nobody", missing: true, options: options},
		{why: "a source beats what is built in", name: "method", want: "overridden", options: options},
		{why: "no source", name: "user", missing: true},
	} {
		r := request()
		before := r.Clone(t.Context())
		got := reader(t, tt.options, tt.name).Append(identity.Attributes{{Name: "before", Value: "b"}}, r)
		want := identity.Attributes{{Name: "before", Value: "b"}, {Name: tt.name, Value: tt.want}}
		if tt.missing {
			want = want[:1]
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", tt.why, got, want)
		}
		if r.URL.String() != before.URL.String() || len(r.Header) != len(before.Header) {
			t.Errorf("%s: the request has changed", tt.why)
		}
	}
}

// A request gets the attributes that are asked for, once each, and no others, however many it could
// have.
func TestOnlyWhatIsAskedFor(t *testing.T) {
	asked := 0
	o := Options{Sources: map[string]Source{"user": func(*http.Request) (string, bool) { asked++; return "kristie", true }}}
	if got := reader(t, o).Append(nil, request()); got != nil || asked != 0 {
		t.Errorf("nothing asked for: %q, the source %d times", got, asked)
	}
	rd := reader(t, o, "user", "ip", "path", "ip", "address", "user", "api")
	got := identity.Attributes(rd.Append(nil, request()))
	var names []string
	for _, a := range got {
		names = append(names, a.Name)
	}
	slices.Sort(names)
	if !slices.Equal(names, []string{"address", "ip", "path", "user"}) || asked != 1 {
		t.Errorf("attributes %q, the source %d times", got, asked)
	}
	if !slices.Equal(rd.Unknown(), []string{"api"}) {
		t.Errorf("unknown are %q", rd.Unknown())
	}
}

// What the caller knows better stays, and is not even looked for.
func TestGivenAttributesStay(t *testing.T) {
	o := Options{Sources: map[string]Source{"user": func(*http.Request) (string, bool) { t.Error("asked"); return "", true }}}
	given := identity.Attributes{{Name: "user", Value: "kristie"}, {Name: "ip", Value: "peer"}, {Name: "address", Value: "a"}, {Name: "api", Value: "createURL"}}
	if got := reader(t, o, "user", "ip", "address", "api").Append(given, request()); !slices.Equal(got, given) {
		t.Errorf("%q became %q", given, got)
	}
}

func TestRequestsThatLackThings(t *testing.T) {
	rd := reader(t, Options{}, "ip", "address", "method", "path", "route", "header:Host", "cookie:a")
	got := rd.Append(nil, &http.Request{})
	if want := (identity.Attributes{{Name: "method", Value: "GET"}}); !slices.Equal(got, want) {
		t.Errorf("an empty request has %q, want %q", got, want)
	}
}

func TestNamesRefused(t *testing.T) {
	b := builder(t, Options{Sources: map[string]Source{"header: mine": FromHeader("Mine")}})
	for _, name := range []string{"", "header:", "header: X", "header:X Y", "header:X:Y", "header:É", "cookie:", "cookie:a=b", "cookie:a;b", "cookie:\x7f"} {
		if rd, err := b.Reader([]string{"ip", name}); err == nil || rd != nil || !strings.Contains(err.Error(), "attribute ") {
			t.Errorf("%q: %v, %v", name, rd, err)
		}
	}
	for _, name := range []string{"header: mine", "header:X_y.z~!", "cookie:__Host-id", "Header:X", "anything else"} {
		if _, err := b.Reader([]string{name}); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// What a client asks for by a whole URL has a path, and a tunnel has none.
func TestPathsAreClean(t *testing.T) {
	requests := map[*http.Request]string{}
	for path, want := range map[string]string{
		"/": "/", "/a": "/a", "/a/": "/a/", "//a": "/a", "/a//": "/a/", "/a/./b": "/a/b", "/a/../b/": "/b/", "/../a": "/a", "/..": "/",
		"//": "/", "/./": "/", "/a/.": "/a", "/A": "/A", "/a b\x00": "/a b\x00", "*": "*", "": "none",
	} {
		requests[&http.Request{URL: &url.URL{Path: path}}] = want
	}
	for line, want := range map[string]string{
		"GET http://example.com": "/", "GET http://example.com?a": "/", "GET http://example.com/": "/", "GET http://example.com/a//b": "/a/b",
		"GET x:a": "/", "CONNECT example.com:80": "none", "OPTIONS *": "*",
	} {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(line + " HTTP/1.1\r\nHost: a\r\n\r\n")))
		must(t, err)
		requests[r] = want
	}
	rd := reader(t, Options{}, "path")
	for r, want := range requests {
		got, found := rd.Append(nil, r).Get("path")
		if found != (want != "none") || found && got != want {
			t.Errorf("%s: %q, %v, want %q", r.URL, got, found, want)
		}
	}
}

// A path is ambiguous to those who read it here, and names with dots in them are names.
func TestAmbiguous(t *testing.T) {
	own := Options{Sources: map[string]Source{"path": FromHeader("X")}}
	for _, tt := range []struct {
		rd   *Reader
		path string
		want bool
	}{
		{reader(t, Options{}, "path"), "/a/../b", true},
		{reader(t, Options{}, "folded_path"), "/a/..", true},
		{reader(t, Options{}, "path"), `/a\..\b`, true},
		{reader(t, Options{}, "path"), "/a/..;b/c", true},
		{reader(t, Options{}, "path"), "/./", true},
		{reader(t, Options{}, "path"), "/a..b/.c/...;/..c", false},
		{reader(t, Options{}, "path"), "/a\x00", true},
		{reader(t, Options{}, "path"), "*", true},
		{reader(t, Options{}, "path"), "", false},
		{reader(t, Options{}, "ip", "route"), "/a/../b", false},
		{reader(t, own, "path"), "/a/../b", false},
	} {
		if got := tt.rd.Ambiguous(&http.Request{URL: &url.URL{Path: tt.path}}); got != tt.want {
			t.Errorf("%q: %v", tt.path, got)
		}
	}
}

// MuxRoute knows the route before the mux has seen the request, and both say the same.
func TestMuxRoute(t *testing.T) {
	mux := http.NewServeMux()
	outside := reader(t, Options{Sources: map[string]Source{"route": MuxRoute(mux)}}, "route")
	inside := reader(t, Options{}, "route")
	var seen string
	mux.HandleFunc("GET /users/{name}", func(_ http.ResponseWriter, r *http.Request) { seen, _ = inside.Append(nil, r).Get("route") })
	for path, want := range map[string]string{"/users/kristie": "GET /users/{name}", "/users/bob": "GET /users/{name}", "/other": ""} {
		seen = ""
		r := httptest.NewRequest("GET", path, nil)
		if got, found := outside.Append(nil, r).Get("route"); got != want || found != (want != "") {
			t.Errorf("%s: route %q, %v, want %q", path, got, found, want)
		}
		if _, found := inside.Append(nil, r).Get("route"); found {
			t.Errorf("%s has a route before it is routed", path)
		}
		if mux.ServeHTTP(httptest.NewRecorder(), r); seen != want {
			t.Errorf("%s: in the handler the route is %q, want %q", path, seen, want)
		}
	}
}
