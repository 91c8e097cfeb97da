package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/offpath-io/offpath/loadtest/httpload"
)

// twoHundred asks for as many requests, each of which has to be answered, however late.
var twoHundred = strings.Fields("http --rate 1000 --duration 200ms --warmup 0s --timeout 1m")

// load runs a load, and returns what is measured.
func load(t *testing.T, args ...string) (r httpload.Result) {
	t.Helper()
	status, stdout, stderr := invoke(t.Context(), append(args, "--json", "-")...)
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || status != 0 {
		t.Fatalf("%q: status %d, error %v: %s", args, status, err, stderr)
	}
	return r
}

// TestHTTP: against something that answers as a checker does.
func TestHTTP(t *testing.T) {
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1)%2 == 0 {
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer server.Close()
	r := load(t, append(twoHundred, "--url", server.URL+"/v1/check")...)
	if r.Sent != 200 || r.OK200 == 0 || r.Limited429 == 0 || r.Latency.P9999 < r.Latency.P50 || r.Latency.P50 <= 0 {
		t.Errorf("got %+v", r)
	}
	failing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) > 210 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer failing.Close()
	withPassword := strings.Replace(failing.URL, "http://", "http://me:geheim@", 1)
	status, stdout, stderr := invoke(t.Context(), append(twoHundred, "--url", withPassword+"/v1/check")...)
	if status != 1 || !strings.Contains(stderr, "something else than a decision") || strings.Contains(stdout+stderr, "geheim") {
		t.Errorf("a server that fails: status %d, %q, %q", status, stdout, stderr)
	}
}

// TestGRPC: against a checker, as it answers Envoy.
func TestGRPC(t *testing.T) {
	address := serveEnvoy(t, "{name: r, match: {domain: shop}, key: [who], limit: 10/week, algorithm: fixed_window}")
	args := append(twoHundred, "--grpc", address, "--keys", "2")
	r := load(t, append(args, "--domain", "shop", "--descriptor", "who=w{key},x=")...)
	if r.Sent != 200 || r.OK200 != 2*10-1 || r.Limited429 != 181 || r.Options.URL != "" || r.Options.Channels != 1 { // one was the probe's
		t.Errorf("got %+v", r)
	}
	status, stdout, stderr := invoke(t.Context(), args...) // a domain without rules
	if status != 0 || !strings.Contains(stdout, "ShouldRateLimit at "+address+", of domain loadtest; channels: 1\n") ||
		!strings.Contains(stdout, "OVER_LIMIT           0") {
		t.Errorf("status %d, %s%s", status, stdout, stderr)
	}
	if status, _, stderr := invoke(t.Context(), "http", "--domain", "shop"); status != 1 || !strings.Contains(stderr, "are for grpc") {
		t.Errorf("without --grpc: status %d, %s", status, stderr)
	}
}
