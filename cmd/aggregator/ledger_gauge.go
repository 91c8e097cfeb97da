package main

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/offpath-io/offpath/internal/rulelabel"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
)

const (
	// ledgerEvery is how often the ledger is read for the metrics.
	ledgerEvery = 10 * time.Second
	// ledgerPollTimeout is how long that may take.
	ledgerPollTimeout = 5 * time.Second
)

// ledgerGauge tells Prometheus what the store's ledger said when it was last read: the whole
// fleet's hits, not this aggregator's. It is a gauge, since a store can lose its data.
type ledgerGauge struct {
	read func(context.Context) (storage.Ledger, error)
	log  *slog.Logger
	last atomic.Pointer[map[string]storage.RuleLedger] // by label

	// Only poll's own.
	before  storage.Ledger
	looks   int64
	changed map[string]int64 // by rule, the last look by which its row had changed
}

func newLedgerGauge(read func(context.Context) (storage.Ledger, error), log *slog.Logger) *ledgerGauge {
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
	sums := g.byLabel(ledger)
	g.last.Store(&sums)
}

var ledgerDesc = describe("ledger_hits",
	"Hits of the whole fleet in the store's ledger, by what became of them, as of the last look.", "rule", "outcome")

// Describe sends the one description.
func (g *ledgerGauge) Describe(descs chan<- *prometheus.Desc) { descs <- ledgerDesc }

// Collect sends the ledger as it was last read; nothing if it never was.
func (g *ledgerGauge) Collect(out chan<- prometheus.Metric) {
	sums := g.last.Load()
	if sums == nil {
		return
	}
	for label, l := range *sums {
		for outcome, hits := range map[string]int64{
			"counted": l.Counted, "late": l.Late, "refused": l.Refused, "refunded": l.Refunded, "settled": l.Settled, "overflow": l.Overflow,
		} {
			out <- prometheus.MustNewConstMetric(ledgerDesc, prometheus.GaugeValue, float64(hits), label, outcome)
		}
	}
}

// byLabel sums the ledger by labels. It keeps the rows of rules that are gone, so labels are of
// those that have changed last, and of these the largest; a gauge may move.
func (g *ledgerGauge) byLabel(ledger storage.Ledger) map[string]storage.RuleLedger {
	own := g.labelled(ledger)
	sums := make(map[string]storage.RuleLedger)
	for rule, l := range ledger {
		label := rulelabel.Other
		if own[rule] {
			label = rule
		}
		sum := sums[label]
		sum.Counted += l.Counted
		sum.Late += l.Late
		sum.Refused += l.Refused
		sum.Refunded += l.Refunded
		sum.Settled += l.Settled
		sum.Overflow += l.Overflow
		sums[label] = sum
	}
	return sums
}

// labelled chooses the rules with a label of their own.
func (g *ledgerGauge) labelled(ledger storage.Ledger) map[string]bool {
	g.looks++
	changed := make(map[string]int64, len(ledger))
	for rule, l := range ledger {
		changed[rule] = g.changed[rule]
		if before, known := g.before[rule]; g.before != nil && (!known || before != l) {
			changed[rule] = g.looks
		}
	}
	g.before, g.changed = ledger, changed
	rules := slices.SortedFunc(maps.Keys(ledger), func(a, b string) int {
		return cmp.Or(cmp.Compare(changed[b], changed[a]), cmp.Compare(ledger[b].Counted, ledger[a].Counted), cmp.Compare(a, b))
	})
	own := make(map[string]bool)
	for _, rule := range rules[:min(len(rules), rulelabel.Most)] {
		own[rule] = true
	}
	return own
}
