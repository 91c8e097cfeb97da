package main

import (
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/offpath-io/offpath/internal/rulelabel"
	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
)

const (
	// labelFor is for how long a rule keeps its label that is not at work, if others have none.
	labelFor = 24 * time.Hour
	// roomEvery is how often such rules are looked for at most.
	roomEvery = time.Minute
)

// applies measures each call of the store, and counts by rule what was applied.
type applies struct {
	took   prometheus.Histogram
	hits   *prometheus.CounterVec
	over   *prometheus.CounterVec
	peaks  *peaks
	blind  *prometheus.GaugeVec
	turned *prometheus.CounterVec
	now    func() time.Time

	mu       sync.Mutex // held while a fold is counted
	labels   rulelabel.Labels
	used     map[string]time.Time // by label of a rule's own, when it was last at work
	madeRoom time.Time
}

func newApplies(now func() time.Time) *applies {
	return &applies{
		now: now, used: make(map[string]time.Time),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "offpath_apply_seconds",
			Help:    "How long the store took to apply a batch.",
			Buckets: prometheus.ExponentialBuckets(0.00025, 2, 14), // 0.25 ms to 2 s
		}),
		hits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "offpath_hits_total",
			Help: "Hits that this aggregator applied, by what became of them.",
		}, []string{"rule", "outcome"}),
		over: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "offpath_over_limit_hits_total",
			Help: "Hits that were let pass although their key's count was beyond its limit, by more than max(1 hit, 2 %). An estimate: docs/operations_metrics.md.",
		}, []string{"rule"}),
		peaks: newPeaks(now),
		turned: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "offpath_overflow_keys_total",
			Help: "How often a new key was not counted, since its rule has too many of them, or Redis no memory.",
		}, []string{"rule"}),
		blind: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "offpath_over_limit_unheard_ratio",
			Help: "Which part of a window's hits may have passed, and nobody had heard of, when the rule's counts were last held against its limit.",
		}, []string{"rule"}),
	}
}

// register registers all of it.
func (a *applies) register(registry prometheus.Registerer) {
	registry.MustRegister(a.took, a.hits, a.over, a.peaks, a.blind, a.turned)
}

// observe is for aggregate.Options.OnApply. A fold that the store applied without saying so is not
// in the hits; the ledger has it.
func (a *applies) observe(info aggregate.ApplyInfo) {
	a.took.Observe(info.Took.Seconds())
	if info.Err != nil || info.Repeated > 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, tally := range info.Batch.Ledger {
		for _, o := range info.Overflow {
			if o.Rule == i {
				tally.Counted -= o.Hits
			}
		}
		if sum := tally.Counted + tally.Late + tally.Refused; sum > 0 || len(info.Overflow) > 0 {
			rule := &info.Batch.Rules[i]
			label := a.labelLocked(rule.Name, sum)
			a.count(label, tally)
			if info.Delay > 0 { // or it is another aggregator's shard
				a.blind.WithLabelValues(label).Set(info.Delay.Seconds() / max(rule.Shape.Length.Seconds(), 1e-3))
			}
		}
	}
	for _, o := range info.Overflow {
		label := a.labels.Of(info.Batch.Rules[o.Rule].Name)
		a.turned.WithLabelValues(label).Add(float64(o.Keys))
	}
	a.exceedLocked(info)
}

// unleased is for aggregate.Options.OnUnleased.
func (a *applies) unleased(rule string, keys int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.turned.WithLabelValues(a.labels.Of(rule)).Add(float64(keys))
}

// labelLocked returns the label of a rule that is at work, which is its own if there is one left.
func (a *applies) labelLocked(rule string, hits int64) string {
	now, busy := a.now(), []rulelabel.Activity{{Rule: rule, Count: hits}}
	a.labels.Assign(busy)
	if a.labels.Of(rule) != rule && now.Sub(a.madeRoom) >= roomEvery {
		a.madeRoom = now
		a.makeRoomLocked(now)
		a.labels.Assign(busy)
	}
	label := a.labels.Of(rule)
	if label == rule {
		a.used[label] = now
	}
	return label
}

// makeRoomLocked takes the labels from rules that have not been at work for long, and their series
// away.
func (a *applies) makeRoomLocked(now time.Time) {
	for label, at := range a.used {
		if now.Sub(at) < labelFor || label == rulelabel.Other { // which is everybody's
			continue
		}
		delete(a.used, label)
		a.labels.Free(label)
		a.hits.DeletePartialMatch(prometheus.Labels{"rule": label})
		a.over.DeletePartialMatch(prometheus.Labels{"rule": label})
		a.peaks.forget(label)
		a.blind.DeleteLabelValues(label)
		a.turned.DeleteLabelValues(label)
	}
}

