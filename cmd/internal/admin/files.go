package admin

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/offpath-io/offpath/internal/tlsfiles"
)

// FileMetrics tells Prometheus how it stands with the files that states speaks of, at each scrape.
// The label files is the name of a group of them, of which a daemon has a handful.
func FileMetrics(states func() []tlsfiles.State) prometheus.Collector { return fileMetrics{states} }

type fileMetrics struct{ states func() []tlsfiles.State }

var (
	loadsDesc = prometheus.NewDesc("offpath_files_loads_total",
		"Certificates, keys and secrets read from files, by what became of them.", []string{"files", "outcome"}, nil)
	refusedDesc = prometheus.NewDesc("offpath_files_refused",
		"1 while the newest certificates, keys or secrets cannot be read or are refused, and those before are in force; else 0.", []string{"files"}, nil)
	expiryDesc = prometheus.NewDesc("offpath_files_expiry_timestamp_seconds",
		"When the first of the certificates, or credentials, in force expires, as Unix time.", []string{"files"}, nil)
)

// Describe sends the descriptions.
func (m fileMetrics) Describe(descs chan<- *prometheus.Desc) {
	descs <- loadsDesc
	descs <- refusedDesc
	descs <- expiryDesc
}

// Collect sends one snapshot.
func (m fileMetrics) Collect(out chan<- prometheus.Metric) {
	for _, s := range m.states() {
		out <- prometheus.MustNewConstMetric(loadsDesc, prometheus.CounterValue, float64(s.Loads), s.Name, "loaded")
		out <- prometheus.MustNewConstMetric(loadsDesc, prometheus.CounterValue, float64(s.Refusals), s.Name, "refused")
		refused := 0.0
		if s.Trouble != nil {
			refused = 1
		}
		out <- prometheus.MustNewConstMetric(refusedDesc, prometheus.GaugeValue, refused, s.Name)
		if !s.Expires.IsZero() {
			out <- prometheus.MustNewConstMetric(expiryDesc, prometheus.GaugeValue, float64(s.Expires.Unix()), s.Name)
		}
	}
}
