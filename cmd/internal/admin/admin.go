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

// Registry has a daemon's metrics. What is registered with it gets the label fleet.
type Registry struct {
	prometheus.Registerer
	prometheus.Gatherer
}

// NewRegistry returns a registry with what every daemon tells: Go's and the process' metrics, and
// offpath_build_info. The label fleet, whose value is the namespace, is in all metrics: one
// Prometheus may watch several fleets, and their alerts must not mix.
func NewRegistry(build version.Info, namespace string) Registry {
	all := prometheus.NewRegistry()
	r := Registry{prometheus.WrapRegistererWith(prometheus.Labels{"fleet": namespace}, all), all}
	r.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "offpath_build_info",
			Help:        "Always 1. The labels name the build.",
			ConstLabels: prometheus.Labels{"version": build.Version, "go_version": build.Go},
		}, func() float64 { return 1 }),
	)
	return r
}

// Readiness says whether a daemon can do its work at this moment. Detail is shown as JSON.
type Readiness func() (ready bool, detail any)

// Handler serves the metrics that are gathered on /metrics; 200 on /healthz for as long as the
// process runs; and on /readyz 200 while ready says so, else 503, with the detail.
func Handler(metrics prometheus.Gatherer, ready Readiness) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
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
