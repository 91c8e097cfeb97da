package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/offpath-io/offpath/cmd/internal/admin"
	"github.com/offpath-io/offpath/cmd/internal/rulelabel"
	"github.com/offpath-io/offpath/internal/version"
	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/events"
)

// noBus carries nothing.
type noBus struct{}

func (noBus) Serve(context.Context, func(events.Kind, []byte, func([]byte) error)) error { return nil }
func (noBus) Alarm(uint32, []byte) error                                                 { return nil }

var quiet = slog.New(slog.DiscardHandler)

func TestMetricsAreWellNamed(t *testing.T) {
	worker, err := aggregate.New(aggregate.Options{Store: memstore.New(), Bus: noBus{}})
	if err != nil {
		t.Fatal(err)
	}
	applies := newApplies()
	applies.observe(applied("a", aggregate.Tally{Counted: 1}))
	ledger := newLedgerGauge(func(context.Context) (aggregate.Ledger, error) {
		return aggregate.Ledger{"a": {Counted: 1}}, nil
	}, quiet)
	ledger.readOnce(t.Context())
	registry := admin.NewRegistry(version.Get())
	registry.MustRegister(applies.took, applies.hits, ledger, &metrics{worker, func() bool { return true }})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range families {
		if len(f.GetName()) > 8 && f.GetName()[:8] == "offpath_" {
			names = append(names, f.GetName())
		}
	}
	problems, err := testutil.GatherAndLint(registry, names...)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	if len(names) < 17 {
		t.Errorf("only %v", names)
	}
}

func applied(rule string, tally aggregate.Tally) aggregate.ApplyInfo {
	return aggregate.ApplyInfo{
		Fold: &aggregate.Fold{Rules: []aggregate.Rule{{Name: rule}}, Ledger: []aggregate.Tally{tally}},
		Took: time.Millisecond,
	}
}

func TestOnlyWhatWasAppliedIsCounted(t *testing.T) {
	a := newApplies()
	a.observe(applied("a", aggregate.Tally{Counted: 1, Late: 2, Refused: 3}))
	failed := applied("a", aggregate.Tally{Counted: 10})
	failed.Err = errors.New("refused")
	a.observe(failed)
	repeated := applied("a", aggregate.Tally{Counted: 10})
	repeated.Repeated = 1
	a.observe(repeated)
	a.observe(applied("a", aggregate.Tally{Counted: 4}))
	for outcome, want := range map[string]float64{"counted": 5, "late": 2, "refused": 3} {
		if got := testutil.ToFloat64(a.hits.WithLabelValues("a", outcome)); got != want {
			t.Errorf("%s: %v, want %v", outcome, got, want)
		}
	}
	if n := testutil.CollectAndCount(a.took); n != 1 {
		t.Errorf("%d histograms", n)
	}
}

// TestRulesOfStrangers has reports name more rules than there are labels.
func TestRulesOfStrangers(t *testing.T) {
	a := newApplies()
	for i := range 10 * rulelabel.Most {
		a.observe(applied(fmt.Sprint("r", i), aggregate.Tally{Counted: 1}))
	}
	if n := testutil.CollectAndCount(a.hits); n != 3*(rulelabel.Most+1) {
		t.Errorf("%d series", n)
	}
	if got := testutil.ToFloat64(a.hits.WithLabelValues(rulelabel.Other, "counted")); got != 9*rulelabel.Most {
		t.Errorf("the rest: %v", got)
	}
}

func TestLedgerGauge(t *testing.T) {
	ledger, trouble := aggregate.Ledger{}, error(nil)
	g := newLedgerGauge(func(context.Context) (aggregate.Ledger, error) { return ledger, trouble }, quiet)
	if n := testutil.CollectAndCount(g); n != 0 {
		t.Errorf("%d series before the first look", n)
	}
	for i := range 3 * rulelabel.Most {
		ledger[fmt.Sprint("r", i)] = aggregate.RuleLedger{Counted: int64(i), Late: 1}
	}
	g.readOnce(t.Context())
	if n := testutil.CollectAndCount(g); n != 5*(rulelabel.Most+1) {
		t.Errorf("%d series", n)
	}
	ledger, trouble = nil, errors.New("away")
	g.readOnce(t.Context())
	if n := testutil.CollectAndCount(g); n != 5*(rulelabel.Most+1) {
		t.Errorf("%d series when the store is away, want those of the last look", n)
	}
	ledger, trouble = aggregate.Ledger{}, nil
	g.readOnce(t.Context())
	if n := testutil.CollectAndCount(g); n != 0 {
		t.Errorf("%d series of a store that has lost everything", n)
	}
}
