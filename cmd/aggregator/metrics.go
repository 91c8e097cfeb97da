package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/offpath-io/offpath/cmd/internal/rulelabel"
	"github.com/offpath-io/offpath/pkg/aggregate"
)

// applies measures each call of the store, and counts by rule what was applied.
type applies struct {
	took   prometheus.Histogram
	hits   *prometheus.CounterVec
	labels rulelabel.Labels
}

func newApplies() *applies {
	return &applies{
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "offpath_apply_seconds",
			Help:    "How long the store took to apply a fold.",
			Buckets: prometheus.ExponentialBuckets(0.00025, 2, 14), // 0.25 ms to 2 s
		}),
		hits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "offpath_hits_total",
			Help: "Hits that this aggregator applied, by what became of them.",
		}, []string{"rule", "outcome"}),
	}
}

// observe is for aggregate.Options.OnApply. A fold that the store applied without saying so is not in
// the hits; the ledger has it.
func (a *applies) observe(info aggregate.ApplyInfo) {
	a.took.Observe(info.Took.Seconds())
	if info.Err != nil || info.Repeated > 0 {
		return
	}
	for i, tally := range info.Fold.Ledger {
		rule := info.Fold.Rules[i].Name
		if sum := tally.Counted + tally.Late + tally.Refused; sum > 0 {
			a.labels.Assign([]rulelabel.Activity{{Rule: rule, Count: sum}})
			a.count(a.labels.Of(rule), tally)
		}
	}
}

func (a *applies) count(label string, t aggregate.Tally) {
	a.hits.WithLabelValues(label, "counted").Add(float64(t.Counted))
	a.hits.WithLabelValues(label, "late").Add(float64(t.Late))
	a.hits.WithLabelValues(label, "refused").Add(float64(t.Refused))
}

// metrics tells Prometheus what the worker's snapshots say, at each scrape.
type metrics struct {
	worker    *aggregate.Worker
	connected func() bool
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("offpath_"+name, help, labels, nil)
}

var (
	reportsDesc = describe("reports_total", "Reports received, and what became of them.", "outcome")
	waitingDesc = describe("reports_waiting", "Reports that wait to be folded.")
	foldsDesc   = describe("folds_total", "Folds applied.")
	keysDesc    = describe("folded_keys_total", "Keys in the folds applied.")
	twiceDesc   = describe("duplicate_reports_total", "Reports that had been counted before, and were only answered.")
	errorsDesc  = describe("apply_errors_total", "Folds that the store refused or did not answer.")
	leasesDesc  = describe("lease_requests_total", "Lease requests received, and what became of them.", "outcome")
	permitsDesc = describe("permits_total", "Permits granted to checkers, and returned by them.", "outcome")
	refusalDesc = describe("lease_errors_total", "Lease folds that the store refused or did not answer.")
	settleDesc  = describe("settlements_total", "Settlements of hits' true costs received, and what became of them.", "outcome")
	alarmsDesc  = describe("alarms_total", "Alarms sent, of keys near their limit.")
	natsDesc    = describe("nats_connected", "1 while connected to NATS, else 0.")
	redisDesc   = describe("redis_connected", "1 while Redis answers, as the last calls went, else 0.")
	liveDesc    = describe("live_checkers", "Checkers that have said hello lately.")
	shardsDesc  = describe("shards", "Shards of the fleet. 0 until Redis has been reached.")
)

// Describe sends nothing but what Collect does.
func (m *metrics) Describe(descs chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, descs) }

// Collect sends one snapshot.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	s := m.worker.Stats()
	gauge := func(desc *prometheus.Desc, value float64) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value)
	}
	count := func(desc *prometheus.Desc, value int64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(value), labels...)
	}
	count(reportsDesc, s.Reports, "received")
	count(reportsDesc, s.Answered, "answered")
	count(reportsDesc, s.Malformed, "malformed")
	count(reportsDesc, s.Refused, "refused")
	count(reportsDesc, s.Replaced, "replaced")
	count(reportsDesc, s.Stale, "stale")
	count(reportsDesc, s.Dropped, "dropped")
	gauge(waitingDesc, float64(s.Waiting))
	count(foldsDesc, s.Folds)
	count(keysDesc, s.Keys)
	count(twiceDesc, s.Repeated)
	count(errorsDesc, s.ApplyErrors)
	count(leasesDesc, s.LeaseRequests, "received")
	count(leasesDesc, s.LeasesAnswered, "answered")
	count(leasesDesc, s.LeasesRefused, "refused")
	count(leasesDesc, s.LeasesReplaced, "replaced")
	count(leasesDesc, s.LeasesDropped, "dropped")
	count(settleDesc, s.Settlements, "received")
	count(settleDesc, s.SettlementsApplied, "applied")
	count(settleDesc, s.SettlementsRefused, "refused")
	count(permitsDesc, s.PermitsGranted, "granted")
	count(permitsDesc, s.PermitsReturned, "returned")
	count(refusalDesc, s.LeaseErrors)
	count(alarmsDesc, s.Alarms)
	gauge(natsDesc, oneIf(m.connected()))
	gauge(redisDesc, oneIf(m.worker.Ready() == nil))
	gauge(liveDesc, float64(s.Checkers))
	gauge(shardsDesc, float64(s.Shards))
}

func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
