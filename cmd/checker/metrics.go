package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/offpath-io/offpath"
	"github.com/offpath-io/offpath/pkg/check"
)

// metrics are those of a member: a snapshot at each scrape.
type metrics struct {
	stats     func() offpath.Stats
	connected func() bool
	mostLive  int // keys
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("offpath_"+name, help, labels, nil)
}

var (
	decisionsDesc = describe("decisions_total",
		"Decisions, by the rule that decided.", "rule", "outcome")
	hitsDesc = describe("hits_total",
		"Hits by outcome. charged = answered + overflow + lost + cancelled + in flight + pending.",
		"rule", "outcome")
	falseDesc = describe("false_denials_total",
		"Estimated denials of hits that would have fitted, by more than max(1 hit, 2 % of the limit): "+
			"see docs/operations.md.", "rule")
	badCostsDesc = describe("bad_costs_total",
		"Hits with an invalid cost attribute. They cost what their caller said.", "rule")
	pendingDesc  = describe("hits_pending", "Hits that are in no report yet.", "rule")
	inFlightDesc = describe("hits_in_flight", "Hits in reports that are not answered yet.", "rule")
	reportsDesc  = describe("reports_total", "Reports by outcome.", "outcome")
	leasesDesc   = describe("checker_lease_requests_total", "Lease requests by outcome.", "outcome")
	settlingDesc = describe("checker_settlements_total", "Settlements by outcome.", "outcome")
	waitingDesc  = describe("waiting_requests", "Requests that wait for a permit.")
	alarmsDesc   = describe("alarms_received_total", "Alarms received, of keys near their limit.")

	unreadableDesc = describe("unreadable_messages_total", "Messages that could not be read.")
	liveDesc       = describe("live_keys",
		"Keys with hits pending or in flight, blocked keys, and keys used lately.")
	mostLiveDesc = describe("live_keys_max", "Bound of live keys. Hits of further keys overflow.")
	idleDesc     = describe("idle_keys", "Keys in the idle cache, roughly.")
	ageDesc      = describe("refresh_age_seconds",
		"Time since the last message of an aggregator. Absent until there was one.")
	freshnessDesc = describe("freshness",
		"1 for the degradation level of this checker, 0 for the others.", "state")
	natsDesc     = describe("nats_connected", "1 while connected to NATS, else 0.")
	checkersDesc = describe("fleet_checkers",
		"Live checkers of the fleet, by the latest message of an aggregator.")
	shardsDesc = describe("shards",
		"Shards of the fleet. 0 until there was a message of an aggregator.")
	offsetDesc = describe("clock_offset_seconds",
		"How far the fleet's time is ahead of this process' clock.")
)

// Describe describes the metrics of one snapshot.
func (m metrics) Describe(descs chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, descs) }

// Collect sends one snapshot.
func (m metrics) Collect(out chan<- prometheus.Metric) {
	s := m.stats()
	c := collector{out}
	c.rules(s.Rules)
	c.blocks(s.Blocks)
	c.caches(s.RulesCache, s.BlocksCache)
	c.labels(s.ByLabel)
	c.checker(s.Checker)
	c.gauge(mostLiveDesc, float64(m.mostLive))
	c.gauge(natsDesc, oneIf(m.connected()))
}

// collector sends the metrics of one snapshot.
type collector struct{ out chan<- prometheus.Metric }

func (c collector) gauge(desc *prometheus.Desc, value float64, labels ...string) {
	c.out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
}

func (c collector) count(desc *prometheus.Desc, value int64, labels ...string) {
	c.out <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(value), labels...)
}

func (c collector) labels(sums map[string]check.RuleStats) {
	for label, r := range sums {
		c.count(decisionsDesc, r.Allowed, label, "allowed")
		c.count(decisionsDesc, r.Denied, label, "denied")
		c.count(hitsDesc, r.Charged, label, "charged")
		c.count(hitsDesc, r.Answered, label, "answered")
		c.count(hitsDesc, r.Overflow, label, "overflow")
		c.count(hitsDesc, r.Lost, label, "lost")
		c.count(falseDesc, r.FalseDenials, label)
		c.count(badCostsDesc, r.BadCosts, label)
		c.count(hitsDesc, r.Cancelled, label, "cancelled")
		c.gauge(pendingDesc, float64(r.Pending), label)
		c.gauge(inFlightDesc, float64(r.InFlight), label)
	}
}

func (c collector) checker(s check.Stats) {
	c.count(reportsDesc, s.ReportsSent, "sent")
	c.count(reportsDesc, s.ReportsRepeated, "repeated")
	c.count(reportsDesc, s.ReportsAnswered, "answered")
	c.count(reportsDesc, s.ReportsGivenUp, "given_up")
	c.count(reportsDesc, s.ReportsUnsent, "unsent")
	c.count(leasesDesc, s.LeasesSent, "sent")
	c.count(leasesDesc, s.LeasesRepeated, "repeated")
	c.count(leasesDesc, s.LeasesAnswered, "answered")
	c.count(leasesDesc, s.LeasesRefused, "refused")
	c.count(settlingDesc, s.SettlementsTaken, "taken")
	c.count(settlingDesc, s.SettlementsAnswered, "answered")
	c.count(settlingDesc, s.SettlementsLost, "lost")
	c.gauge(waitingDesc, float64(s.Waiting))
	c.count(alarmsDesc, s.Alarms)
	c.count(unreadableDesc, s.Unreadable)
	c.gauge(liveDesc, float64(s.LiveKeys))
	c.gauge(idleDesc, float64(s.IdleKeys))
	if s.Heard > 0 {
		c.gauge(ageDesc, s.Heard.Seconds())
	}
	for _, f := range []check.Freshness{
		check.Local, check.Fresh, check.Stale, check.LocalShare, check.Outage,
	} {
		c.gauge(freshnessDesc, oneIf(s.Freshness == f), f.String())
	}
	c.gauge(checkersDesc, float64(s.Checkers))
	c.gauge(shardsDesc, float64(s.Shards))
	c.gauge(offsetDesc, s.ClockOffset.Seconds())
}

func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
