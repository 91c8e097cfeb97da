package admin

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestRequests: each answer is counted once, by what its client got, and statuses that anybody may
// choose do not make series without bound.
func TestRequests(t *testing.T) {
	registry := prometheus.NewRegistry()
	requests := NewRequests(registry)
	server := httptest.NewServer(requests.HTTP("http", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var status int
		switch _, err := fmt.Sscan(r.URL.Path[1:], &status); {
		case r.URL.Path == "/nothing":
		case r.URL.Path == "/text":
			_, _ = w.Write([]byte("text"))
		case r.URL.Path == "/hints":
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusTooManyRequests)
		case r.URL.Path == "/abort":
			panic(http.ErrAbortHandler)
		case r.URL.Path == "/flush":
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
		case r.URL.Path == "/hijack":
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = conn.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"))
			_ = conn.Close()
		case err == nil:
			w.WriteHeader(status)
		default:
			t.Errorf("what is %s?", r.URL.Path)
		}
	})))
	paths := []string{"nothing", "text", "flush", "hints", "abort", "hijack", "429", "503"}
	for status := 400; status < 600; status++ {
		paths = append(paths, fmt.Sprint(status))
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // on a kept one it asks again
	for _, path := range paths {
		answer, err := client.Get(server.URL + "/" + path)
		if err == nil {
			_ = answer.Body.Close()
		} else if path != "abort" {
			t.Error(path, err)
		}
	}
	server.Close() // no request is still being counted
	for code, want := range map[string]float64{"200": 3, "101": 1, "429": 3, aborted: 1, "503": 2, "418": 0, "4xx": 100 - 10, "5xx": 100 - 4} {
		if got := testutil.ToFloat64(requests.total.WithLabelValues("http", code)); got != want {
			t.Errorf("code %s: %v requests, want %v", code, got, want)
		}
	}
	if n := testutil.CollectAndCount(requests.total); n > 25 {
		t.Errorf("%d series", n)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if n := families[0].Metric[0].GetHistogram().GetSampleCount(); int(n) != len(paths) {
		t.Errorf("%d requests of %d are timed", n, len(paths))
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
}

// stubborn is a writer whose connection cannot be taken over.
type stubborn struct{ *httptest.ResponseRecorder }

func (stubborn) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return nil, nil, errors.New("the connection has gone")
}

// TestRequestsThatFailToHijack: an attempt that fails is counted by what its client got.
func TestRequestsThatFailToHijack(t *testing.T) {
	requests := NewRequests(prometheus.NewRegistry())
	h := requests.HTTP("http", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if _, _, err := http.NewResponseController(w).Hijack(); err == nil {
			t.Error("it was taken over")
		}
		w.WriteHeader(http.StatusInternalServerError)
	}))
	h.ServeHTTP(stubborn{httptest.NewRecorder()}, httptest.NewRequest("GET", "/", nil))
	for code, want := range map[string]float64{"101": 0, "500": 1} {
		if got := testutil.ToFloat64(requests.total.WithLabelValues("http", code)); got != want {
			t.Errorf("code %s: %v requests, want %v", code, got, want)
		}
	}
}

// TestRequestsPassOn: what handlers may do with their writer stays possible, and impossible.
func TestRequestsPassOn(t *testing.T) {
	plain := NewRequests(prometheus.NewRegistry()).HTTP("http", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if _, _, err := http.NewResponseController(w).Hijack(); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("a recorder was taken over: %v", err)
		}
		if _, ok := w.(net.Conn); ok {
			t.Error("it became something else")
		}
		_, _ = w.Write([]byte("x"))
	}))
	w := httptest.NewRecorder()
	plain.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if w.Code != 200 || strings.TrimSpace(w.Body.String()) != "x" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
