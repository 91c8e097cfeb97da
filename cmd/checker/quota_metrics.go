package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/offpath-io/offpath/pkg/envoyquota"
)

// quotaMetrics are the metrics of the quota service. No label has a domain or a bucket.
type quotaMetrics struct{ stats func() envoyquota.Stats }

var (
	quotaStreamsDesc = describe("quota_streams", "Envoys that are connected to the quota service.")
	quotaBucketsDesc = describe("quota_buckets", "Buckets of these Envoys.")
	quotaOpenedDesc  = describe("quota_streams_total",
		"Streams of the quota service: opened, refused for lack of room, or failed.", "outcome")
	quotaRequestsDesc = describe("quota_requests_total",
		"Requests that Envoys decided by their quotas. Allowed ones are charged hits, too.", "outcome")
	quotaAwayDesc = describe("quota_buckets_turned_away_total",
		"Reports of buckets that were too long, or beyond the bound of buckets.")
)

// Describe describes the metrics of one snapshot.
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
