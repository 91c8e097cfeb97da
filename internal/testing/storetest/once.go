package storetest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
)

// Every mix of new and repeated reports: nothing changes but by a batch in which all are new.
func testRepeats(b *bench) {
	const reports = 4
	for mix := range 1 << reports {
		report := func(d *draft, i int) *draft {
			d.mark(uint64(100+mix*reports+i), 5).add("one", perMinute, "shared", 0, int64(i)+1)
			return d.add("many", inMinutes, fmt.Sprint("own-", i), 0, 1)
		}
		d := b.batch()
		for i := range reports {
			report(d, i)
			if mix>>i&1 == 1 {
				b.apply(report(b.batch(), i))
			}
		}
		before := b.seen
		if repeated := b.apply(d).Repeated; len(repeated) > 0 {
			if b.seen != before {
				b.Errorf("mix %b: a refused batch changed the state", mix)
			}
			again := b.batch() // the new ones add, the others only ask
			for i := range reports {
				if mix>>i&1 == 0 {
					report(again, i)
				}
				again.read("many", inMinutes, fmt.Sprint("own-", i))
			}
			b.applyTo(b.Other, again)
		}
		b.applyTo(b.Other, d) // as another worker would, later: now all are repeats
		b.checkLedger()
	}
}

func testMarks(b *bench) {
	b.apply(b.batch().mark(math.MaxUint64, 3).add("one", perMinute, "a", 0, 1))
	b.apply(b.batch().mark(math.MaxUint64, 2).add("one", perMinute, "a", 0, 1)) // older: repeated too
	b.apply(b.batch().mark(math.MaxUint64, 3).add("one", perMinute, "a", 0, 1))
	b.apply(b.batch().mark(math.MaxUint64, 9).add("one", perMinute, "a", 0, 1)) // a gap is no matter
	b.apply(b.batch().mark(1, 1<<50).add("one", perMinute, "a", 0, 1))
	b.apply(b.batch().mark(1, 1<<50).add("one", perMinute, "a", 0, 1))
	b.apply(b.batch().mark(1, 1<<50+1).add("one", perMinute, "a", 0, 1))
	d := b.batch()
	for epoch := range uint64(3000) { // more than a script can unpack at once
		d.mark(10+epoch, 1)
	}
	d.add("one", perMinute, "a", 0, 1)
	b.apply(d)
	b.apply(d)
	b.checkLedger()
}

func testLedger(b *bench) {
	b.checkLedger()
	d := b.fresh() // no keys at all: late and refused only
	d.Ledger[d.rule("one", perMinute)] = storage.Tally{Late: 3, Refused: 4}
	b.apply(d)
	d = b.fresh().add("one", perMinute, "a", 0, 2).add("many", inMinutes, "a", 0, 1)
	d.Ledger[d.rule("one", perMinute)].Late = 10
	d.Ledger[d.rule(`a "rule": {of} some|kind`, fixed)].Refused = 1
	b.apply(d)
	b.apply(b.fresh().add("one", inMinutes, "a", 0, 1)) // the same name in another shape
	b.now += int64(24 * time.Hour)                      // it never expires
	b.apply(b.fresh().add("one", perMinute, "a", 0, 2))
	b.checkLedger()
	want := storage.RuleLedger{Counted: 5, Late: 13, Refused: 4}
	if got := b.Ledger(b)["one"]; got != want {
		b.Errorf("got %+v, want %+v", got, want)
	}
}

// Two workers apply the same reports, or the same settlements, at the same time: each is counted
// once.
func testTwoWorkers(b *bench) {
	const batches = 200
	for _, name := range []string{"report", "settlement"} {
		var workers sync.WaitGroup
		versions := make([][]uint64, 2)
		for w, store := range []storage.Store{b.Store, b.Other} {
			workers.Go(func() {
				for i := range uint64(batches) {
					d := &draft{storage.Batch{Now: b.now}}
					d.add(name, perMinute, "a", 0, 1).add(name, inMinutes, "a", 0, 1)
					d.mark(uint64(len(name)*1000+w), i+1)
					if name == "report" {
						d.mark(1, i/2+1)
					} else {
						d.settle(1, i/2+1)
					}
					applied, err := store.Apply(b.Context(), &d.Batch)
					if err != nil {
						b.Error(err)
						return
					}
					if len(applied.Repeated)+len(applied.Spent) == 0 {
						versions[w] = append(versions[w], applied.State.Version)
					}
				}
			})
		}
		workers.Wait()
		all := slices.Sorted(slices.Values(slices.Concat(versions...)))
		if n := len(all); len(slices.Compact(all)) < n {
			b.Errorf("%s: a version twice", name)
		}
		// A worker that is ahead makes the other's older reports repeats.
		if n := len(all); n == 0 || n > batches/2 || name == "settlement" && n != batches/2 {
			b.Errorf("%s: %d of %d were applied", name, n, batches/2)
		}
		if got, want := b.Ledger(b)[name], (storage.RuleLedger{Counted: 2 * int64(len(all))}); got != want {
			b.Errorf("%s: ledger %+v, want %+v", name, got, want)
		}
	}
}

// Random batches, with repeats, as the model does them.
func testRandom(b *bench) {
	random := rand.New(rand.NewPCG(1, 2))
	sequences := make(map[uint64]uint64)
	for range b.rounds() {
		b.now += random.Int64N(int64(20 * time.Second))
		if random.IntN(50) == 0 {
			b.now += int64(2 * time.Hour) // nothing is left
		}
		d := b.batch()
		for epoch := range uint64(1 + random.IntN(4)) {
			if random.IntN(10) > 0 {
				sequences[epoch]++
			}
			d.mark(1+epoch, max(sequences[epoch], 1))
		}
		for range random.IntN(20) {
			for name, shape := range each(shapes) {
				age := random.Int64N(int64(shape.Live())+2) - 2
				d.add(name, shape, fmt.Sprint("key-", random.IntN(10)), age, random.Int64N(3))
			}
		}
		store := b.Store
		if random.IntN(2) == 0 {
			store = b.Other
		}
		b.applyTo(store, d)
	}
	b.checkLedger()
}
