package examples

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/rulestest"
	"github.com/offpath-io/offpath/pkg/check/checktest"
	"github.com/offpath-io/offpath/pkg/httplimit"
)

func init() { gin.SetMode(gin.ReleaseMode) }

// family is one router's way to have the middleware.
type family struct {
	name  string
	serve func(*testing.T, httplimit.Checker) (url string)
	route string // of GET /hello/…; "" if there is none
}

var families = []family{
	{"net/http", over(NetHTTP), "GET /hello/{name}"},
	{"chi", over(Chi), "/hello/{name}"},
	{"gorilla", over(Gorilla), "/hello/{name}"},
	{"gin", over(Gin), "/hello/:name"},
	{"echo", over(Echo), "/hello/:name"},
	{"fiber", overFiber, ""},
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func over(service func(httplimit.Checker) (http.Handler, error)) func(*testing.T, httplimit.Checker) string {
	return func(t *testing.T, c httplimit.Checker) string {
		h, err := service(c)
		must(t, err)
		server := httptest.NewServer(h)
		t.Cleanup(server.Close)
		return server.URL
	}
}

func overFiber(t *testing.T, c httplimit.Checker) string {
	app, err := Fiber(c)
	must(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	go func() { _ = app.Listener(listener) }() // an error is that it has been shut down
	t.Cleanup(func() { _ = app.Shutdown() })
	return "http://" + listener.Addr().String()
}

func get(t *testing.T, url, user string) (*http.Response, string, error) {
	t.Helper()
	return daemontest.Fetch(t, http.DefaultClient, http.MethodGet, url, "", "X-User: "+user)
}

// Each family lets two of a user's requests pass, with headers, and answers the third, and lets
// others be.
func TestFamilies(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			url := f.serve(t, rulestest.Checker(t, "rules: [{name: per-user, key: [user], limit: 2/hour}]")) + "/hello/world"
			for i, want := range []int{200, 200, 429, 429} {
				res, body, err := get(t, url, "kristie")
				must(t, err)
				if policy := res.Header["Ratelimit-Policy"]; res.StatusCode != want || !slices.Equal(policy, []string{`"per-user";q=2;w=3600`}) {
					t.Errorf("request %d: %d %q", i, res.StatusCode, policy)
				}
				left := max(1-i, 0)
				if state := res.Header["Ratelimit"]; len(state) != 1 || !strings.HasPrefix(state[0], fmt.Sprintf(`"per-user";r=%d;t=`, left)) {
					t.Errorf("request %d: %q", i, state)
				}
				if want == 200 {
					if body != "hello" || res.Header["Retry-After"] != nil {
						t.Errorf("request %d: %q %q", i, body, res.Header)
					}
					continue
				}
				var p httplimit.Problem
				if err := json.Unmarshal([]byte(body), &p); err != nil || p.Type != httplimit.QuotaExceeded || res.Header.Get("Content-Type") != httplimit.ProblemType || res.Header.Get("Retry-After") == "" {
					t.Errorf("request %d: %q %q", i, body, res.Header)
				}
			}
			// One connection, many users: what a framework does with a request's memory afterwards
			// changes no key.
			for i := range 100 {
				for range 2 {
					if res, _, err := get(t, url, fmt.Sprintf("user-with-a-long-name-that-is-no-short-key-%03d", i)); err != nil || res.StatusCode != 200 {
						t.Fatalf("user %d: %v, %v", i, res, err)
					}
				}
			}
		})
	}
}

// Rules can be about routes, so that /hello/a and /hello/b share a limit.
func TestRoutes(t *testing.T) {
	for _, f := range families {
		c := checktest.Allow().For("method", "route")
		url := f.serve(t, c)
		for _, path := range []string{"/hello/a", "/hello/b"} {
			if res, _, err := get(t, url+path, ""); err != nil || res.StatusCode != 200 {
				t.Errorf("%s: %v, %v", f.name, err, res)
			}
		}
		for _, asked := range c.Asked() {
			method, _ := asked.Attributes.Get("method")
			if route, ok := asked.Attributes.Get("route"); method != "GET" || route != f.route || ok != (f.route != "") {
				t.Errorf("%s: asked about %v", f.name, asked.Attributes)
			}
		}
		if n := len(c.Asked()); n != 2 {
			t.Errorf("%s: asked %d times", f.name, n)
		}
	}
}
