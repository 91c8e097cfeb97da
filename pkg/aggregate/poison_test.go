package aggregate_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/events"
)

// A rule that drains may come with late hits only, and then there is no key that has a level.
func TestOnlyLateHitsOfWhatDrains(t *testing.T) {
	for name, rule := range map[string]*events.Rule{"token bucket": tokens(start), "leaky bucket": queue(start)} {
		t.Run(name, func(t *testing.T) {
			store := &faulty{Store: memstore.New(), hook: withoutLevels}
			d := newFixture(t, store)
			m := report(1, 1, perSecond(start), own{"a", 0, 3})
			addHits(m, rule)
			m.Late = []uint64{0, 7}
			d.want("with another rule's key", totals(d.exchange(start, m)), "0:3")
			if err := d.worker.Ready(); err != nil {
				t.Error(err)
			}
			wantLedger(t, "late", store.Store.(*memstore.Store), rule.GetName(), storage.RuleLedger{Late: 7})
		})
	}
}

// withoutLevels leaves out levels where no key has one, as a store may.
func withoutLevels(batch *storage.Batch, do func() (storage.Applied, error)) (storage.Applied, error) {
	applied, err := do()
	if !slices.ContainsFunc(batch.Keys, func(k storage.Key) bool { return batch.Rules[k.Rule].Drains() }) {
		applied.Levels = nil
	}
	return applied, err
}

// errPoison is what a store says of a batch with the key "poison".
var errPoison = fmt.Errorf("%w: poison", storage.ErrBatch)

func isPoison(k storage.Key) bool { return k.Text == "poison" }

// A report that the store cannot take is given up, and no other waits for it; whether the store
// fails before it has counted or when it answers, in which case all has been counted and nobody is
// told otherwise.
func TestOneReportThatTheStoreCannotTake(t *testing.T) {
	for name, counted := range map[string]bool{"before it is counted": false, "after it is counted": true} {
		t.Run(name, func(t *testing.T) {
			store := memstore.New()
			poisoned := func(batch *storage.Batch, do func() (storage.Applied, error)) (storage.Applied, error) {
				if !slices.ContainsFunc(batch.Keys, isPoison) {
					return do()
				}
				if counted {
					if applied, err := do(); err != nil || len(applied.Repeated) > 0 {
						return applied, err
					}
				}
				return storage.Applied{}, errPoison
			}
			d := newFixture(t, &faulty{Store: store, hook: poisoned})
			for epoch := range uint64(7) {
				key := "good"
				if epoch == 4 {
					key = "poison"
				}
				d.send(start, report(epoch+1, 1, perSecond(start), own{key, 0, 1}))
			}
			d.step(start + 2*ms)
			answers := d.refreshes.take()
			if len(answers) != 7 {
				t.Fatalf("%d of 7 answered", len(answers))
			}
			for _, m := range answers {
				switch {
				case m.GetEpoch() != 5 && (m.GetError() != "" || m.GetRepeated() != counted):
					t.Errorf("a good report is answered by %v", m)
				case m.GetEpoch() == 5 && counted:
					d.want("counted", totals(m), " (repeated)")
				case m.GetEpoch() == 5 && m.GetError() == "":
					t.Errorf("what cannot be counted is answered by %v", m)
				}
			}
			want := storage.RuleLedger{Counted: 6}
			if counted {
				want.Counted = 7
			}
			wantLedger(t, "all", store, "per-second", want)
			if s := d.worker.Stats(); d.worker.Ready() != nil || s.Refused != 1 || s.Dropped != 0 {
				t.Errorf("ready: %v; %d refused, %d dropped", d.worker.Ready(), s.Refused, s.Dropped)
			}
		})
	}
}

