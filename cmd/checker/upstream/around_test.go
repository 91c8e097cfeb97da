package upstream

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// limited is a limit that tells of itself in the answer, as the real one does.
func limited(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Ratelimit"] = []string{"ours"}
		next.ServeHTTP(w, r)
	})
}

// TestEarlyAnswers: an answer that comes before the final one takes nothing from that.
func TestEarlyAnswers(t *testing.T) {
	for _, way := range ways {
		target := service(t, way.scheme, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", "</a.css>")
			for range 2 {
				w.WriteHeader(http.StatusEarlyHints)
			}
			if w.Header().Set("RateLimit", "its"); r.URL.Path == "/broken" {
				panic(http.ErrAbortHandler)
			}
		})
		o := options(t, target)
		o.Limit = limited
		at := start(t, o)
		for path, want := range map[string][]string{"/": {"ours", "its"}, "/broken": {"ours"}} {
			response, _ := do(t, client(t, way.client), request(t, "GET", at+path, nil))
			if got := response.Header["Ratelimit"]; !slices.Equal(got, want) {
				t.Errorf("%+v: %s: RateLimit %q, want %q", way, path, got, want)
			}
		}
	}
}

// TestTrailersOfRequests: what a client says after its body arrives, unless it claims who it is.
func TestTrailersOfRequests(t *testing.T) {
	for _, way := range ways {
		target := service(t, way.scheme, func(w http.ResponseWriter, r *http.Request) {
			_, err := io.Copy(io.Discard, r.Body)
			fmt.Fprint(w, r.Trailer, " ", err)
		})
		at := start(t, options(t, target))
		for name, want := range map[string]string{"X-Sum": "map[X-Sum:[1]] <nil>", "X-Forwarded-For": "map[] <nil>"} {
			r := request(t, "POST", at, io.MultiReader(strings.NewReader("body"))) // of unknown length
			r.Trailer = http.Header{name: {"1"}}
			if _, body := do(t, client(t, way.client), r); body != want {
				t.Errorf("%+v: %s: %s, want %s", way, name, body, want)
			}
		}
	}
}

// TestOtherUpgrades: within another protocol than WebSockets, HTTP/2 for example, requests would come that nobody limits.
func TestOtherUpgrades(t *testing.T) {
	target := service(t, "http", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "upgrade %q connection %q", r.Header["Upgrade"], r.Header["Connection"])
	})
	at := start(t, options(t, target))
	for _, protocol := range []string{"h2c", "H2C", "h2c, websocket", "websocket, h2c", "HTTP/2.0", "TLS/1.0"} {
		conn := dial(t, at)
		fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: %s\r\nHTTP2-Settings: AAMAAABk\r\n\r\n", protocol)
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		if want := "upgrade [] connection []"; string(body) != want || err != nil {
			t.Errorf("%s: %s, %v; want %s", protocol, body, err, want)
		}
	}
}

// TestOddTargets: a target without a path, which no rule of paths would see, does not reach the service.
func TestOddTargets(t *testing.T) {
	target := service(t, "http", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.RequestURI, " of ", r.Host) })
	at := start(t, options(t, target))
	for line, want := range map[string]string{
		"GET x:login": `400 {"title":"Bad Request",`, "GET mailto:a@b": `400 {"title"`, "GET http:login": `400 {"title"`,
		"GET http://other/login?a": "200 /login?a of other", "GET http://other": "200 / of other", "GET /login#a": "200 /login%23a of a",
	} {
		conn := dial(t, at)
		fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: a\r\n\r\n", line)
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatal(err)
		}
		if got := fmt.Sprint(response.StatusCode, " ", string(body)); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
}
