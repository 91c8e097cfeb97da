package examples

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/check/checktest"
	"github.com/offpath-io/offpath/pkg/httplimit"
	"github.com/offpath-io/offpath/pkg/rules"
)

func init() { gin.SetMode(gin.ReleaseMode) }

// family is one router's way to have the middleware.
type family struct {
	name  string
	serve func(httplimit.Checker) (url string, stop func(), err error)
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

func over(service func(httplimit.Checker) (http.Handler, error)) func(httplimit.Checker) (string, func(), error) {
	return func(c httplimit.Checker) (string, func(), error) {
		h, err := service(c)
		if err != nil {
			return "", nil, err
		}
		server := httptest.NewServer(h)
		return server.URL, server.Close, nil
	}
}

func overFiber(c httplimit.Checker) (string, func(), error) {
	app, err := Fiber(c)
	if err != nil {
		return "", nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	go func() { _ = app.Listener(listener) }() // an error is that it has been shut down
	return "http://" + listener.Addr().String(), func() { _ = app.Shutdown() }, nil
}

func serve(t *testing.T, f family, c httplimit.Checker) (url string) {
	t.Helper()
	url, stop, err := f.serve(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return url
}

func limits(yaml string) *check.Checker {
	set, err := rules.Parse([]byte(yaml))
	if err != nil {
		log.Fatal(err)
	}
	c, err := check.New(check.Options{Rules: set}) // and go c.Run(ctx)
	if err != nil {
		log.Fatal(err)
	}
	return c
}

func get(url, user string) (*http.Response, string, error) {
	r, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return nil, "", err
	}
	r.Header.Set("X-User", user)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return res, string(body), err
}

// Each family lets two of a user's requests pass, with headers, and answers the third, and lets others be.
func TestFamilies(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			url := serve(t, f, limits("rules: [{name: per-user, key: [user], limit: 2/hour}]")) + "/hello/world"
			for i, want := range []int{200, 200, 429, 429} {
				res, body, err := get(url, "kristie")
				if err != nil {
					t.Fatal(err)
				}
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
			// One connection, many users: what a framework does with a request's memory afterwards changes no key.
			for i := range 100 {
				for range 2 {
					if res, _, err := get(url, fmt.Sprintf("user-with-a-long-name-that-is-no-short-key-%03d", i)); err != nil || res.StatusCode != 200 {
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
		url := serve(t, f, c)
		for _, path := range []string{"/hello/a", "/hello/b"} {
			if res, _, err := get(url+path, ""); err != nil || res.StatusCode != 200 {
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
