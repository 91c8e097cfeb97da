package admin

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// BenchmarkRequests is what it costs to count and time a request, beside a handler that is not
// counted.
func BenchmarkRequests(b *testing.B) {
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	for name, handler := range map[string]http.Handler{
		"plain": answer, "counted": NewRequests(prometheus.NewRegistry()).HTTP("http", answer),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			w, r := httptest.NewRecorder(), httptest.NewRequest("POST", "/v1/check", http.NoBody)
			for b.Loop() {
				handler.ServeHTTP(w, r)
			}
		})
	}
}
