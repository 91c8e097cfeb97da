package checker

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/offpath-io/offpath"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/envoylimit"
	"github.com/offpath-io/offpath/pkg/envoyquota"
)

// metrics are those of a participant: a snapshot at each scrape.
type metrics struct {
	stats      func() offpath.Stats
	connected  func() bool
	reconnects func() uint64
	mostLive   int // keys
}

// Describe describes the metrics of one snapshot.
func (m metrics) Describe(descs chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, descs) }

// Collect sends one snapshot.
func (m metrics) Collect(out chan<- prometheus.Metric) {
	s, c := m.stats(), collector{out}
	c.rules(s.Rules)
	c.blocks(s.Blocks)
	c.caches(s.RulesCache, s.BlocksCache)
	c.labels(s.ByLabel)
	c.checker(s.Checker)
	c.gauge("live_keys_max", "Bound of live keys. Hits of further keys overflow.",
		float64(m.mostLive))
	c.gauge("nats_connected", "1 while connected to NATS, else 0.", oneIf(m.connected()))
	c.count("nats_reconnects_total", "How often the connection to NATS was made again.",
		int64(m.reconnects()))
}

// quotaMetrics are the metrics of the quota service. No label has a domain or a bucket.
type quotaMetrics struct{ stats func() envoyquota.Stats }

// Describe describes the metrics of one snapshot.
func (m quotaMetrics) Describe(descs chan<- *prometheus.Desc) {
	prometheus.DescribeByCollect(m, descs)
}

// Collect sends one snapshot.
func (m quotaMetrics) Collect(out chan<- prometheus.Metric) {
	s, c := m.stats(), collector{out}
	c.gauge("quota_streams", "Envoys that are connected to the quota service.", float64(s.Streams))
	c.gauge("quota_buckets", "Buckets of these Envoys.", float64(s.Buckets))
	c.outcomes("quota_streams_total",
		"Streams of the quota service: opened, refused for lack of room, or failed.",
		outcomes{"opened": s.Opened, "refused": s.Refused, "failed": s.Failed})
	c.outcomes("quota_requests_total",
		"Requests that Envoys decided by their quotas. Allowed ones are charged hits, too.",
		outcomes{"allowed": s.Allowed, "denied": s.Denied})
	c.count("quota_buckets_turned_away_total",
		"Reports of buckets that were too long, or beyond the bound of buckets.", s.TurnedAway)
}

// envoyMetrics are the hits of descriptors of files of envoyproxy/ratelimit.
type envoyMetrics struct{ stats func() []envoylimit.Hits }

var (
	envoyHitsDesc = describe("envoy_hits_total",
		"Hits of a descriptor of a file of envoyproxy/ratelimit: within and over its limit.",
		"domain", "descriptor")
	envoyWithinDesc = describe("envoy_within_limit_hits_total",
		"Those of these hits that are within the limit.", "domain", "descriptor")
	envoyNearDesc = describe("envoy_near_limit_hits_total",
		"Those of the hits within the limit that are above 80 % of it.", "domain", "descriptor")
	envoyOverDesc = describe("envoy_over_limit_hits_total",
		"Those of these hits that are over the limit.", "domain", "descriptor")
	envoyShadowDesc = describe("envoy_shadow_mode_hits_total",
		"Those of the hits over the limit that pass, since it is in shadow.", "domain", "descriptor")
)

// Describe describes the metrics of one snapshot.
func (m envoyMetrics) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		envoyHitsDesc, envoyWithinDesc, envoyNearDesc, envoyOverDesc, envoyShadowDesc,
	} {
		descs <- d
	}
}

// Collect sends one snapshot.
func (m envoyMetrics) Collect(out chan<- prometheus.Metric) {
	c := collector{out}
	for _, h := range m.stats() {
		c.countOf(envoyHitsDesc, h.Total, h.Domain, h.Descriptor)
		c.countOf(envoyWithinDesc, h.Within, h.Domain, h.Descriptor)
		c.countOf(envoyNearDesc, h.Near, h.Domain, h.Descriptor)
		c.countOf(envoyOverDesc, h.Over, h.Domain, h.Descriptor)
		c.countOf(envoyShadowDesc, h.Shadow, h.Domain, h.Descriptor)
	}
}

func newReportTimes() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "offpath_report_seconds",
		Help: "How long reports took until they were answered.",
		Buckets: []float64{
			0.001, 0.002, 0.003, 0.004, 0.006, 0.008, 0.012, 0.016, 0.024, 0.032, 0.048, 0.064, 0.096, 0.128,
			0.25, 0.5, 1, 2, 4, 8,
		},
	})
}

// timed observes how long each report takes, and has it followed by next, if there is one.
func timed(took prometheus.Observer, next check.Tracing) check.Tracing {
	return func(shard uint32, sequence uint64, keys int) (string, func(check.TraceEvent)) {
		traceparent, follow := "", (func(check.TraceEvent))(nil)
		if next != nil {
			traceparent, follow = next(shard, sequence, keys)
		}
		sent := time.Now()
		return traceparent, func(e check.TraceEvent) {
			if e == check.TraceAnswered {
				took.Observe(time.Since(sent).Seconds())
			}
			if follow != nil { // this report is traced
				follow(e)
			}
		}
	}
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("offpath_"+name, help, labels, nil)
}

