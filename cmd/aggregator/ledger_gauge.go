package main

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/offpath-io/offpath/cmd/internal/rulelabel"
	"github.com/offpath-io/offpath/pkg/aggregate"
)

const (
	// ledgerEvery is how often the ledger is read for the metrics.
	ledgerEvery = 10 * time.Second
	// ledgerPollTimeout is how long that may take.
	ledgerPollTimeout = 5 * time.Second
)

// ledgerGauge tells Prometheus what the store's ledger said when it was last read: the whole fleet's
// hits, not this aggregator's. It is a gauge, since a store can lose its data.
type ledgerGauge struct {
	read   func(context.Context) (aggregate.Ledger, error)
	log    *slog.Logger
	last   atomic.Pointer[aggregate.Ledger]
	labels rulelabel.Labels
}

func newLedgerGauge(read func(context.Context) (aggregate.Ledger, error), log *slog.Logger) *ledgerGauge {
	return &ledgerGauge{read: read, log: log}
}

// poll reads the ledger now and then, until ctx is done.
func (g *ledgerGauge) poll(ctx context.Context) error {
	ticker := time.NewTicker(ledgerEvery)
	defer ticker.Stop()
	for {
		g.readOnce(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// readOnce keeps what was read last when the store does not answer; the worker says so already.
func (g *ledgerGauge) readOnce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, ledgerPollTimeout)
	defer cancel()
	ledger, err := g.read(ctx)
	if err != nil {
		g.log.Debug("the ledger cannot be read", "error", err)
		return
	}
	g.last.Store(&ledger)
}

var ledgerDesc = describe("ledger_hits",
	"Hits of the whole fleet in the store's ledger, by what became of them, as of the last look.", "rule", "outcome")

// Describe sends the one description.
func (g *ledgerGauge) Describe(descs chan<- *prometheus.Desc) { descs <- ledgerDesc }

// Collect sends the ledger as it was last read; nothing if it never was.
func (g *ledgerGauge) Collect(out chan<- prometheus.Metric) {
	ledger := g.last.Load()
	if ledger == nil {
		return
	}
	for label, l := range g.byLabel(*ledger) {
		for outcome, hits := range map[string]int64{
			"counted": l.Counted, "late": l.Late, "refused": l.Refused, "refunded": l.Refunded, "settled": l.Settled,
		} {
			out <- prometheus.MustNewConstMetric(ledgerDesc, prometheus.GaugeValue, float64(hits), label, outcome)
		}
	}
}

// byLabel sums the ledger by the rules' labels.
func (g *ledgerGauge) byLabel(ledger aggregate.Ledger) map[string]aggregate.RuleLedger {
	var busy []rulelabel.Activity
	for rule, l := range ledger {
		busy = append(busy, rulelabel.Activity{Rule: rule, Count: l.Counted + l.Late + l.Refused + l.Refunded})
	}
	g.labels.Assign(busy)
	sums := make(map[string]aggregate.RuleLedger)
	for rule, l := range ledger {
		label := g.labels.Of(rule)
		sum := sums[label]
		sum.Counted += l.Counted
		sum.Late += l.Late
		sum.Refused += l.Refused
		sum.Refunded += l.Refunded
		sum.Settled += l.Settled
		sums[label] = sum
	}
	return sums
}
