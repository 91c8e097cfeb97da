package aggregate_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/events"
)

func TestReportsAreAnsweredWithTotals(t *testing.T) {
	store := memstore.New()
	d := newFixture(t, store)
	for _, step := range []struct {
		why   string
		after int64
		epoch uint64
		seq   uint64
		hits  []own
		want  string // age:total, newest first
	}{
		{"the first hits", 0, 1, 1, []own{{"a", 0, 3}, {"b", 0, 1}}, "0:3 | 0:1"},
		{"another checker's are added", 100 * ms, 2, 1, []own{{"a", 0, 2}}, "0:5"},
		{"a key without hits is only read", 100 * ms, 2, 2, []own{{"b", 0, 0}, {"c", 0, 0}}, "0:1 | "},
		{"a repeat adds nothing", 200 * ms, 1, 1, []own{{"a", 0, 3}, {"b", 0, 1}}, "0:5 | 0:1 (repeated)"},
		{"all live buckets are told", second, 1, 2, []own{{"a", 0, 1}}, "0:1 1:5"},
		{"the previous bucket still counts", second, 2, 3, []own{{"a", 1, 1}, {"b", 1, 1}}, "0:1 1:6 | 1:2"},
		{"a gone bucket does not", 2 * second, 2, 4, []own{{"a", 0, 1}, {"a", 2, 4}}, "0:1 1:1"},
		{"nor does one of the far future", 2 * second, 2, 5, []own{{"a", -6, 7}, {"a", -1, 1}}, "-1:1 0:1 1:1"},
	} {
		now := start + step.after
		m := d.exchange(now, report(step.epoch, step.seq, perSecond(now), step.hits...))
		if got := totals(m); got != step.want {
			t.Errorf("%s: got %q, want %q", step.why, got, step.want)
		}
	}
	want := aggregate.RuleLedger{Counted: 11, Late: 4, Refused: 7}
	if got := ledger(t, store)["per-second"]; got != want {
		t.Errorf("ledger: got %+v, want %+v", got, want)
	}
}

func TestLateHitsOfTheCheckerGoToTheLedger(t *testing.T) {
	store := memstore.New()
	d := newFixture(t, store)
	m := report(1, 1, perSecond(start))
	m.Late = []uint64{9}
	for range 2 { // the second is a repeat
		if got := d.exchange(start, m); got.GetError() != "" {
			t.Error(got)
		}
	}
	if got := ledger(t, store)["per-second"]; got != (aggregate.RuleLedger{Late: 9}) {
		t.Errorf("ledger: %+v", got)
	}
}

// One report may name a rule twice, several rules, and a key twice; and rules of one name may differ.
func TestOneReportOfManyRules(t *testing.T) {
	store := memstore.New()
	d := newFixture(t, store)
	m := &events.Report{Epoch: 1, Shards: 1, Sequence: 1, Hits: &events.Table{
		Rules: []*events.Rule{perSecond(start), perMinute(start), perSecond(start + second)},
	}}
	for _, h := range []struct {
		rule uint32
		key  string
		age  int64
		n    uint64
	}{{0, "a", 0, 1}, {1, "a", 0, 10}, {0, "a", 0, 2}, {1, "b", 59, 4}, {2, "a", 1, 5}} {
		m.Hits.AddKey(h.rule, h.key)
		m.Hits.AddCell(h.age, h.n)
	}
	if got, want := totals(d.exchange(start, m)), "0:8 | 0:10 | 0:8 | 59:4 | 1:8"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	l := ledger(t, store)
	if l["per-second"].Counted != 8 || l["per-minute"].Counted != 14 {
		t.Errorf("ledger: %v", l)
	}
}