// collector sends the metrics of one snapshot.
type collector struct{ out chan<- prometheus.Metric }

// outcomes are counts by the label outcome.
type outcomes map[string]int64

func (c collector) gaugeOf(desc *prometheus.Desc, value float64, labels ...string) {
	c.out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
}

func (c collector) countOf(desc *prometheus.Desc, value int64, labels ...string) {
	c.out <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(value), labels...)
}

func (c collector) gauge(name, help string, value float64) { c.gaugeOf(describe(name, help), value) }

func (c collector) count(name, help string, value int64) { c.countOf(describe(name, help), value) }

func (c collector) outcomes(name, help string, counts outcomes) {
	desc := describe(name, help, "outcome")
	for outcome, n := range counts {
		c.countOf(desc, n, outcome)
	}
}

var (
	decisionsDesc = describe("decisions_total",
		"Decisions, by the rule that decided.", "rule", "outcome")
	hitsDesc = describe("hits_total",
		"Hits by outcome. charged = answered + overflow + lost + cancelled + in flight + pending.",
		"rule", "outcome")
	falseDesc = describe("false_denials_total",
		"Estimated denials of hits that would have fitted, by more than max(1 hit, 2 % of the limit): "+
			"see docs/operations_metrics.md.", "rule")
	badCostsDesc = describe("bad_costs_total",
		"Hits with an invalid cost attribute. They cost what their caller said.", "rule")
	pendingDesc   = describe("hits_pending", "Hits that are in no report yet.", "rule")
	inFlightDesc  = describe("hits_in_flight", "Hits in reports that are not answered yet.", "rule")
	freshnessDesc = describe("freshness",
		"1 for the degradation level of this checker's worst shard, 0 for the others.", "state")
	shardsDesc = describe("shard_freshness",
		"Shards on each degradation level of this checker.", "state")
)

func (c collector) labels(sums map[string]check.RuleStats) {
	for label, r := range sums {
		c.countOf(decisionsDesc, r.Allowed, label, "allowed")
		c.countOf(decisionsDesc, r.Denied, label, "denied")
		c.countOf(hitsDesc, r.Charged, label, "charged")
		c.countOf(hitsDesc, r.Answered, label, "answered")
		c.countOf(hitsDesc, r.Overflow, label, "overflow")
		c.countOf(hitsDesc, r.Lost, label, "lost")
		c.countOf(falseDesc, r.FalseDenials, label)
		c.countOf(badCostsDesc, r.BadCosts, label)
		c.countOf(hitsDesc, r.Cancelled, label, "cancelled")
		c.gaugeOf(pendingDesc, float64(r.Pending), label)
		c.gaugeOf(inFlightDesc, float64(r.InFlight), label)
	}
}

func (c collector) checker(s check.Stats) {
	c.outcomes("reports_total", "Reports by outcome.", outcomes{
		"sent": s.ReportsSent, "repeated": s.ReportsRepeated, "answered": s.ReportsAnswered,
		"given_up": s.ReportsGivenUp, "unsent": s.ReportsUnsent,
	})
	c.outcomes("checker_lease_requests_total", "Lease requests by outcome.", outcomes{
		"sent": s.LeasesSent, "repeated": s.LeasesRepeated, "answered": s.LeasesAnswered,
		"refused": s.LeasesRefused,
	})
	c.outcomes("checker_settlements_total", "Settlements by outcome.", outcomes{
		"taken": s.SettlementsTaken, "answered": s.SettlementsAnswered, "lost": s.SettlementsLost,
	})
	c.gauge("waiting_requests", "Requests that wait for a permit.", float64(s.Waiting))
	c.count("alarms_received_total", "Alarms received, of keys near their limit.", s.Alarms)
	c.count("unreadable_messages_total", "Messages that could not be read.", s.Unreadable)
	c.count("store_losses_total", "How often Redis was found to have lost a shard's data.", s.StoreLosses)
	c.gauge("store_last_loss_timestamp_seconds",
		"When Redis was last found to have lost a shard's data, in Unix seconds. 0 if that is not known to have happened.",
		float64(s.LastStoreLoss)/1e9)
	c.count("unmatched_requests_total", "Requests that no rule matched.", s.Unmatched)
	c.gauge("live_keys", "Keys with hits pending or in flight, blocked keys, and keys used lately.",
		float64(s.LiveKeys))
	c.gauge("idle_keys", "Keys in the idle cache, roughly.", float64(s.IdleKeys))
	if s.Heard > 0 {
		c.gauge("refresh_age_seconds",
			"Time since the last message of an aggregator, other than refusals. Absent until there was one.",
			s.Heard.Seconds())
	}
	for f := check.Local; f <= check.Outage; f++ {
		c.gaugeOf(freshnessDesc, oneIf(s.Freshness == f), f.String())
		c.gaugeOf(shardsDesc, float64(s.ShardFreshness[f]), f.String())
	}
	c.gauge("fleet_checkers",
		"Live checkers of the fleet, by the latest aggregator that knew, or as expected if that is more.",
		float64(s.Checkers))
	c.gauge("shards", "Shards of the fleet. 0 until there was a message of an aggregator.",
		float64(s.Shards))
	c.gauge("clock_offset_seconds",
		"How far the fleet's time is ahead of this process' clock.", s.ClockOffset.Seconds())
}

func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
