package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/offpath-io/offpath/cmd/internal/admin"
	"github.com/offpath-io/offpath/internal/rulelabel"
	"github.com/offpath-io/offpath/internal/version"
	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/events"
)

// noBus carries nothing.
type noBus struct{}

func (noBus) Serve(context.Context, func(events.Kind, []byte, func([]byte) error)) error { return nil }
func (noBus) Alarm(uint32, []byte) error                                                 { return nil }
func (noBus) Attend([]bool, []bool) error                                                { return nil }
func (noBus) Tell([]byte) error                                                          { return nil }

var quiet = slog.New(slog.DiscardHandler)

func newTestWorker(t *testing.T) *aggregate.Worker {
	t.Helper()
	worker, err := aggregate.New(aggregate.Options{Store: memstore.New(), Bus: noBus{}})
	must(t, err)
	return worker
}

func applied(rule string, tally storage.Tally, excess ...aggregate.Excess) aggregate.ApplyInfo {
	return aggregate.ApplyInfo{
		Delay: time.Millisecond,
		Batch: &storage.Batch{Rules: []storage.Rule{{Name: rule}}, Ledger: []storage.Tally{tally}},
		Took:  time.Millisecond, Excess: excess,
	}
}

func wantSeries(t *testing.T, why string, c prometheus.Collector, want int) {
	t.Helper()
	equal(t, why, testutil.CollectAndCount(c), want)
}

func wantValue(t *testing.T, why string, c prometheus.Collector, want float64) {
	t.Helper()
	equal(t, why, testutil.ToFloat64(c), want)
}

// mostSeries is what docs/operations_metrics.md promises.
const mostSeries = 2800

// TestMetricsAreBounded, with ten times as many rules as there are labels; and well named, by
// Prometheus' own rules.
func TestMetricsAreBounded(t *testing.T) {
	a, registry, ledger := newApplies(time.Now), admin.NewRegistry(version.Get(), "offpath"), make(storage.Ledger)
	for i := range 10 * rulelabel.Most {
		rule := fmt.Sprint("r", i)
		a.observe(applied(rule, storage.Tally{Counted: 1, Late: 1, Refused: 1}, aggregate.Excess{Hits: 1, Most: 1}))
		ledger[rule] = storage.RuleLedger{Counted: 1}
	}
	g := newLedgerGauge(func(context.Context) (storage.Ledger, error) { return ledger, nil }, quiet)
	g.readOnce(t.Context())
	a.register(registry)
	registry.MustRegister(g, &metrics{newTestWorker(t), func() bool { return true }, func() nats.Statistics { return nats.Statistics{} }, func() int { return 7 }})
	families, err := registry.Gather()
	must(t, err)
	var names []string
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "offpath_") {
			names = append(names, f.GetName())
		}
	}
	if problems, err := testutil.GatherAndLint(registry, names...); err != nil || len(problems) > 0 || len(names) < 17 {
		t.Errorf("%v, %v of %v", problems, err, names)
	}
	wantSeries(t, "hits", a.hits, 3*(rulelabel.Most+1))
	wantValue(t, "hits of the rest", a.hits.WithLabelValues(rulelabel.Other, "counted"), 9*rulelabel.Most)
	n, err := testutil.GatherAndCount(registry, names...)
	n += 16 + 27 + 12 // the histogram counts as one; requests at the admin port
	if err != nil || n > mostSeries || n < 10*rulelabel.Most {
		t.Errorf("%d series, %v", n, err)
	}
}

// TestHitsAreThoseApplied: neither those of a fold that failed, nor those of one that was applied
// before.
func TestHitsAreThoseApplied(t *testing.T) {
	a := newApplies(time.Now)
	failed, repeated := applied("a", storage.Tally{Counted: 10}), applied("a", storage.Tally{Counted: 10})
	failed.Err, repeated.Repeated = errors.New("refused"), 1
	for _, info := range []aggregate.ApplyInfo{
		applied("a", storage.Tally{Counted: 1, Late: 2, Refused: 3}), failed, repeated, applied("a", storage.Tally{Counted: 4}),
	} {
		a.observe(info)
	}
	for outcome, want := range map[string]float64{"counted": 5, "late": 2, "refused": 3} {
		wantValue(t, outcome, a.hits.WithLabelValues("a", outcome), want)
	}
	wantSeries(t, "the histogram", a.took, 1)
}

