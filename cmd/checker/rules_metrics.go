package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/offpath-io/offpath/internal/keeper"
)

// rulesMetrics tells Prometheus which rules are in force.
type rulesMetrics struct{ state func() keeper.State }

var (
	rulesDesc     = describe("rules", "Rules in force.")
	revisionDesc  = describe("rules_revision", "Revision of the rules in force: the bucket's, or the file's time in Unix milliseconds. 0 while there are none.")
	loadedDesc    = describe("rules_loaded_timestamp_seconds", "When the rules in force were loaded, as Unix time. Absent while there are none.")
	loadsDesc     = describe("rules_loads_total", "Sets of rules that were offered, by what became of them.", "outcome")
	refusedDesc   = describe("rules_refused", "1 while the newest rules are refused, and those before, if any, are in force; else 0.")
	reachableDesc = describe("rules_source_up", "1 while the rules' file or bucket can be read, else 0.")
)

// Describe sends nothing, which lets the collector say at each scrape what there is.
func (m rulesMetrics) Describe(descs chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, descs) }

// Collect sends one snapshot.
func (m rulesMetrics) Collect(out chan<- prometheus.Metric) {
	s := m.state()
	gauge := func(desc *prometheus.Desc, value float64) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value)
	}
	count := func(value int64, outcome string) {
		out <- prometheus.MustNewConstMetric(loadsDesc, prometheus.CounterValue, float64(value), outcome)
	}
	gauge(rulesDesc, float64(s.Rules))
	gauge(revisionDesc, float64(s.Revision))
	if s.InForce() {
		gauge(loadedDesc, float64(s.Loaded.UnixMilli())/1000)
	}
	count(s.Loads, "loaded")
	count(s.Refusals, "refused")
	gauge(refusedDesc, oneIf(s.Refused != nil))
	gauge(reachableDesc, oneIf(s.Trouble == nil))
}
