package storetest

import (
	"errors"
	"iter"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/window"
)

// bench is a store on the bench: whatever it does is held against the model.
type bench struct {
	*testing.T
	Harness
	now   int64
	model *model
	seen  storage.State // of shard 0
	last  uint64        // sequence given out by next
	late  int64         // the latest time by which permits were granted
}

// batch begins a batch for shard 0.
func (b *bench) batch() *draft {
	return &draft{storage.Batch{Now: b.now, Seen: b.seen}}
}

// fresh begins a batch for shard 0 that holds a new report.
func (b *bench) fresh() *draft {
	b.last++
	return b.batch().mark(1, b.last)
}

// rounds is how many batches a test of random ones makes.
func (b *bench) rounds() int {
	if testing.Short() {
		return 100
	}
	return 400
}

// lose drops all data; no aggregator remembers any state.
func (b *bench) lose() {
	b.Helper()
	b.loseUnnoticed()
	b.seen = storage.State{}
}

// loseUnnoticed drops all data, of which aggregators remember the state.
func (b *bench) loseUnnoticed() {
	b.Helper()
	b.Lose(b)
	*b.model = *newModel()
}

// leaseUnchecked carries a batch out, and takes in only the state.
func (b *bench) leaseUnchecked(d *leaseDraft) storage.Leased {
	b.Helper()
	leased := must(b.Store.Lease(b.Context(), &d.LeaseBatch))(b)
	b.seen, b.model.state[0] = leased.State, leased.State
	return leased
}

// near reports whether an expiry is to within a second what it should be. A store with a clock
// counts from when it did the work, which may be any time since the test began.
func (b *bench) near(at, want int64) bool {
	waited := int64(0)
	if b.Clock != nil {
		waited = b.Clock() - b.Harness.Now
	}
	return want-int64(time.Second) <= at && at <= want+int64(time.Second)+waited
}

// each goes through shapes in the order of their names, so that random tests do the same in each
// run.
func each(shapes map[string]window.Shape) iter.Seq2[string, window.Shape] {
	return func(yield func(string, window.Shape) bool) {
		for _, name := range slices.Sorted(maps.Keys(shapes)) {
			if !yield(name, shapes[name]) {
				return
			}
		}
	}
}

// join is what a worker does first.
func (b *bench) join(store storage.Store, shards int) storage.Fleet {
	b.Helper()
	return must(store.Join(b.Context(), shards))(b)
}

// must returns the result of a call, unless it has failed: then the test ends.
func must[T any](v T, err error) func(*bench) T {
	return func(b *bench) T {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
		return v
	}
}

// apply applies a batch and checks all that it returns; it returns the state and what was repeated.
func (b *bench) apply(d *draft) storage.Applied {
	b.Helper()
	return b.applyTo(b.Store, d)
}

func (b *bench) applyTo(store storage.Store, d *draft) storage.Applied {
	b.Helper()
	applied := must(store.Apply(b.Context(), &d.Batch))(b)
	repeated, spent, overdrawn := b.model.repeated(&d.Batch), b.model.areSpent(&d.Batch), b.model.overdrawn(&d.Batch)
	if !slices.Equal(applied.Repeated, repeated) || !slices.Equal(applied.Spent, spent) || !slices.Equal(applied.Overdrawn, overdrawn) {
		b.Fatalf("got %v repeated, %v spent, %v overdrawn, want %v, %v, %v",
			applied.Repeated, applied.Spent, applied.Overdrawn, repeated, spent, overdrawn)
	}
	if len(repeated)+len(spent)+len(overdrawn) > 0 {
		return applied
	}
	b.model.apply(&d.Batch)
	b.checkTotals(d, applied.Totals)
	b.checkLevels(d, applied.Levels)
	b.checkState(d, applied.State)
	return applied
}

func (b *bench) checkTotals(d *draft, totals [][]storage.Cell) {
	b.Helper()
	if len(totals) != len(d.Keys) {
		b.Fatalf("totals of %d keys, want %d", len(totals), len(d.Keys))
	}
	for i, cells := range totals {
		want := b.model.totals(&d.Batch, i)
		got := make(map[int64]int64)
		current := d.Rules[d.Keys[i].Rule].Shape.Bucket(d.Now)
		for j, c := range cells {
			if j > 0 && c.Bucket <= cells[j-1].Bucket {
				b.Fatalf("key %q: buckets in no order: %v", d.Keys[i].Text, cells)
			}
			if _, asked := want[c.Bucket]; asked || c.Bucket <= current && c.Count != 0 {
				got[c.Bucket] = c.Count
			}
		}
		if !maps.Equal(got, want) {
			b.Fatalf("key %q of %+v: got %v, want %v", d.Keys[i].Text, d.Rules[d.Keys[i].Rule], got, want)
		}
	}
}

func (b *bench) checkLevels(d *draft, levels []window.Level) {
	b.Helper()
	for i := range d.Keys {
		r := &d.Rules[d.Keys[i].Rule]
		if !r.Drains() {
			continue
		}
		if len(levels) != len(d.Keys) {
			b.Fatalf("levels of %d keys, want %d", len(levels), len(d.Keys))
		}
		if want := b.model.level(&d.Batch, i); levels[i] != want {
			b.Fatalf("key %q of %+v: level %+v, want %+v", d.Keys[i].Text, *r, levels[i], want)
		}
	}
}

// checkState expects a state later than the last one, in the same generation.
func (b *bench) checkState(d *draft, got storage.State) {
	b.Helper()
	was := b.model.state[d.Shard]
	switch {
	case got.Generation == 0:
		b.Fatal("no generation")
	case was.Generation != 0 && got.Generation != was.Generation:
		b.Fatalf("a new generation, without a loss of data: %v after %v", got, was)
	case len(d.Marks) > 0 && !was.Less(got):
		b.Fatalf("state %v after %v", got, was)
	}
	b.model.state[d.Shard] = got
	if d.Shard == 0 {
		b.seen = got
	}
}

func (b *bench) checkLedger() {
	b.Helper()
	if got := b.Ledger(b); !maps.Equal(got, b.model.ledger) {
		b.Fatalf("ledger: got %v, want %v", got, b.model.ledger)
	}
}

func (b *bench) wantShardsError(store storage.Store, shards int) {
	b.Helper()
	if _, err := store.Join(b.Context(), shards); !errors.Is(err, storage.ErrShards) {
		b.Errorf("Join(%d): got %v, want ErrShards", shards, err)
	}
}
