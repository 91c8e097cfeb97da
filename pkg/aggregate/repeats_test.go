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

// A worker that applies and dies before it answers, or whose store says no but did it: the report
// comes again, to it or to another worker, and is counted once.
func TestReportsAreCountedOnceIfTheStoreFails(t *testing.T) {
	store := memstore.New()
	dying := &faulty{Store: store}
	first, second := newFixture(t, dying), newFixture(t, store)
	m := report(1, 1, perSecond(start), own{"a", 0, 3}, own{"b", 0, 1})

	dying.have(faults{after: errors.New("connection lost")})
	first.send(start, m)
	first.step(start + 2*ms)
	if got := first.refreshes.take(); len(got) != 0 || first.worker.Ready() == nil {
		t.Errorf("answers without knowing: %v; ready: %v", got, first.worker.Ready())
	}
	second.want("from another worker", totals(second.exchange(start+10*ms, m)), "0:3 | 0:1 (repeated)")

	dying.have(faults{before: errors.New("connection refused")})
	m = report(1, 2, perSecond(start), own{"a", 0, 5})
	first.send(start+20*ms, m)
	first.step(start + 30*ms)
	if got := first.refreshes.take(); len(got) != 0 {
		t.Errorf("answers without a store: %v", got)
	}
	if got := first.worker.Stats(); got.ApplyErrors != 2 || got.Dropped != 2 {
		t.Errorf("%+v", got)
	}
	dying.have(faults{})
	first.want("again", totals(first.exchange(start+40*ms, m)), "0:8")
	if err := first.worker.Ready(); err != nil {
		t.Errorf("not ready: %v", err)
	}
	wantLedger(t, "in the end", store, "per-second", aggregate.RuleLedger{Counted: 9})
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
		answers := second.refreshes.take()
		if len(answers) != 4 {
			t.Fatalf("mix %b: %d answers", mix, len(answers))
		}
		for i, m := range answers {
			want := fmt.Sprintf("0:4 | 0:%d", 1<<i)
			if mix>>i&1 == 1 {
				want += " (repeated)"
			}
			second.want(fmt.Sprintf("mix %b, report %d", mix, i), totals(m), want)
		}
		wantLedger(t, fmt.Sprintf("mix %b", mix), store, "per-second", aggregate.RuleLedger{Counted: 4 + 15})
	}
}

// While some reports turn out to be repeats, another worker counts one more: the third fold knows
// both.
func TestRepeatsDuringAFold(t *testing.T) {
	store := memstore.New()
	other := newFixture(t, store)
	reports := make([]*events.Report, 5)
	for i := range reports {
		reports[i] = report(uint64(i)+1, 1, perSecond(start), own{fmt.Sprint("own", i), 0, 1 << i})
	}
	other.exchange(start, reports[1])
	folds := 0
	hook := func(_ *aggregate.Fold, do func() (aggregate.Applied, error)) (aggregate.Applied, error) {
		if folds++; folds == 2 {
			other.exchange(start, reports[3])
		}
		return do()
	}
	d := newFixture(t, &faulty{Store: store, hook: hook})
	for _, m := range reports {
		d.send(start, m)
	}
	d.step(start + 2*ms)
	for i, m := range d.refreshes.take() {
		want := fmt.Sprintf("0:%d", 1<<i)
		if i == 1 || i == 3 {
			want += " (repeated)"
		}
		d.want(fmt.Sprint("report ", i), totals(m), want)
	}
	if got := d.worker.Stats(); got.Answered != 5 || got.Refolds != 2 || got.Repeated != 2 || got.HitsCounted != 1+4+16 {
		t.Errorf("%+v", got)
	}
}

func TestOnApplySeesEachFold(t *testing.T) {
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
func TestEndlessRepeatsAreGivenUp(t *testing.T) {
	first := func(*aggregate.Fold, func() (aggregate.Applied, error)) (aggregate.Applied, error) {
		return aggregate.Applied{Repeated: []int{0}}, nil
	}
	d := newFixture(t, &faulty{Store: memstore.New(), hook: first})
	for epoch := range uint64(20) {
		d.send(start, report(epoch+1, 1, perSecond(start), own{"a", 0, 1}))
	}
	d.step(start + 2*ms)
	if got := d.worker.Stats(); got.Dropped != 20 || got.Waiting != 0 {
		t.Errorf("%+v", got)
	}
}

func TestStoreThatLostDataStartsAGeneration(t *testing.T) {
	store := memstore.New()
	d := newFixture(t, store)
	before := d.exchange(start, report(1, 1, perSecond(start), own{"a", 0, 5}))
	store.Lose()
	m := report(1, 2, perSecond(start), own{"a", 0, 1})
	after := d.exchange(start, m) // the checker says nothing; the worker remembers
	d.want("after a loss", totals(after), "0:1")
	if after.GetGeneration() <= before.GetGeneration() {
		t.Errorf("generation %d after %d", after.GetGeneration(), before.GetGeneration())
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
