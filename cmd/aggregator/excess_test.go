package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/offpath-io/offpath/cmd/internal/rulelabel"
	"github.com/offpath-io/offpath/pkg/aggregate"
)

// TestPeaks: an excess is told for a minute at least, and two at most; a rule stays.
func TestPeaks(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	p := newPeaks(func() time.Time { return now })
	for _, step := range []struct {
		after time.Duration
		note  float64
		want  float64
	}{
		{0, 0, 0},
		{time.Second, 0.5, 0.5},
		{time.Second, 0.2, 0.5},
		{58 * time.Second, 0.1, 0.5}, // a new minute; the last one counts
		{59 * time.Second, 0, 0.5},
		{time.Second, 0, 0.1}, // the one before it does not
		{time.Minute, 0, 0},
		{time.Second, 0.3, 0.3},
		{time.Hour, 0, 0},
	} {
		now = now.Add(step.after)
		p.note("a", step.note)
		if got := testutil.ToFloat64(p); got != step.want {
			t.Errorf("at %v: %v, want %v", now, got, step.want)
		}
	}
}

// TestExcessIsCounted adds up the hits of several folds, and keeps the largest ratio.
func TestExcessIsCounted(t *testing.T) {
	a := newApplies(time.Now)
	for _, e := range []aggregate.Excess{{Hits: 2, Most: 0.3}, {Hits: 1.5, Most: 0.1}} {
		info := applied("a", aggregate.Tally{Counted: 10})
		info.Excess = []aggregate.Excess{e}
		a.observe(info)
	}
	if got := testutil.ToFloat64(a.over.WithLabelValues("a")); got != 3.5 {
		t.Errorf("%v hits over", got)
	}
	if got := testutil.ToFloat64(a.peaks); got != 0.3 {
		t.Errorf("%v over at most", got)
	}
	a.observe(applied("b", aggregate.Tally{Counted: 1}))
	if n := testutil.CollectAndCount(a.peaks); n != 2 {
		t.Errorf("%d rules have a ratio: one without an excess has 0", n)
	}
}

// mostSeries is what docs/operations.md promises.
const mostSeries = 2100

// TestSeriesAreBounded: ten times as many rules as there are labels, all of them exceeded.
func TestSeriesAreBounded(t *testing.T) {
	a, ledger := newApplies(time.Now), make(aggregate.Ledger)
	for i := range 10 * rulelabel.Most {
		info := applied(fmt.Sprint("r", i), aggregate.Tally{Counted: 1, Late: 1, Refused: 1})
		info.Excess = []aggregate.Excess{{Hits: 1, Most: 1}}
		a.observe(info)
		ledger[info.Fold.Rules[0].Name] = aggregate.RuleLedger{Counted: 1}
	}
	g := newLedgerGauge(nil, quiet)
	sums := g.byLabel(ledger)
	g.last.Store(&sums)
	worker := newTestWorker(t)
	registry := prometheus.NewRegistry()
	a.register(registry)
	registry.MustRegister(g, &metrics{worker, func() bool { return true }})
	n, err := testutil.GatherAndCount(registry)
	n += 16 // the histogram counts as one
	if err != nil || n > mostSeries || n < 10*rulelabel.Most {
		t.Errorf("%d series, %v", n, err)
	}
}