// Where a shard's every batch fails that is nobody's fault, and reports wait; the shard is left,
// and Ready says so.
func TestAStoreThatTakesNoBatch(t *testing.T) {
	store := &faulty{Store: memstore.New()}
	d := newFixture(t, store)
	store.have(faults{before: errPoison})
	m := report(1, 1, perSecond(start), own{"a", 0, 1})
	d.send(start, m)
	d.send(start, leaseRequest(1, 1, perSecond(start), wish{key: "a", want: 1}))
	d.step(start + 2*ms)
	if s := d.worker.Stats(); len(d.refreshes.list)+len(d.grants.list) > 0 || s.Dropped != 1 || s.LeasesDropped != 1 {
		t.Errorf("answers %v, %v; %d and %d dropped", d.refreshes.list, d.grants.list, s.Dropped, s.LeasesDropped)
	}
	if err := d.worker.Ready(); !errors.Is(err, errPoison) {
		t.Errorf("ready: %v", err)
	}
	d.bus.wantAttended(t, "a shard that takes nothing", false)
	store.have(faults{})
	d.want("once it does", totals(d.exchange(start+second, m)), "0:1")
	d.bus.wantAttended(t, "once it does", true)
}

func TestOneLeaseRequestThatTheStoreCannotTake(t *testing.T) {
	poisoned := func(batch *storage.LeaseBatch) error {
		if slices.ContainsFunc(batch.Keys, func(k storage.LeaseKey) bool { return k.Text == "poison" }) {
			return errPoison
		}
		return nil
	}
	d := newFixture(t, &faulty{Store: memstore.New(), lease: poisoned})
	for epoch, key := range []string{"a", "poison", "b"} {
		d.send(start, leaseRequest(uint64(epoch)+1, 1, perSecond(start), wish{key: key, want: 1}))
	}
	d.step(start + 2*ms)
	grants := d.grants.take()
	if len(grants) != 3 {
		t.Fatalf("%d of 3 answered", len(grants))
	}
	for _, g := range grants {
		if (g.GetError() != "") != (g.GetEpoch() == 2) {
			t.Errorf("answered by %v", g)
		}
	}
	if s := d.worker.Stats(); s.LeasesRefused != 1 || s.LeasesDropped != 0 {
		t.Errorf("%d refused, %d dropped", s.LeasesRefused, s.LeasesDropped)
	}
}

func TestErrBatchIsReported(t *testing.T) {
	var got []error
	withoutTotals := func(_ *storage.Batch, do func() (storage.Applied, error)) (storage.Applied, error) {
		applied, err := do()
		applied.Totals = nil
		return applied, err
	}
	d := newFixture(t, &faulty{Store: memstore.New(), hook: withoutTotals}, func(o *aggregate.Options) {
		o.OnApply = func(info aggregate.ApplyInfo) { got = append(got, info.Err) }
	})
	d.send(start, report(1, 1, perSecond(start), own{"a", 0, 1}))
	d.step(start + 2*ms)
	if len(got) == 0 || !errors.Is(got[0], storage.ErrBatch) {
		t.Errorf("a store that leaves out totals: %v", got)
	}
}

// failingWithKeys fails each batch of a report, and no probe.
func failingWithKeys(err error) func(*storage.Batch, func() (storage.Applied, error)) (storage.Applied, error) {
	return func(batch *storage.Batch, do func() (storage.Applied, error)) (storage.Applied, error) {
		if len(batch.Keys) == 0 {
			return do()
		}
		return storage.Applied{}, err
	}
}

// Neither requests that are refused again and again nor a shard that comes and goes fill the log.
func TestFailuresAreLoggedNowAndThen(t *testing.T) {
	store := &faulty{Store: memstore.New()}
	d := newFixture(t, store)
	now := start
	for _, c := range []struct {
		err  error
		text string
	}{
		{errPoison, "given up"},
		{errors.New("denied"), "takes no reports"},
		{errors.New("denied"), "takes reports again"},
	} {
		d.log.Reset()
		store.hook = failingWithKeys(c.err)
		for range 21 {
			m := report(1, uint64(now/second), perSecond(start), own{"a", 0, 1})
			now += second
			d.send(now, m)
			d.step(now + 2*ms)
			d.step(now + 500*ms)
		}
		if n := strings.Count(d.log.String(), c.text); n < 2 || n > 3 {
			t.Errorf("%d times %q in 21 s:\n%s", n, c.text, d.log)
		}
	}
}
