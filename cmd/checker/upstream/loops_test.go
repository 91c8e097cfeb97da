package upstream

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// TestLoops: a proxy whose service is itself, or another proxy whose service it is, answers, and asks its limit once.
func TestLoops(t *testing.T) {
	for _, way := range []string{"http", "h2c"} {
		for _, length := range []int{1, 2} {
			var asked atomic.Int64
			var servers []*httptest.Server
			for range length {
				servers = append(servers, httptest.NewUnstartedServer(nil))
			}
			for i, s := range servers {
				o := options(t, way+"://"+servers[(i+1)%length].Listener.Addr().String())
				o.Limit = func(next http.Handler) http.Handler {
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if asked.Add(1) > 10 {
							w.WriteHeader(http.StatusTeapot)
							return
						}
						next.ServeHTTP(w, r)
					})
				}
				s.Config.Handler = New(o)
				Tune(s.Config)
				s.Start()
				t.Cleanup(s.Close)
			}
			r := request(t, "GET", servers[0].URL, nil)
			r.Header.Set("Connection", "Cdn-Loop") // which is to be taken off on the way, and is not
			response, body := do(t, client(t, 1), r)
			if response.StatusCode != http.StatusLoopDetected || !strings.Contains(body, `"status":508`) || asked.Load() != int64(length) {
				t.Errorf("%s, %d proxies: status %d, %d times asked: %s", way, length, response.StatusCode, asked.Load(), body)
			}
		}
	}
}

// TestLoopHeader: others that have written themselves down stay, and are not taken for this proxy.
func TestLoopHeader(t *testing.T) {
	at := start(t, options(t, service(t, "http", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, strings.Join(r.Header.Values(loopHeader), " | "))
	})))
	for _, tt := range []struct {
		before []string
		want   string // and then this proxy
	}{
		{nil, ""},
		{[]string{"a.example"}, "a.example, "},
		{[]string{"a.example; x=\"1,2\"", "b,offpath-"}, "a.example; x=\"1,2\", b,offpath-, "},
	} {
		r := request(t, "GET", at, nil)
		r.Header[loopHeader] = tt.before
		response, body := do(t, client(t, 1), r)
		mark, ok := strings.CutPrefix(body, tt.want)
		if response.StatusCode != http.StatusOK || !ok || !strings.HasPrefix(mark, "offpath-") || strings.ContainsAny(mark, ", ") {
			t.Errorf("%q: %d %q", tt.before, response.StatusCode, body)
		}
	}
}
