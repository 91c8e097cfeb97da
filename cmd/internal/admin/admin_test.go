package admin

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/offpath-io/offpath/internal/version"
)

func TestHandler(t *testing.T) {
	ready := false
	registry := NewRegistry(version.Info{Version: "v1", Go: "go1"})
	handler := Handler(registry, func() (bool, any) { return ready, map[string]string{"waiting": "for Redis"} })
	tests := []struct {
		method, path string
		ready        bool
		status       int
		body         string // in it
	}{
		{"GET", "/healthz", false, 200, `{"healthy":true}`},
		{"GET", "/readyz", false, 503, `{"waiting":"for Redis"}`},
		{"GET", "/readyz", true, 200, `{"waiting":"for Redis"}`},
		{"GET", "/metrics", true, 200, `offpath_build_info{go_version="go1",version="v1"} 1`},
		{"GET", "/metrics", true, 200, "go_goroutines"},
		{"HEAD", "/healthz", true, 200, ""},
		{"POST", "/readyz", true, 405, ""},
		{"GET", "/", true, 404, ""},
		{"GET", "/debug/pprof/", true, 404, ""},
	}
	for _, test := range tests {
		ready = test.ready
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(test.method, test.path, http.NoBody))
		if w.Code != test.status || !strings.Contains(w.Body.String(), test.body) {
			t.Errorf("%s %s: %d %.200s", test.method, test.path, w.Code, w.Body)
		}
	}
	if problems, err := testutil.GatherAndLint(registry, "offpath_build_info"); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
}
