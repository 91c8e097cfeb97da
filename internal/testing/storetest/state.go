package storetest

import (
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
)

func testJoin(b *bench) {
	first := b.join(b.Store, 0).Shards
	if first < 1 {
		b.Fatalf("%d shards", first)
	}
	if got := b.join(b.Store, 0).Shards; got != first {
		b.Errorf("then %d shards", got)
	}
	b.join(b.Store, first)
	b.wantShardsError(b.Store, first+1)
	b.wantShardsError(b.Other, first+1)
	for _, bad := range []int{-1, 1 << 20} {
		if _, err := b.Store.Join(b.Context(), bad); err == nil {
			b.Errorf("Join(%d): no error", bad)
		}
	}
	b.wantOffset(b.Store, 0)
	const offset = time.Minute + 1
	for _, to := range []struct{ was, offset, want time.Duration }{
		{0, offset, offset}, {0, time.Hour, offset}, {time.Hour, 0, offset}, {offset, -offset, -offset},
	} {
		if err := b.Store.KeepOffset(b.Context(), to.was, to.offset); err != nil {
			b.Errorf("KeepOffset(%v, %v): %v", to.was, to.offset, err)
		}
		b.wantOffset(b.Other, to.want)
	}

	b.Lose(b)
	b.wantOffset(b.Store, 0)
	b.Lose(b)
	if got := b.join(b.Store, 7).Shards; got != 7 {
		b.Errorf("after a loss of all data: %d shards, want 7", got)
	}
	if got := b.join(b.Other, 0).Shards; got != 7 {
		b.Errorf("another worker: %d shards", got)
	}
	b.wantShardsError(b.Other, first)
}

func (b *bench) wantOffset(store storage.Store, want time.Duration) {
	b.Helper()
	if got := b.join(store, 0).Offset; got != want {
		b.Errorf("an offset of %v is on record, want %v", got, want)
	}
}

// Everything expires when it should: a count one window after it has left every window, to within a
// second, or when it has drained as well; a mark a day after its last report; nothing never.
func testExpiry(b *bench) {
	for name, shape := range shapes {
		b.lose()
		n := int64(1)
		if shape.Drains() {
			n = 20
		}
		b.apply(b.fresh().add(name, shape, "a", 0, n).add(name, shape, "b", 0, 2*n))
		b.apply(b.fresh().add(name, shape, "a", 0, n)) // not new: moves nothing, unless it drains
		count := storage.ExpiryOf(shape, shape.Bucket(b.now))
		drained := int64(0)
		if shape.Drains() {
			drained = 2 * n * int64(shape.Length) / 100 // of a and of b there are as many
		}
		count += drained
		mark := b.now + int64(24*time.Hour)
		for _, at := range b.Expiries(b) {
			if !b.near(at, count) && !b.near(at, mark) {
				b.Errorf("%s: expiry %v from now, want %v or %v", name,
					time.Duration(at-b.now), time.Duration(count-b.now), time.Duration(mark-b.now))
			}
		}
		// A later bucket of the same key lives as long as it must, an earlier one shortens nothing.
		b.apply(b.fresh().add(name, shape, "a", -1, 1))
		if shape.Live() > 1 {
			b.apply(b.fresh().add(name, shape, "a", 1, 1))
		}
		found, last := false, max(count, storage.ExpiryOf(shape, shape.Bucket(b.now)+1))
		if shape.Drains() {
			last += 2 * int64(shape.Length) / 100 // after all before them
		}
		for _, at := range b.Expiries(b) {
			found = found || b.near(at, last)
			if at == 0 {
				b.Errorf("%s: something never expires", name)
			}
		}
		if !found {
			b.Errorf("%s: nothing expires with the newest bucket", name)
		}
	}
}

func testGenerations(b *bench) {
	// A store of which no state is remembered starts at once, by the time.
	first := b.apply(b.fresh().add("one", perMinute, "a", 0, 5)).State
	if first.Version != 1 {
		b.Errorf("first version: %d", first.Version)
	}
	second := b.apply(b.fresh().add("one", perMinute, "a", 0, 1)).State
	if second.Version != 2 {
		b.Errorf("second version: %d", second.Version)
	}
	// What a checker remembers of it changes nothing, whatever it is.
	for _, seen := range []storage.State{{}, first, second, {Generation: 1, Version: 99}} {
		d := b.fresh().add("one", perMinute, "a", 0, 1)
		d.Seen = seen
		b.apply(d)
	}

	// The store loses everything, and a state is remembered.
	b.loseUnnoticed()
	remembered := b.seen
	applied := b.apply(b.fresh().add("one", perMinute, "a", 0, 1))
	third := applied.State
	if want := (storage.Loss{Remembered: remembered}); applied.Loss != want {
		b.Errorf("the loss is %+v, want %+v", applied.Loss, want)
	}
	if third.Generation <= remembered.Generation || third.Version != 1 {
		b.Errorf("after a loss: %v after %v", third, remembered)
	}
	b.apply(b.fresh().add("one", perMinute, "a", 0, 1))

	// The store's clock goes wrong: a generation above its time is followed by a higher one.
	b.loseUnnoticed()
	d := b.fresh().add("one", perMinute, "a", 0, 1)
	d.Seen = storage.State{Generation: 1 << 51, Version: 3}
	if got := b.apply(d).State.Generation; got != 1<<51+1 {
		b.Errorf("generation %d, want %d", got, 1<<51+1)
	}
	// Reading alone finds out as well.
	b.loseUnnoticed()
	d = b.batch()
	d.read("one", perMinute, "a")
	if got := b.apply(d).State.Generation; got != 1<<51+2 {
		b.Errorf("generation %d, want %d", got, 1<<51+2)
	}
}

func testOlderSnapshot(b *bench) {
	b.apply(b.batch().mark(1, 1).add("one", perMinute, "a", 0, 5).add("many", inMinutes, "a", 0, 5))
	restore := b.Snapshot(b)
	old := *b.model
	*b.model = *newModel()
	kept := b.apply(b.batch().mark(3, 1).add("one", perMinute, "x", 0, 1)).State

	restore()
	*b.model = old
	b.model.state = make(map[uint32]storage.State)
	// Counts, marks and ledger are what they were then; but the state is new.
	applied := b.apply(b.batch().mark(2, 1).add("one", perMinute, "a", 0, 1).add("many", inMinutes, "a", 0, 1))
	after := applied.State
	if lost, of := applied.Loss.Batches(); lost != 1 || of != 2 {
		b.Errorf("the loss of a batch after %v: %+v", old.state, applied.Loss)
	}
	if after.Generation <= kept.Generation {
		b.Errorf("state %v after %v was lost", after, kept)
	}
	b.apply(b.batch().mark(1, 1).add("one", perMinute, "a", 0, 5)) // still a repeat
	b.apply(b.batch().mark(3, 1).add("one", perMinute, "x", 0, 1)) // forgotten
	b.checkLedger()
}

// Shards have marks, counts and states of their own, and one ledger.
func testShards(b *bench) {
	for shard := range uint32(5) {
		for range shard + 1 {
			d := b.fresh().add("one", perMinute, "a", 0, 1).add("many", inMinutes, "a", 0, 1)
			d.Shard, d.Seen = shard, b.model.state[shard]
			b.apply(d)
		}
	}
	for shard := range uint32(5) {
		if got := b.model.state[shard].Version; got != uint64(shard)+1 {
			b.Errorf("shard %d: version %d", shard, got)
		}
		d := b.batch().mark(1, 1)
		d.Shard, d.Seen = shard, b.model.state[shard]
		b.apply(d)
	}
	b.checkLedger()
}