func TestGathering(t *testing.T) {
	store := &counting{Store: memstore.New()}
	d := newFixture(t, store, func(o *aggregate.Options) { o.FoldKeys = 100 })
	if d.next <= start || d.next > start+2*second {
		t.Errorf("idle: next step at +%d", d.next-start)
	}

	// Reports that come within 2 ms are one fold.
	for epoch := range uint64(5) {
		d.send(start+int64(epoch)*ms/10, report(epoch+1, 1, perSecond(start), own{"a", 0, 1}))
	}
	if next := d.step(start + ms); next != start+2*ms || store.folds != 0 {
		t.Errorf("too early: next step at +%d, %d folds", next-start, store.folds)
	}
	d.step(start + 2*ms)
	if got := d.take(); len(got) != 5 || store.folds != 1 || totals(got[0]) != "0:5" {
		t.Errorf("%d answers by %d folds: %v", len(got), store.folds, got)
	}

	// More than fits one fold goes at once, whole reports at a time; a single larger one goes alone.
	store.folds, store.largest = 0, 0
	for epoch, keys := range []int{60, 60, 250, 10, 10} {
		var hits []own
		for i := range keys {
			hits = append(hits, own{fmt.Sprint(epoch, i), 0, 1})
		}
		d.send(start+second, report(uint64(epoch)+1, 2, perSecond(start+second), hits...))
	}
	d.step(start + second)
	if got := d.take(); len(got) != 3 || store.folds != 3 || store.largest != 250 {
		t.Errorf("at once: %d answers by %d folds of at most %d keys, want the three that make full folds", len(got), store.folds, store.largest)
	}
	d.step(start + second + 2*ms)
	if got := d.take(); len(got) != 2 || store.folds != 4 {
		t.Errorf("then %d answers, %d folds", len(got), store.folds)
	}

	// Keys of many buckets take more of the budget.
	store.folds = 0
	for epoch := range uint64(4) {
		hits := make([]own, 10)
		for i := range hits {
			hits[i] = own{fmt.Sprint(epoch, i), 0, 1}
		}
		d.send(start+second, report(epoch+1, 3, perMinute(start+second), hits...))
	}
	d.step(start + 2*second)
	if store.folds != 4 {
		t.Errorf("%d folds of 40 keys in 60 buckets", store.folds)
	}
}

// A checker has one request in the queue, whatever it sends.
func TestOneRequestPerChecker(t *testing.T) {
	store := memstore.New()
	d := newFixture(t, store)
	first := report(1, 1, perSecond(start), own{"a", 0, 1})
	for range 1000 {
		d.send(start, first)
	}
	if got := d.worker.Stats(); got.Waiting != 1 || got.Replaced != 999 {
		t.Errorf("%+v", got)
	}
	d.send(start, report(1, 2, perSecond(start), own{"a", 0, 10})) // so 1 has had its answer
	d.send(start, first)                                           // a late copy
	d.step(start + 2*ms)
	answers := d.take()
	if len(answers) != 1 || answers[0].GetSequence() != 2 || totals(answers[0]) != "0:10" {
		t.Errorf("answers: %v", answers)
	}
	if got := d.worker.Stats(); got.Stale != 1 || got.Answered != 1 || got.Waiting != 0 {
		t.Errorf("%+v", got)
	}
}

// A worker that applies and dies before it answers, or whose store says no but did it: the report
// comes again, to it or to another worker, and is counted once.
func TestAmbiguousFailures(t *testing.T) {
	store := memstore.New()
	dying := &faulty{Store: store}
	first, second := newFixture(t, dying), newFixture(t, store)
	m := report(1, 1, perSecond(start), own{"a", 0, 3}, own{"b", 0, 1})

	dying.have(faults{after: errors.New("connection lost")})
	first.send(start, m)
	first.step(start + 2*ms)
	if got := first.take(); len(got) != 0 {
		t.Errorf("answers without knowing: %v", got)
	}
	if first.worker.Ready() == nil {
		t.Error("ready, after a failed fold")
	}
	if got := totals(second.exchange(start+10*ms, m)); got != "0:3 | 0:1 (repeated)" {
		t.Errorf("from another worker: %s", got)
	}

	dying.have(faults{before: errors.New("connection refused")})
	m = report(1, 2, perSecond(start), own{"a", 0, 5})
	first.send(start+20*ms, m)
	first.step(start + 30*ms)
	if got := first.take(); len(got) != 0 {
		t.Errorf("answers without a store: %v", got)
	}
	if got := first.worker.Stats(); got.ApplyErrors != 2 || got.Dropped != 2 {
		t.Errorf("%+v", got)
	}
	dying.have(faults{})
	if got := totals(first.exchange(start+40*ms, m)); got != "0:8" {
		t.Errorf("again: %s", got)
	}
	if err := first.worker.Ready(); err != nil {
		t.Errorf("not ready: %v", err)
	}
	if got := ledger(t, store)["per-second"].Counted; got != 9 {
		t.Errorf("counted %d", got)
	}
}

