package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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

func newTestWorker(t *testing.T) *aggregate.Worker {
	t.Helper()
	worker, err := aggregate.New(aggregate.Options{Store: memstore.New(), Bus: noBus{}})
	if err != nil {
		t.Fatal(err)
	}
	return worker
}

func TestMetricsAreWellNamed(t *testing.T) {
	worker := newTestWorker(t)
	applies := newApplies(time.Now)
	applies.observe(applied("a", aggregate.Tally{Counted: 1}))
	ledger := newLedgerGauge(func(context.Context) (aggregate.Ledger, error) {
		return aggregate.Ledger{"a": {Counted: 1}}, nil
	}, quiet)
	ledger.readOnce(t.Context())
	registry := admin.NewRegistry(version.Get())
	applies.register(registry)
	registry.MustRegister(ledger, &metrics{worker, func() bool { return true }})
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
	a := newApplies(time.Now)
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
	a := newApplies(time.Now)
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

// TestLabelsOfRulesThatAreGone: rules that have not been at work for a day make room for others, and their series go.
func TestLabelsOfRulesThatAreGone(t *testing.T) {
	now := time.Now()
	a := newApplies(func() time.Time { return now })
	for i := range rulelabel.Most {
		a.observe(applied(fmt.Sprint("old", i), aggregate.Tally{Counted: 1}))
	}
	now = now.Add(labelFor - time.Second)
	a.observe(applied("old0", aggregate.Tally{Counted: 1}))
	a.observe(applied("new", aggregate.Tally{Counted: 1}))
	if got := testutil.ToFloat64(a.hits.WithLabelValues(rulelabel.Other, "counted")); got != 1 {
		t.Errorf("a day is not over: %v hits of others", got)
	}
	now = now.Add(roomEvery)
	a.observe(applied("new", aggregate.Tally{Counted: 7}))
	if got := testutil.ToFloat64(a.hits.WithLabelValues("new", "counted")); got != 7 {
		t.Errorf("new has a label and %v hits", got)
	}
	if got := testutil.ToFloat64(a.hits.WithLabelValues("old0", "counted")); got != 2 {
		t.Errorf("old0 was at work within the day, and has %v hits", got)
	}
	for what, c := range map[string]prometheus.Collector{"over": a.over, "peaks": a.peaks} {
		if n := testutil.CollectAndCount(c); n != 3 { // old0, new, other
			t.Errorf("%s: %d series", what, n)
		}
	}
	if n := testutil.CollectAndCount(a.hits); n != 3*3 {
		t.Errorf("%d series of hits", n)
	}
}

// TestLedgerOfRulesThatAreGone: the ledger never forgets a rule. Those at work have the labels.
func TestLedgerOfRulesThatAreGone(t *testing.T) {
	ledger := aggregate.Ledger{}
	g := newLedgerGauge(func(context.Context) (aggregate.Ledger, error) { return maps.Clone(ledger), nil }, quiet)
	for i := range 5 * rulelabel.Most {
		ledger[fmt.Sprint("old", i)] = aggregate.RuleLedger{Counted: 1000}
	}
	g.readOnce(t.Context())
	ledger["new"] = aggregate.RuleLedger{Counted: 1}
	for range 2 { // it stays
		g.readOnce(t.Context())
		if got := (*g.last.Load())["new"].Counted; got != 1 {
			t.Errorf("new has no label of its own: %d", got)
		}
	}
	if got := (*g.last.Load())[rulelabel.Other].Counted; got != 1000*(4*rulelabel.Most+1) {
		t.Errorf("the rest: %d", got)
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
