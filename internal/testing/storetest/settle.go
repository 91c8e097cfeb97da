package storetest

import (
	"math"
	"slices"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/window"
)

// settle makes the batch hold a settlement.
func (d *draft) settle(epoch, number uint64) *draft {
	d.Settled = append(d.Settled, storage.Settled{Epoch: epoch, Number: number})
	return d
}

// giveBack makes the batch refund n hits of the bucket that is age buckets old.
func (d *draft) giveBack(name string, shape window.Shape, key string, age, n int64) *draft {
	rule := d.rule(name, shape)
	d.add(name+refunded, shape, key, age, n)
	d.Ledger[d.rule(name+refunded, shape)].Counted = 0
	d.Ledger[rule].Refunded += n
	return d
}

// Refunds are counters of their own beside the admitted hits', and in the ledger of these.
func testSettle(b *bench) {
	number := uint64(1)
	for name, shape := range shapes {
		b.apply(b.fresh().add(name, shape, "a", 0, 10).add(name, shape, "b", 0, 7))
		b.apply(b.fresh().settle(7, number).giveBack(name, shape, "a", 0, 4))
		d := b.fresh().settle(7, number+1).add(name, shape, "a", 0, 5)
		d.Ledger[0].Settled += 5
		d.read(name+refunded, shape, "a")
		d.read(name+refunded, shape, "b")
		applied := b.apply(d)
		if got := applied.Totals; got[0][0].Count != 15 || got[1][0].Count != 4 || len(got[2]) != 0 {
			b.Errorf("%s: totals %v", name, got)
		}
		late := b.fresh().settle(7, number+2)
		late.Ledger[late.rule(name, shape)] = storage.Tally{Refunded: 2}
		b.apply(late)
		b.checkLedger()
		number += 3
	}
}

// Nothing of a batch happens unless all of its settlements are new, whatever else is in it, and
// whichever worker has met them before.
func testSettleRepeats(b *bench) {
	numbers := []uint64{1, 2, 63, 64, 511, 512, 8191, 8192, 8193, 1 << 40, 1<<52 - 300}
	epochs := []uint64{1, 2, math.MaxUint64}
	for i, number := range numbers {
		for _, epoch := range epochs {
			store, other, fresh := b.Store, b.Other, epoch/2+10
			if i%2 == 1 {
				store, other = other, store
			}
			b.applyTo(store, b.fresh().settle(epoch, number).add("one", perMinute, "a", 0, 1))
			before := b.seen
			again := b.fresh().settle(fresh, number).settle(epoch, number).add("one", perMinute, "a", 0, 1)
			if got := b.applyTo(other, again).Spent; len(got) != 1 || got[0] != 1 {
				b.Fatalf("epoch %d, number %d: spent %v", epoch, number, got)
			}
			if b.seen != before {
				b.Fatalf("epoch %d, number %d: a refused batch has changed the state", epoch, number)
			}
			without := b.fresh().settle(fresh, number).add("one", perMinute, "a", 0, 1)
			without.Marks = again.Marks // which that batch has not raised
			b.applyTo(other, without)
		}
	}
	b.Snapshot(b)()
	b.apply(b.fresh().settle(1, 1).add("one", perMinute, "a", 0, 1)) // a copy remembers, too
	// A repeated report with a known settlement: the answer has both.
	d := b.batch().mark(1, 1).settle(1, 1).settle(1, 5).add("one", perMinute, "a", 0, 1)
	if got := b.apply(d); len(got.Repeated) != 1 || len(got.Spent) != 1 {
		b.Errorf("repeated %v, spent %v", got.Repeated, got.Spent)
	}
	b.checkLedger()
	// Another shard has numbers of its own.
	elsewhere := &draft{storage.Batch{Shard: 3, Now: b.now}}
	elsewhere.mark(1, 1).settle(1, 1).add("one", perMinute, "a", 0, 1)
	b.apply(elsewhere)
}

// Numbers are remembered for a day after they were met, and then forgotten.
func testSettleExpiry(b *bench) {
	if b.Clock != nil { // the store's own time shows in its expiries
		b.apply(b.fresh().settle(1, 1))
		want, found := b.now+int64(24*time.Hour), 0
		for _, at := range b.Expiries(b) {
			if b.near(at, want) {
				found++
			}
		}
		if found != 3 { // and the mark, and how many chunks there are
			b.Errorf("%d things are remembered for a day, want 3: %v", found, b.Expiries(b))
		}
		return
	}
	b.apply(b.fresh().settle(1, 1))
	b.now += int64(23 * time.Hour)
	b.apply(b.fresh().settle(1, 2)) // in the same place
	b.now += int64(23 * time.Hour)
	b.apply(b.fresh().settle(1, 2))
	b.now += int64(time.Hour) + 1
	b.model.spent = make(map[settled]bool)
	b.apply(b.fresh().settle(1, 1).settle(1, 2))
}

