package admin

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/offpath-io/offpath/internal/tlsfiles"
	"github.com/offpath-io/offpath/internal/version"
)

func TestHandler(t *testing.T) {
	ready := false
	registry := NewRegistry(version.Info{Version: "v1", Go: "go1"}, "shop")
	handler := Handler(registry, func() (bool, any) { return ready, map[string]string{"waiting": "for Redis"} })
	for _, test := range []struct {
		method, path string
		ready        bool
		status       int
		body         string // in it
	}{
		{"GET", "/healthz", false, 200, `{"healthy":true}`},
		{"GET", "/readyz", false, 503, `{"waiting":"for Redis"}`},
		{"GET", "/readyz", true, 200, `{"waiting":"for Redis"}`},
		{"GET", "/metrics", true, 200, `offpath_build_info{fleet="shop",go_version="go1",version="v1"} 1`},
		{"GET", "/metrics", true, 200, `go_goroutines{fleet="shop"}`},
		{"HEAD", "/healthz", true, 200, ""},
		{"POST", "/readyz", true, 405, ""},
		{"GET", "/", true, 404, ""},
		{"GET", "/debug/pprof/", true, 404, ""},
	} {
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

func TestFileMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(FileMetrics(func() []tlsfiles.State {
		return []tlsfiles.State{
			{Name: "nats", Loads: 3, Refusals: 2, Trouble: errors.New("no"), Expires: time.Unix(1_800_000_000, 0)},
			{Name: "nats-password", Loads: 1},
		}
	}))
	want := `
# HELP offpath_files_expiry_timestamp_seconds When the first of the certificates, or credentials, in force expires, as Unix time.
# TYPE offpath_files_expiry_timestamp_seconds gauge
offpath_files_expiry_timestamp_seconds{files="nats"} 1.8e+09
# HELP offpath_files_loads_total Certificates, keys and secrets read from files, by what became of them.
# TYPE offpath_files_loads_total counter
offpath_files_loads_total{files="nats",outcome="loaded"} 3
offpath_files_loads_total{files="nats",outcome="refused"} 2
offpath_files_loads_total{files="nats-password",outcome="loaded"} 1
offpath_files_loads_total{files="nats-password",outcome="refused"} 0
# HELP offpath_files_refused 1 while the newest certificates, keys or secrets cannot be read or are refused, and those before are in force; else 0.
# TYPE offpath_files_refused gauge
offpath_files_refused{files="nats"} 1
offpath_files_refused{files="nats-password"} 0
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
}
