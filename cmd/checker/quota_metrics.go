package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/offpath-io/offpath/pkg/envoyquota"
)

// quotaMetrics tells Prometheus what the quota service does for Envoys that decide by themselves. Domains and buckets are in no label.
type quotaMetrics struct{ stats func() envoyquota.Stats }

var (
	quotaStreamsDesc  = describe("quota_streams", "Envoys that are connected to the quota service.")
	quotaBucketsDesc  = describe("quota_buckets", "Buckets of these Envoys.")
	quotaOpenedDesc   = describe("quota_streams_total", "Streams of the quota service: opened, refused for lack of room, and failed for what Envoys sent or did not.", "outcome")
	quotaRequestsDesc = describe("quota_requests_total", "Requests that Envoys decided by their quotas, as they reported. Allowed ones are in the charged hits, too.", "outcome")
	quotaAwayDesc     = describe("quota_buckets_turned_away_total", "Reports of buckets that there was no room for, or that were too long.")
)

// Describe sends the descriptions.
func (m quotaMetrics) Describe(descs chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, descs) }

// Collect sends one snapshot.
func (m quotaMetrics) Collect(out chan<- prometheus.Metric) {
	s := m.stats()
	tell := func(desc *prometheus.Desc, kind prometheus.ValueType, value int64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, kind, float64(value), labels...)
	}
	tell(quotaStreamsDesc, prometheus.GaugeValue, int64(s.Streams))
	tell(quotaBucketsDesc, prometheus.GaugeValue, int64(s.Buckets))
	tell(quotaOpenedDesc, prometheus.CounterValue, s.Opened, "opened")
	tell(quotaOpenedDesc, prometheus.CounterValue, s.Refused, "refused")
	tell(quotaOpenedDesc, prometheus.CounterValue, s.Failed, "failed")
	tell(quotaRequestsDesc, prometheus.CounterValue, s.Allowed, "allowed")
	tell(quotaRequestsDesc, prometheus.CounterValue, s.Denied, "denied")
	tell(quotaAwayDesc, prometheus.CounterValue, s.TurnedAway)
}