// What is settled of hits that have spent permits changes what is held of them.
func testSettlePermits(b *bench) {
	b.longAgo()
	for name, shape := range shapes {
		for _, key := range []string{"a", "a key that is longer than what is a field as it is, which is sixty-four bytes"} {
			grant := func(epoch uint64, known, want, granted int64) {
				b.Helper()
				d := b.leases(10).want(name, shape, key, epoch, known, want)
				if k := b.leaseUnchecked(d).Keys[0]; k.New != granted {
					b.Errorf("%s: %d permits, want %d; held %v", name, k.New, granted, k.Held)
				}
			}
			number := uint64(len(b.model.spent))
			change := func(n int64) {
				b.Helper()
				number++
				d := b.fresh().settle(5, number)
				d.Permits = []storage.Permits{{Rule: d.rule(name, shape), Text: key, Bucket: shape.Bucket(b.now), Count: n}}
				b.apply(d)
			}
			change(-3) // no lease yet: nothing to change
			grant(1, 0, 10, 10)
			grant(2, 0, 10, 0)
			change(-4)
			grant(2, 0, 10, 4)
			change(+3) // it was more than the estimate
			grant(3, 0, 10, 0)
			change(-4)
			grant(3, 0, 10, 1)
			change(-1000) // nonsense: all, and no more than that
			grant(4, 0, 100, 10)
			change(-8)
			d := b.leases(10).ask(name, shape, key, storage.LeaseRequest{ // and then some permits come back as well
				Epoch: 1, Bucket: shape.Bucket(b.now), Known: 10, Returns: []storage.Cell{{Bucket: shape.Bucket(b.now), Count: 10}},
			})
			if k := b.leaseUnchecked(d).Keys[0]; k.Held[0].Count != 0 {
				b.Errorf("%s: %+v", name, k)
			}
		}
	}
}

// What hits cost less than was estimated is taken off the level, as if it had never been charged:
// what has drained of it does not come back. Limit 100 a minute in 60 buckets of a second: 100
// parts of 60 to a hit drain in each.
func testSettleLevel(b *bench) {
	d := b.fresh().add("tokens", tokens, "a", 0, 90).add("tokens", tokens, "b", 0, 90).add("tokens", tokens, "c", 0, 90)
	b.apply(d)
	b.apply(b.fresh().giveBack("tokens", tokens, "a", 0, 30).giveBack("tokens", tokens, "b", 0, 90))
	b.apply(b.fresh().giveBack("tokens", tokens, "c", 0, 1000)) // nonsense: all, and no more
	b.now += 30 * int64(time.Second)
	b.apply(b.fresh().add("tokens", tokens, "b", 0, 10).add("tokens", tokens, "c", 0, 10))
	b.apply(b.fresh().giveBack("tokens", tokens, "a", 30, 20)) // of the first bucket, of which 50 have drained by now
	b.now += 61 * int64(time.Second)
	// Of the 40 hits that a cost none are left, of the later ones all are; then they drain.
	for _, want := range [][3]int64{{0, 600, 600}, {0, 500, 500}} {
		d := b.batch()
		for _, key := range []string{"a", "b", "c"} {
			d.read("tokens", tokens, key)
		}
		levels := b.apply(d).Levels
		if got := [3]int64{levels[0].Parts, levels[1].Parts, levels[2].Parts}; got != want {
			b.Errorf("levels %v, want %v", got, want)
		}
		b.now += int64(time.Second)
	}
	b.checkLedger()
}

// credit makes the batch report and return hits of a credential, of the window that is age windows
// before now.
func (d *draft) credit(credential uint32, name string, shape window.Shape, age, reported, returned int64) *draft {
	d.Credits = append(d.Credits, storage.Credit{
		Credential: credential, Rule: d.rule(name, shape), Window: shape.Bucket(d.Now)/int64(shape.Buckets) - age,
		Reported: reported, Returned: returned,
	})
	return d
}

