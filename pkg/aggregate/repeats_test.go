package aggregate_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/events"
)

// A worker that applies and dies before it answers, or whose store says no but did it: the report
// comes again, to it or to another worker, and is counted once. OnApply sees each batch.
func TestReportsAreCountedOnceIfTheStoreFails(t *testing.T) {
	store := memstore.New()
	dying := &faulty{Store: store}
	var calls []string
	tell := func(o *aggregate.Options) {
		o.OnApply = func(i aggregate.ApplyInfo) {
			calls = append(calls, fmt.Sprintf("%d marks, %d repeated, %v", len(i.Batch.Marks), i.Repeated, i.Err))
		}
	}
	first, second := newFixture(t, dying, tell), newFixture(t, store, tell)
	fails := func(after int64, m *events.Report, f faults) {
		t.Helper()
		dying.have(f)
		first.send(start+after, m)
		first.step(start + after + 2*ms)
		if got := first.refreshes.take(); len(got) != 0 || first.worker.Ready() == nil {
			t.Errorf("answers without knowing: %v; ready: %v", got, first.worker.Ready())
		}
	}
	m := report(1, 1, perSecond(start), own{"a", 0, 3}, own{"b", 0, 1})
	fails(0, m, faults{after: errors.New("lost")})
	second.want("from another worker", totals(second.exchange(start+10*ms, m)), "0:3 | 0:1 (repeated)")

	m = report(1, 2, perSecond(start), own{"a", 0, 5})
	fails(20*ms, m, faults{before: errors.New("refused")})
	if got := first.worker.Stats(); got.ApplyErrors != 2 || got.Dropped != 2 {
		t.Errorf("%+v", got)
	}
	dying.have(faults{})
	first.want("again", totals(first.exchange(start+40*ms, m)), "0:8")
	if err := first.worker.Ready(); err != nil {
		t.Errorf("not ready: %v", err)
	}
	wantLedger(t, "in the end", store, "per-second", storage.RuleLedger{Counted: 9})
	first.want("OnApply", strings.Join(calls, "; "), "1 marks, 0 repeated, lost; 1 marks, 1 repeated, <nil>; "+
		"0 marks, 0 repeated, <nil>; 1 marks, 0 repeated, refused; 1 marks, 0 repeated, <nil>")
}

// Batches in which some reports are repeats, in every mix: two workers, and what one has counted is
// asked of the other.
func TestPartlyRepeatedBatches(t *testing.T) {
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
		wantLedger(t, fmt.Sprintf("mix %b", mix), store, "per-second", storage.RuleLedger{Counted: 4 + 15})
	}
}

// While some reports turn out to be repeats, another worker counts one more: the third batch knows
// both.
func TestRepeatsDuringABatch(t *testing.T) {
	store := memstore.New()
	other := newFixture(t, store)
	reports := make([]*events.Report, 5)
	for i := range reports {
		reports[i] = report(uint64(i)+1, 1, perSecond(start), own{fmt.Sprint("own", i), 0, 1 << i})
	}
	other.exchange(start, reports[1])
	batches := 0
	hook := func(_ *storage.Batch, do func() (storage.Applied, error)) (storage.Applied, error) {
		if batches++; batches == 2 {
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
	if got := d.worker.Stats(); got.Answered != 5 || got.Retries != 2 || got.Repeated != 2 || got.HitsCounted != 1+4+16 {
		t.Errorf("%+v", got)
	}
}

// A store that always finds another repeat does not keep the worker for ever.
func TestEndlessRepeatsAreGivenUp(t *testing.T) {
	first := func(*storage.Batch, func() (storage.Applied, error)) (storage.Applied, error) {
		return storage.Applied{Repeated: []int{0}}, nil
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

// A store that has lost its data starts a new generation if anybody remembers the old one, the
// worker or the memory, which the worker or another one has told, and grants no permits until the
// old ones have left the window.
func TestStoreThatLostDataStartsAGeneration(t *testing.T) {
	for _, who := range []string{"worker", "memory", "other worker"} {
		memory := new(memstore.Memory)
		kept := func(o *aggregate.Options) { o.Memory = memory }
		store := memstore.New()
		other := newFixture(t, store, kept)
		d := newFixture(t, store, kept)
		tell := func() *fixture { // and return who finds it out
			d.step(start + 2*second)
			other.step(start + 2*second)
			switch who {
			case "memory":
				return newFixture(t, store, kept)
			case "other worker":
				return other
			}
			return d
		}
		before := d.exchange(start, report(1, 1, perSecond(start), own{"a", 0, 5}))
		d = tell()
		store.Lose()
		after := d.exchange(start+second, report(1, 2, perSecond(start), own{"a", 0, 1}))
		d.want(who, totals(after), "0:1")
		if after.GetGeneration() <= before.GetGeneration() || after.GetVersion() != 1 {
			t.Errorf("%s: generation %d after %d", who, after.GetGeneration(), before.GetGeneration())
		}

		store, memory = memstore.New(), new(memstore.Memory)
		other, d = newFixture(t, store, kept), newFixture(t, store, kept)
		held := d.lease(start, leaseRequest(1, 1, perSecond(start), wish{key: "a", want: 4}))
		d = tell()
		store.Lose()
		ask := leaseRequest(2, 2, perSecond(start), wish{key: "a", want: 10})
		none := d.lease(start+300*ms, ask)
		d.want(who, permits(none), "0:0/0 2000")
		if none.GetGeneration() <= held.GetGeneration() {
			t.Errorf("%s: generation %d after %d", who, none.GetGeneration(), held.GetGeneration())
		}
		d.want(who+", just before", permits(d.lease(start+2299*ms, ask)), "-2:0/0 1")
		d.want(who+", then", permits(d.lease(start+2300*ms, ask)), "-2:10/0 799")
	}
}