// Folds in which some reports are repeats, in every mix: two workers, and what one has counted is
// asked of the other.
func TestPartlyRepeatedFolds(t *testing.T) {
	for mix := range 1 << 4 {
		store := memstore.New()
		first, second := newFixture(t, store), newFixture(t, store)
		for i := range uint64(4) {
			m := report(i+1, 1, perSecond(start), own{"shared", 0, 1}, own{fmt.Sprint("own", i), 0, 1 << i})
			if mix>>i&1 == 1 {
				first.exchange(start, m)
			}
			second.send(start, m)
		}
		second.step(start + 2*ms)
		answers := second.take()
		if len(answers) != 4 {
			t.Fatalf("mix %b: %d answers", mix, len(answers))
		}
		for i, m := range answers {
			want := fmt.Sprintf("0:4 | 0:%d", 1<<i)
			if mix>>i&1 == 1 {
				want += " (repeated)"
			}
			if got := totals(m); got != want {
				t.Errorf("mix %b, report %d: got %q, want %q", mix, i, got, want)
			}
		}
		if got := ledger(t, store)["per-second"].Counted; got != 4+15 {
			t.Errorf("mix %b: counted %d", mix, got)
		}
	}
}

// While some reports turn out to be repeats, another worker counts one more: the third fold knows both.
func TestRepeatsThatComeInBetween(t *testing.T) {
	store := memstore.New()
	other := newFixture(t, store)
	reports := make([]*events.Report, 5)
	for i := range reports {
		reports[i] = report(uint64(i)+1, 1, perSecond(start), own{fmt.Sprint("own", i), 0, 1 << i})
	}
	other.exchange(start, reports[1])
	d := newFixture(t, &hooked{store, func(fold int) {
		if fold == 2 {
			other.exchange(start, reports[3])
		}
	}, 0})
	for _, m := range reports {
		d.send(start, m)
	}
	d.step(start + 2*ms)
	for i, m := range d.take() {
		want := fmt.Sprintf("0:%d", 1<<i)
		if i == 1 || i == 3 {
			want += " (repeated)"
		}
		if got := totals(m); got != want {
			t.Errorf("report %d: got %q, want %q", i, got, want)
		}
	}
	if got := d.worker.Stats(); got.Answered != 5 || got.Refolds != 2 || got.Repeated != 2 || got.HitsCounted != 1+4+16 {
		t.Errorf("%+v", got)
	}
}