// Nothing of a batch is applied unless all hits that it returns have been reported, by the same
// credential, of the same rule and window, through any worker. The answer says how much is left.
func testCredits(b *bench) {
	for name, shape := range shapes {
		b.apply(b.fresh().credit(1, name, shape, 0, 100, 0).credit(1, name, shape, 1, 7, 0))
		before := b.seen
		for _, d := range []*draft{
			b.fresh().credit(1, name, shape, 0, 0, 101),
			b.fresh().credit(2, name, shape, 0, 0, 1),
			b.fresh().credit(1, name+" of others", shape, 0, 0, 1),
			b.fresh().credit(1, name, shape, 1, 3, 11),
			b.fresh().add(name, shape, "a", 0, 5).credit(1, name, shape, 1, 0, 0).credit(1, name, shape, 0, 0, storage.MaxCredit),
		} {
			if got := b.applyTo(b.Other, d).Overdrawn; len(got) != 1 || b.seen != before {
				b.Errorf("%s: overdrawn %v", name, got)
			}
		}
		b.applyTo(b.Other, b.fresh().credit(1, name, shape, 0, 5, 105).credit(1, name, shape, 1, 0, 3))
		b.apply(b.fresh().credit(1, name, shape, 0, 0, 1).credit(1, name, shape, 1, 0, 4))
		b.apply(b.fresh().credit(3, name, shape, 0, storage.MaxCredit, 0))
		b.apply(b.fresh().credit(3, name, shape, 0, storage.MaxCredit, 1)) // no more than that is kept
		b.apply(b.fresh().credit(3, name, shape, 0, 0, storage.MaxCredit).settle(4, 1))
		b.apply(b.fresh().credit(3, name, shape, 0, 0, 1).settle(4, 1)) // the answer has both
	}
	b.Snapshot(b)()
	b.apply(b.fresh().credit(1, "one", perMinute, 1, 0, 5))
	b.checkLedger()
	b.apply(b.fresh().credit(5, "brief", brief, 0, 1, 0))
	if b.Clock == nil {
		b.now += int64(24 * time.Hour)
		b.apply(b.fresh())
		b.model.credits = make(map[credit]int64)
		b.apply(b.fresh().credit(5, "brief", brief, 0, 0, 1))
		return
	}
	want := storage.ExpiryOf(brief, brief.Bucket(b.now))
	if !slices.ContainsFunc(b.Expiries(b), func(at int64) bool { return b.near(at, want) }) {
		b.Errorf("nothing expires at %d: %v", want, b.Expiries(b))
	}
}

// brief is a window unlike those of all other tests.
var brief = window.Shape{Length: 97 * time.Minute, Buckets: 1}

// A sender may have a number of chunks kept in a day, of any checkers; a chunk that another sender
// has added to since then does not count. Nothing of a batch is applied unless there is room for
// all of it.
func testSettledChunks(b *bench) {
	const most = 3
	settle := func(sender uint32, epochs ...uint64) []int {
		b.Helper()
		d := b.fresh()
		d.MaxChunks = most
		for _, epoch := range epochs {
			number := uint64(len(b.model.spent)) % storage.Chunk
			d.Settled = append(d.Settled, storage.Settled{Epoch: epoch, Number: number, Sender: sender})
		}
		applied := must(b.Other.Apply(b.Context(), &d.Batch))(b)
		if len(applied.Repeated)+len(applied.Spent) > 0 {
			b.Fatal(applied)
		}
		if len(applied.SettledOverflow) == 0 {
			b.model.apply(&d.Batch)
		}
		return applied.SettledOverflow
	}
	for _, step := range []struct {
		sender   uint32
		epochs   []uint64
		overflow []int
	}{
		{1, []uint64{1, 2}, nil},
		{1, []uint64{3, 1, 4, 2, 5}, []int{2, 4}}, // which changes nothing
		{1, []uint64{1, 2}, nil},
		{1, []uint64{3}, nil},
		{1, []uint64{4}, []int{0}},
		{2, []uint64{4}, nil}, // has a number of its own
		{1, []uint64{4}, nil}, // is kept for another
		{2, []uint64{5, 6}, nil},
		{2, []uint64{7}, []int{0}},
	} {
		if got := settle(step.sender, step.epochs...); !slices.Equal(got, step.overflow) {
			b.Errorf("%+v: no room for %v", step, got)
		}
	}
	d := b.fresh().credit(1, "one", perMinute, 0, 0, 1).settle(8, 1).settle(1, 0).credit(2, "one", perMinute, 0, 0, 2)
	d.MaxChunks, d.Settled[0].Sender, d.Settled[1].Sender = most, 1, 1
	applied := must(b.Store.Apply(b.Context(), &d.Batch))(b)
	if len(applied.Overdrawn) != 2 || !slices.Equal(applied.Spent, []int{1}) || !slices.Equal(applied.SettledOverflow, []int{0}) {
		b.Errorf("all at once: %+v", applied)
	}
	if b.Clock != nil {
		return
	}
	// Whoever keeps chunks by adding to them has them counted again.
	b.now += int64(24 * time.Hour)
	if got := settle(1, 1, 2, 3, 4); !slices.Equal(got, []int{3}) {
		b.Errorf("a day later: no room for %v", got)
	}
}
