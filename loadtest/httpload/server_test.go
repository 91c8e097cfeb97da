package httpload

import (
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/offpath-io/offpath/cmd/checker/api"
	"github.com/offpath-io/offpath/internal/testing/rulestest"
)

// serve starts a real server for the length of a test, and counts its connections.
func serve(t *testing.T, handler http.HandlerFunc) (url string, connections *atomic.Int64) {
	t.Helper()
	connections = new(atomic.Int64)
	server := httptest.NewUnstartedServer(handler)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	return server.URL + api.Path, connections
}

// Every request is sent once, with the body that the seed says, over no more connections than asked
// for.
func TestEveryRequestIsSentOnce(t *testing.T) {
	var mu sync.Mutex
	got := make(map[string]int)
	url, connections := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		got[string(body)]++
		if err != nil || r.Method != http.MethodPost || r.URL.Path != api.Path || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s %v, %v", r.Method, r.URL, r.Header, err)
		}
		io.WriteString(w, strings.Repeat("x", 10_000)) // has to be drained, or the connection is lost
	})
	o := Options{
		URL: url, Rate: 2000, Warmup: 50 * time.Millisecond, Duration: 150 * time.Millisecond,
		Connections: 8, Keys: 50, Seed: 4, Timeout: time.Minute,
	}
	var last, total int64
	r, err := Run(t.Context(), o, func(d, n int64) {
		if d < last || d > n {
			t.Errorf("progress %d of %d after %d", d, n, last)
		}
		last, total = d, n
	})
	must(t, err)
	o = o.withDefaults()
	bodies, err := o.bodies()
	must(t, err)
	want := map[string]int{string(bodies[0]): 1} // the probe
	for s, i := newSchedule(o), int64(0); i < s.total; i++ {
		want[string(bodies[s.key(i)])]++
	}
	if !maps.Equal(got, want) {
		t.Errorf("requests by what they say: %v, want %v", got, want)
	}
	if len(got) != o.Keys || r.Sent != 300 || r.OK200 != 300 || last != 400 || total != 400 || r.Interrupted || r.Unanswered != 0 {
		t.Errorf("progress %d of %d, result %+v", last, total, r)
	}
	if n := connections.Load(); n > int64(o.Connections) {
		t.Errorf("%d connections, want %d at most", n, o.Connections)
	}
	if r.Achieved <= 0 || r.Achieved > o.Rate || r.Latency.P50 < r.Service.P50 || r.Service.P50 <= 0 {
		t.Errorf("result %+v", r)
	}
}

// Answers are counted by status, and what has none as an error, without a retry.
func TestCounts(t *testing.T) {
	var requests atomic.Int64
	url, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch n := requests.Add(1); {
		case n == 1 || n%5 == 0: // the first is the probe
		case n%5 == 1:
			w.WriteHeader(http.StatusTooManyRequests)
		case n%5 == 2:
			http.Error(w, "come back later", http.StatusServiceUnavailable)
		case n%5 == 3:
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		default:
			panic(http.ErrAbortHandler)
		}
	})
	isCounted(t, Options{URL: url}, [2]int{503, 302}, `answered 503 Service Unavailable: "come back later"`)
	if requests.Load() != 101 {
		t.Errorf("the server had %d requests, want 100 and the probe", requests.Load())
	}
}

// isCounted loads a server that allows, limits, gives two other answers and gives none, a fifth of
// the time each.
func isCounted(t *testing.T, o Options, others [2]int, firstError string) {
	t.Helper()
	o.Rate, o.Duration, o.Connections, o.Timeout = 1000, 100*time.Millisecond, 1, time.Hour
	r, err := Run(t.Context(), o, nil)
	must(t, err)
	if r.Sent != 100 || r.OK200 != 20 || r.Limited429 != 20 || r.Errors != 20 ||
		len(r.Other) != 2 || r.Other[others[0]] != 20 || r.Other[others[1]] != 20 {
		t.Errorf("%+v", r)
	}
	if r.FirstError != firstError {
		t.Errorf("first error %s, want %s", r.FirstError, firstError)
	}
	if r.Latency.P75 >= time.Hour || r.Latency.P90 < 59*time.Minute || r.Service.P90 < 59*time.Minute {
		t.Errorf("a fifth of the requests counts as an hour: %+v, %+v", r.Latency, r.Service)
	}
}

// The checker's own server understands what is sent, by rule and by attributes, and limits each
// key.
func TestDoor(t *testing.T) {
	const rules = "rules: [{name: per-user, key: [user], limit: 5/week, algorithm: fixed_window}]"
	for _, o := range []Options{{Rule: "per-user"}, {Attributes: map[string]string{"user": "<{key}>", "api": "x"}}, {}} {
		url, _ := serve(t, api.New(rulestest.Checker(t, rules), 0).ServeHTTP)
		o.URL, o.Rate, o.Duration, o.Keys, o.Timeout = url, 1000, 100*time.Millisecond, 2, time.Minute
		r, err := Run(t.Context(), o, nil)
		if err != nil || r.OK200 != 2*5-1 || r.Limited429 != 91 || r.Sent != 100 { // the probe took one
			t.Errorf("%+v, %v", r, err)
		}
	}
}

// Without a checker there is no load, but advice.
func TestNoChecker(t *testing.T) {
	answer := func(status int, text string) string {
		url, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "/v2/check")
			w.WriteHeader(status)
			io.WriteString(w, text)
		})
		return url
	}
	broken, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100")
		io.WriteString(w, "half")
	})
	for _, test := range []struct{ url, want string }{
		{"http://127.0.0.1:1", "connection refused"}, // a port that no other server gets
		{answer(404, "404 page not found\n"), `answered 404 Not Found: "404 page not found"`},
		{answer(400, `{"error":"there is no such rule"}`), "there is no such rule"},
		{answer(301, ""), "answered 301"},
		{answer(204, ""), "answered 204"},
		{answer(500, strings.Repeat("x", 100_000)), "answered 500"},
		{broken, "unexpected EOF"},
	} {
		called := false
		_, err := Run(t.Context(), Options{URL: test.url, Rate: 1000}, func(int64, int64) { called = true })
		if err == nil || !strings.Contains(err.Error(), test.want) ||
			!strings.Contains(err.Error(), "tart one: go run ./cmd/offpath demo") {
			t.Errorf("%v, want %q and what to start", err, test.want)
		}
		if called || err != nil && len(err.Error()) > 500 {
			t.Errorf("loaded: %v, error %v", called, err)
		}
	}
}