func (a *applies) count(label string, t storage.Tally) {
	a.hits.WithLabelValues(label, "counted").Add(float64(t.Counted))
	a.hits.WithLabelValues(label, "late").Add(float64(t.Late))
	a.hits.WithLabelValues(label, "refused").Add(float64(t.Refused))
	a.over.WithLabelValues(label).Add(0)
	a.turned.WithLabelValues(label).Add(0)
	a.peaks.note(label, 0)
}

// metrics tells Prometheus what the worker's snapshots say, at each scrape.
type metrics struct {
	worker     *aggregate.Worker
	connected  func() bool
	nats       func() nats.Statistics
	remembered func() int
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("offpath_"+name, help, labels, nil)
}

var (
	reportsDesc = describe("reports_total", "Reports received, and what became of them.", "outcome")
	waitingDesc = describe("reports_waiting", "Reports that wait for a batch.")
	foldsDesc   = describe("folds_total", "Batches applied.")
	keysDesc    = describe("folded_keys_total", "Keys in the batches applied.")
	twiceDesc   = describe("duplicate_reports_total", "Reports that had been counted before, and were only answered.")
	errorsDesc  = describe("apply_errors_total", "Batches that the store refused or did not answer.")
	leasesDesc  = describe("lease_requests_total", "Lease requests received, and what became of them.", "outcome")
	permitsDesc = describe("permits_total", "Permits granted to checkers, and returned by them.", "outcome")
	refusalDesc = describe("lease_errors_total", "Lease batches that the store refused or did not answer.")
	settleDesc  = describe("settlements_total", "Settlements of hits' true costs received, and what became of them.", "outcome")
	rulesDesc   = describe("uncounted_rules_total", "Reports, lease requests and settlements of rules that are not counted, by why.", "reason")
	alarmsDesc  = describe("alarms_total", "Alarms sent, of keys near their limit.")
	lossesDesc  = describe("store_losses_total", "How often Redis was found to have lost a shard's data.")
	foldsLost   = describe("store_lost_folds_total", "Batches that are known to be lost with them.")
	lastLoss    = describe("store_last_loss_timestamp_seconds", "When Redis was last found to have lost a shard's data, in Unix seconds. 0 if that is not known to have happened.")
	natsDesc    = describe("nats_connected", "1 while connected to NATS, else 0.")
	againDesc   = describe("nats_reconnects_total", "How often the connection to NATS was made again.")
	redisDesc   = describe("redis_connected", "1 while Redis answers, as the last calls went, else 0.")
	offsetDesc  = describe("store_clock_offset_seconds", "How far the fleet's time is ahead of Redis' clock, as on record there.")
	liveDesc    = describe("live_checkers", "Checkers that have said hello lately, not counting time in which NATS was away.")
	heardDesc   = describe("live_aggregators", "Aggregators that this one has heard in the last second, itself included.")
	shardsDesc  = describe("shards", "Shards of the fleet. 0 until Redis has been reached.")
	ownedDesc   = describe("owned_shards", "Shards whose reports go to this aggregator first.")
	totalsDesc  = describe("remembered_totals", "Totals of buckets that this aggregator has in memory.")
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
	count(foldsDesc, s.Batches)
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
	count(settleDesc, s.SettlementsUncovered, "uncovered")
	count(settleDesc, s.SettlementsOverflow, "overflow")
	count(rulesDesc, s.RulesLong, "long_window")
	count(rulesDesc, s.RulesMany, "too_many")
	count(rulesDesc, s.RulesUnknown, "unknown")
	count(permitsDesc, s.PermitsGranted, "granted")
	count(permitsDesc, s.PermitsReturned, "returned")
	count(refusalDesc, s.LeaseErrors)
	count(alarmsDesc, s.Alarms)
	count(lossesDesc, s.Losses)
	count(foldsLost, s.LostBatches)
	gauge(lastLoss, float64(s.LastLoss.At)/1e9)
	gauge(natsDesc, oneIf(m.connected()))
	count(againDesc, int64(m.nats().Reconnects))
	gauge(redisDesc, oneIf(m.worker.Ready() == nil))
	gauge(offsetDesc, s.StoreOffset.Seconds())
	gauge(liveDesc, float64(s.Checkers))
	gauge(heardDesc, float64(s.Aggregators))
	gauge(shardsDesc, float64(s.Shards))
	gauge(ownedDesc, float64(s.Owned))
	gauge(totalsDesc, float64(m.remembered()))
}

func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