// TestUnheardIsTheOwners: another aggregator, which counts a report now and then, does not know.
func TestUnheardIsTheOwners(t *testing.T) {
	a := newApplies(time.Now)
	a.observe(applied("a", storage.Tally{Counted: 1}))
	stray := applied("a", storage.Tally{Counted: 1})
	stray.Delay = 0
	a.observe(stray)
	if got := testutil.ToFloat64(a.blind); got <= 0 {
		t.Errorf("%v of a window", got)
	}
}

// TestLabelsOfRemovedRules: rules that have not been at work for a day make room for others, and
// their series go.
func TestLabelsOfRemovedRules(t *testing.T) {
	now := time.Now()
	a := newApplies(func() time.Time { return now })
	for i := range rulelabel.Most {
		a.observe(applied(fmt.Sprint("old", i), storage.Tally{Counted: 1}))
	}
	now = now.Add(labelFor - time.Second)
	a.observe(applied("old0", storage.Tally{Counted: 1}))
	a.observe(applied("new", storage.Tally{Counted: 1}))
	wantValue(t, "others, before a day is over", a.hits.WithLabelValues(rulelabel.Other, "counted"), 1)
	now = now.Add(roomEvery)
	a.observe(applied("new", storage.Tally{Counted: 7}))
	wantValue(t, "new", a.hits.WithLabelValues("new", "counted"), 7)
	wantValue(t, "old0, at work within the day", a.hits.WithLabelValues("old0", "counted"), 2)
	wantSeries(t, "over, of old0, new and other", a.over, 3)
	wantSeries(t, "peaks", a.peaks, 3)
	wantSeries(t, "unheard", a.blind, 3)
	wantSeries(t, "hits", a.hits, 3*3)
}

// TestLedgerOfRemovedRules: the ledger never forgets a rule. Those at work have the labels.
func TestLedgerOfRemovedRules(t *testing.T) {
	ledger := storage.Ledger{}
	g := newLedgerGauge(func(context.Context) (storage.Ledger, error) { return maps.Clone(ledger), nil }, quiet)
	for i := range 5 * rulelabel.Most {
		ledger[fmt.Sprint("old", i)] = storage.RuleLedger{Counted: 1000}
	}
	g.readOnce(t.Context())
	ledger["new"] = storage.RuleLedger{Counted: 1}
	for range 2 { // it stays
		g.readOnce(t.Context())
		equal(t, "new, with a label of its own", (*g.last.Load())["new"].Counted, 1)
	}
	equal(t, "the rest", (*g.last.Load())[rulelabel.Other].Counted, 1000*(4*rulelabel.Most+1))
}

// TestLedgerGaugeOutlivesTheStore: it says what was read last while the store is away, and nothing
// of one that has lost everything.
func TestLedgerGaugeOutlivesTheStore(t *testing.T) {
	ledger, trouble := storage.Ledger{"r": {Counted: 1, Late: 1}}, error(nil)
	g := newLedgerGauge(func(context.Context) (storage.Ledger, error) { return ledger, trouble }, quiet)
	wantSeries(t, "before the first look", g, 0)
	g.readOnce(t.Context())
	wantSeries(t, "one rule", g, 6)
	ledger, trouble = nil, errors.New("away")
	g.readOnce(t.Context())
	wantSeries(t, "the store is away", g, 6)
	ledger, trouble = storage.Ledger{}, nil
	g.readOnce(t.Context())
	wantSeries(t, "the store has lost everything", g, 0)
}

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
		wantValue(t, now.String(), p, step.want)
	}
}

// TestExcessIsCounted adds up the hits of several folds, and keeps the largest ratio.
func TestExcessIsCounted(t *testing.T) {
	a := newApplies(time.Now)
	a.observe(applied("a", storage.Tally{Counted: 10}, aggregate.Excess{Hits: 2, Most: 0.3}))
	a.observe(applied("a", storage.Tally{Counted: 10}, aggregate.Excess{Hits: 1.5, Most: 0.1}))
	wantValue(t, "hits over", a.over.WithLabelValues("a"), 3.5)
	wantValue(t, "over at most", a.peaks, 0.3)
	a.observe(applied("b", storage.Tally{Counted: 1}))
	wantSeries(t, "one without an excess has 0", a.peaks, 2)
}