func TestOnApply(t *testing.T) {
	store := &faulty{Store: memstore.New()}
	var told []string
	d := newFixture(t, store, func(o *aggregate.Options) {
		o.OnApply = func(i aggregate.ApplyInfo) {
			told = append(told, fmt.Sprintf("%d marks, %d repeated, %v", len(i.Fold.Marks), i.Repeated, i.Err))
		}
	})
	m := report(1, 1, perSecond(start), own{"a", 0, 1})
	store.have(faults{after: errors.New("lost")})
	d.send(start, m)
	d.step(start + 2*ms)
	store.have(faults{})
	d.exchange(start+10*ms, m)
	want := "1 marks, 0 repeated, lost; 1 marks, 1 repeated, <nil>; 0 marks, 0 repeated, <nil>"
	if got := strings.Join(told, "; "); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A store that always finds another repeat does not keep the worker for ever.
func TestEndlessRepeats(t *testing.T) {
	d := newFixture(t, repeating{memstore.New()})
	for epoch := range uint64(20) {
		d.send(start, report(epoch+1, 1, perSecond(start), own{"a", 0, 1}))
	}
	d.step(start + 2*ms)
	if got := d.worker.Stats(); got.Dropped != 20 || got.Waiting != 0 {
		t.Errorf("%+v", got)
	}
}

func TestGenerations(t *testing.T) {
	store := memstore.New()
	d := newFixture(t, store)
	before := d.exchange(start, report(1, 1, perSecond(start), own{"a", 0, 5}))
	store.Lose()
	m := report(1, 2, perSecond(start), own{"a", 0, 1})
	after := d.exchange(start, m) // the checker says nothing; the worker remembers
	if after.GetGeneration() <= before.GetGeneration() || totals(after) != "0:1" {
		t.Errorf("generation %d after %d, totals %s", after.GetGeneration(), before.GetGeneration(), totals(after))
	}

	store.Lose()
	other := newFixture(t, store) // a worker that remembers nothing, and a checker that does
	other.step(start + 3*second)
	m = report(1, 3, perSecond(start+3*second), own{"a", 0, 1})
	m.Generation, m.Version = after.GetGeneration(), after.GetVersion()+1000
	last := other.exchange(start+3*second, m)
	if last.GetGeneration() <= after.GetGeneration() || last.GetVersion() != 1 {
		t.Errorf("generation %d after %d", last.GetGeneration(), after.GetGeneration())
	}
}

func TestMalformedReportsAreRefused(t *testing.T) {
	good := func() *events.Report { return report(7, 3, perSecond(start), own{"a", 0, 1}) }
	for _, tt := range []struct {
		why    string
		change func(*events.Report)
		want   string
	}{
		{"another number of shards", func(m *events.Report) { m.Shards = 4; m.Shard = 2 }, "4 shards"},
		{"no number of shards", func(m *events.Report) { m.Shards = 0 }, "0 shards"},
		{"keys of no rule", func(m *events.Report) { m.Hits.KeyRule[0] = 9 }, "rule 9 of 1"},
		{"columns that do not fit", func(m *events.Report) { m.Hits.Age = nil }, "cells"},
		{"a window that cannot be", func(m *events.Report) { m.Hits.Rules[0].Buckets = 7 }, "7 buckets"},
		{"a generation beyond all time", func(m *events.Report) { m.Generation = events.MaxState + 1 }, "generation"},
		{"a report too old", func(m *events.Report) { m.Made = start - int64(events.MaxReportAge) - 1e9 }, "20h0m1s old"},
		{"a bucket beyond all time", func(m *events.Report) { m.Hits.Rules[0].Newest = 1 << 43 }, "bucket"},
	} {
		d := newFixture(t, memstore.New())
		m := good()
		tt.change(m)
		d.send(start, m)
		answers := d.take() // at once
		if len(answers) != 1 || !strings.Contains(answers[0].GetError(), tt.want) ||
			answers[0].GetEpoch() != 7 || answers[0].GetSequence() != m.GetSequence() || answers[0].GetShard() != m.GetShard() {
			t.Errorf("%s: answers %v", tt.why, answers)
		}
		if got := d.worker.Stats(); got.Refused != 1 || got.Waiting != 0 {
			t.Errorf("%s: %+v", tt.why, got)
		}
	}
	d := newFixture(t, memstore.New())
	d.worker.Receive(start, events.KindReport, []byte("\xff nonsense"), d.reply)
	beyond := good()
	beyond.Sequence = 1 << 60 // no answer could name it
	d.send(start, beyond)
	if got := d.worker.Stats(); len(d.take()) != 0 || got.Malformed != 2 || got.Refused != 0 {
		t.Errorf("nonsense: %+v", got)
	}
}

func TestNothingIsAnsweredBeforeTheStoreIsThere(t *testing.T) {
	down := errors.New("connection refused")
	store := &faulty{Store: memstore.New(), faults: faults{join: down}}
	d := newFixture(t, store)
	if d.next <= start || d.next > start+second {
		t.Errorf("the next try comes at +%d", d.next-start)
	}
	d.send(start, report(1, 1, perSecond(start), own{"a", 0, 1}))
	d.worker.Receive(start, events.KindHello, hello(t, 1, start), d.reply)
	if got := d.take(); len(got) != 0 {
		t.Errorf("answers: %v", got)
	}
	if err := d.worker.Ready(); !errors.Is(err, down) {
		t.Errorf("ready: %v", err)
	}
	store.have(faults{})
	d.step(d.next)
	if err := d.worker.Ready(); err != nil {
		t.Errorf("not ready: %v", err)
	}
}

func TestOptions(t *testing.T) {
	for why, o := range map[string]aggregate.Options{
		"no store":         {Bus: &silent{}},
		"no bus":           {Store: memstore.New()},
		"negative shards":  {Store: memstore.New(), Bus: &silent{}, Shards: -1},
		"too many shards":  {Store: memstore.New(), Bus: &silent{}, Shards: 1 << 20},
		"negative options": {Store: memstore.New(), Bus: &silent{}, Gather: -1},
	} {
		if _, err := aggregate.New(o); err == nil {
			t.Errorf("%s: no error", why)
		}
	}
}

// TestGenerationsOutOfNowhere: a report that speaks of a generation far in the future does not take
// the store there, from where no checker could follow.
func TestGenerationsOutOfNowhere(t *testing.T) {
	d := newFixture(t, memstore.New())
	var last uint64
	for i, generation := range []uint64{0, 1 << 51, 1 << 51, 0} {
		now := start + int64(i+1)*1e9
		d.send(now, &events.Report{
			Epoch: uint64(10 + i), Shards: 1, Sequence: 1, Generation: generation, Version: 5,
			Hits: &events.Table{},
		})
		d.step(now + 10e6)
		answers := d.take()
		if len(answers) != 1 || answers[0].GetError() != "" {
			t.Fatalf("report %d: %v", i, answers)
		}
		if got := answers[0].GetGeneration(); i > 0 && got != last {
			t.Errorf("report %d: generation %d, before it was %d", i, got, last)
		}
		last = answers[0].GetGeneration()
	}
}
