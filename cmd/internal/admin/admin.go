// Package admin is what a daemon serves to its operators: /metrics, /healthz and /readyz.
package admin

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/offpath-io/offpath/cmd/internal/reply"
	"github.com/offpath-io/offpath/internal/version"
)

// NewRegistry returns a registry with what every daemon tells: Go's and the process' metrics, and
// offpath_build_info.
func NewRegistry(build version.Info) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "offpath_build_info",
			Help:        "Always 1. The labels name the build.",
			ConstLabels: prometheus.Labels{"version": build.Version, "go_version": build.Go},
		}, func() float64 { return 1 }),
	)
	return registry
}

// Readiness says whether a daemon can do its work at this moment. Detail is shown as JSON.
type Readiness func() (ready bool, detail any)

// Handler serves the metrics that the registry gathers on /metrics; 200 on /healthz for as long as
// the process runs; and on /readyz 200 while ready says so, else 503, with the detail.
func Handler(registry *prometheus.Registry, ready Readiness) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		reply.JSON(w, http.StatusOK, map[string]bool{"healthy": true})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		status := http.StatusOK
		ok, detail := ready()
		if !ok {
			status = http.StatusServiceUnavailable
		}
		reply.JSON(w, status, detail)
	})
	return mux
}
