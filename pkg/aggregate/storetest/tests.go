package storetest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/window"
)

func testJoin(b *bench) {
	first := b.join(0).Shards
	if first < 1 {
		b.Fatalf("%d shards", first)
	}
	if got := b.join(0).Shards; got != first {
		b.Errorf("then %d shards", got)
	}
	b.join(first)
	b.wantShardsError(b.Store, first+1)
	b.wantShardsError(b.Other, first+1)
	for _, bad := range []int{-1, 1 << 20} {
		if _, err := b.Store.Join(b.Context(), bad); err == nil {
			b.Errorf("Join(%d): no error", bad)
		}
	}

	b.Lose(b)
	if got := b.join(7).Shards; got != 7 {
		b.Errorf("after a loss of all data: %d shards, want 7", got)
	}
	if fleet, err := b.Other.Join(b.Context(), 0); err != nil || fleet.Shards != 7 {
		b.Errorf("another worker: %v, %v", fleet, err)
	}
	b.wantShardsError(b.Other, first)
}

func testTotals(b *bench) {
	for name, shape := range shapes {
		size := int64(shape.BucketSize())
		for range 5 {
			b.apply(b.fresh().add(name, shape, "a", 0, 3).add(name, shape, "b", 0, 1))
			b.apply(b.fresh().add(name, shape, "a", 0, 2))
			if shape.Live() > 1 {
				b.apply(b.fresh().add(name, shape, "a", 1, 10).add(name, shape, "a", 0, 1).add(name, shape, "c", 1, 1))
			}
			b.now += size
		}
		b.now += int64(shape.Live()) * size
		b.apply(b.fresh().add(name, shape, "a", 0, 1)) // the only one left
	}
	b.checkLedger()
}

func testFuture(b *bench) {
	for name, shape := range shapes {
		b.apply(b.fresh().add(name, shape, "a", -1, 4).add(name, shape, "a", 0, 1).add(name, shape, "b", 0, 1))
		b.apply(b.fresh().add(name, shape, "b", -1, 1).add(name, shape, "b", -2, 1))
		b.apply(b.fold().add(name, shape, "a", -1, 0)) // asks for it
		b.now += int64(shape.BucketSize())
		b.apply(b.fresh().add(name, shape, "a", 0, 1).add(name, shape, "b", 0, 1))
	}
}

func testReading(b *bench) {
	for name, shape := range shapes {
		b.apply(b.fresh().add(name, shape, "a", 0, 3))
		before := b.seen
		d := b.fold()
		d.read(name, shape, "a")
		d.read(name, shape, "nobody")
		b.apply(d)
		b.apply(b.fold().add(name, shape, "a", 0, 0))
		if b.seen != before {
			b.Errorf("reading changed the state: %v, then %v", before, b.seen)
		}
	}
	b.apply(b.fold()) // nothing at all
	b.checkLedger()
}

// Every mix of new and repeated reports: nothing changes but by a fold in which all are new.
func testRepeats(b *bench) {
	const reports = 4
	for mix := range 1 << reports {
		epoch := func(i int) uint64 { return uint64(100 + mix*reports + i) }
		d := b.fold()
		for i := range reports {
			report := func(d *draft) {
				d.mark(epoch(i), 5).add("one", perMinute, "shared", 0, int64(i)+1)
				d.add("many", inMinutes, fmt.Sprint("own-", i), 0, 1)
			}
			report(d)
			if mix>>i&1 == 1 {
				before := b.fold()
				report(before)
				b.apply(before)
			}
		}
		before := b.seen
		b.apply(d)
		if mix != 0 && b.seen != before {
			b.Errorf("mix %b: a refused fold changed the state", mix)
		}
		b.checkLedger()
	}
	d := b.fold()
	d.read("one", perMinute, "shared")
	b.apply(d)
}

// A second fold after a partly repeated one: the new ones add, the others only ask.
func testSecondFold(b *bench) {
	b.apply(b.fold().mark(1, 1).add("one", perMinute, "a", 0, 5))
	first := b.fold().mark(1, 1).mark(2, 1).add("one", perMinute, "a", 0, 5+7).add("one", perMinute, "b", 0, 1)
	if got := b.apply(first).Repeated; len(got) != 1 || got[0] != 0 {
		b.Fatalf("repeated: %v", got)
	}
	b.apply(b.fold().mark(2, 1).add("one", perMinute, "a", 0, 7).add("one", perMinute, "b", 0, 1))
	b.applyTo(b.Other, first) // as another worker would, later: now both
	b.checkLedger()
}

func testMarks(b *bench) {
	b.apply(b.fold().mark(math.MaxUint64, 3).add("one", perMinute, "a", 0, 1))
	b.apply(b.fold().mark(math.MaxUint64, 2).add("one", perMinute, "a", 0, 1)) // older: repeated too
	b.apply(b.fold().mark(math.MaxUint64, 3).add("one", perMinute, "a", 0, 1))
	b.apply(b.fold().mark(math.MaxUint64, 9).add("one", perMinute, "a", 0, 1)) // a gap is no matter
	b.apply(b.fold().mark(1, 1<<50).add("one", perMinute, "a", 0, 1))
	b.apply(b.fold().mark(1, 1<<50).add("one", perMinute, "a", 0, 1))
	b.apply(b.fold().mark(1, 1<<50+1).add("one", perMinute, "a", 0, 1))
	d := b.fold()
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
	d.Ledger[d.rule("one", perMinute)] = aggregate.Tally{Late: 3, Refused: 4}
	b.apply(d)
	d = b.fresh().add("one", perMinute, "a", 0, 2).add("many", inMinutes, "a", 0, 1)
	d.Ledger[d.rule("one", perMinute)].Late = 10
	d.Ledger[d.rule(`a "rule": {of} some|kind`, fixed)].Refused = 1
	b.apply(d)
	b.apply(b.fresh().add("one", perSecond, "a", 0, 1)) // the same name in another shape
	b.now += int64(24 * time.Hour)                      // it never expires
	b.apply(b.fresh().add("one", perMinute, "a", 0, 2))
	b.checkLedger()
	want := aggregate.RuleLedger{Counted: 5, Late: 13, Refused: 4}
	if got := b.Ledger(b)["one"]; got != want {
		b.Errorf("got %+v, want %+v", got, want)
	}
}

// Everything expires when it should: a count one window after it has left every window, to within a
// second; a mark a day after its last report; nothing never.
func testExpiry(b *bench) {
	const second = int64(time.Second)
	for name, shape := range shapes {
		b.Lose(b)
		*b.model, b.seen = *newModel(), aggregate.State{}
		size := int64(shape.BucketSize())
		b.apply(b.fresh().add(name, shape, "a", 0, 1).add(name, shape, "b", 0, 2))
		b.apply(b.fresh().add(name, shape, "a", 0, 1)) // not new: moves nothing
		count := aggregate.ExpiryOf(shape, shape.Bucket(b.now))
		if want := shape.End(shape.Bucket(b.now)) + int64(shape.Length); shape.Fixed && count != want {
			b.Fatalf("%s: expiry %d, want %d", name, count, want)
		} else if want += int64(shape.Length); !shape.Fixed && count != want {
			b.Fatalf("%s: expiry %d, want %d", name, count, want)
		}
		mark := b.now + int64(24*time.Hour)
		for _, at := range b.Expiries(b) {
			if !near(at, count, second) && !near(at, mark, second) {
				b.Errorf("%s: expiry %v from now, want %v or %v", name,
					time.Duration(at-b.now), time.Duration(count-b.now), time.Duration(mark-b.now))
			}
		}
		// A later bucket of the same key lives as long as it must, an earlier one shortens nothing.
		b.apply(b.fresh().add(name, shape, "a", -1, 1))
		if shape.Live() > 1 {
			b.apply(b.fresh().add(name, shape, "a", 1, 1))
		}
		found := false
		for _, at := range b.Expiries(b) {
			found = found || near(at, count+size, second)
			if at == 0 {
				b.Errorf("%s: something never expires", name)
			}
		}
		if !found {
			b.Errorf("%s: nothing expires with the newest bucket", name)
		}
	}
}

func near(a, b, within int64) bool { return a-b <= within && b-a <= within }

func testGenerations(b *bench) {
	// A store that nobody remembers starts at once, by the time.
	first := b.apply(b.fresh().add("one", perMinute, "a", 0, 5)).State
	if first.Version != 1 {
		b.Errorf("first version: %d", first.Version)
	}
	second := b.apply(b.fresh().add("one", perMinute, "a", 0, 1)).State
	if second.Version != 2 {
		b.Errorf("second version: %d", second.Version)
	}
	// What a checker remembers of it changes nothing, whatever it is.
	for _, seen := range []aggregate.State{{}, first, second, {Generation: 1, Version: 99}} {
		d := b.fresh().add("one", perMinute, "a", 0, 1)
		d.Seen = seen
		b.apply(d)
	}

	// The store loses everything, and somebody remembers it.
	b.Lose(b)
	*b.model = *newModel()
	remembered := b.seen
	third := b.apply(b.fresh().add("one", perMinute, "a", 0, 1)).State
	if third.Generation <= remembered.Generation || third.Version != 1 {
		b.Errorf("after a loss: %v after %v", third, remembered)
	}
	b.apply(b.fresh().add("one", perMinute, "a", 0, 1))

	// The store's clock goes wrong: a generation above its time is followed by a higher one.
	b.Lose(b)
	*b.model = *newModel()
	d := b.fresh().add("one", perMinute, "a", 0, 1)
	d.Seen = aggregate.State{Generation: 1 << 51, Version: 3}
	if got := b.apply(d).State.Generation; got != 1<<51+1 {
		b.Errorf("generation %d, want %d", got, 1<<51+1)
	}
	// Reading alone finds out as well.
	b.Lose(b)
	*b.model = *newModel()
	d = b.fold()
	d.read("one", perMinute, "a")
	if got := b.apply(d).State.Generation; got != 1<<51+2 {
		b.Errorf("generation %d, want %d", got, 1<<51+2)
	}
}

func testOlderSnapshot(b *bench) {
	b.apply(b.fold().mark(1, 1).add("one", perMinute, "a", 0, 5).add("many", inMinutes, "a", 0, 5))
	restore := b.Snapshot(b)
	old := *b.model
	*b.model = *newModel()
	kept := b.apply(b.fold().mark(3, 1).add("one", perMinute, "x", 0, 1)).State

	restore()
	*b.model = old
	b.model.state = make(map[uint32]aggregate.State)
	// Counts, marks and ledger are what they were then; but the state is new.
	after := b.apply(b.fold().mark(2, 1).add("one", perMinute, "a", 0, 1).add("many", inMinutes, "a", 0, 1)).State
	if after.Generation <= kept.Generation {
		b.Errorf("state %v after %v was lost", after, kept)
	}
	b.apply(b.fold().mark(1, 1).add("one", perMinute, "a", 0, 5)) // still a repeat
	b.apply(b.fold().mark(3, 1).add("one", perMinute, "x", 0, 1)) // forgotten
	b.checkLedger()
}

// Rules of the same name but another shape count apart, and so do rules of another name.
func testIdentity(b *bench) {
	for range 2 {
		d := b.fresh()
		n := int64(1)
		for _, name := range []string{"a", "b", "a:", strings.Repeat("long-", 25) + "1", strings.Repeat("long-", 25) + "2"} {
			for _, shape := range []window.Shape{
				perSecond, perMinute, fixed, inMinutes,
				{Length: time.Minute, Buckets: 2}, {Length: time.Minute, Buckets: 60}, {Length: time.Hour, Buckets: 1},
			} {
				d.add(name, shape, "k", 0, n)
				n *= 2
			}
		}
		b.apply(d)
	}
	b.checkLedger()
}

func testKeys(b *bench) {
	long := strings.Repeat("x", 1000)
	texts := []string{
		"", " ", "a", "A", "a ", ":", "a:b", "{", "}", "{0}", "{}", "\x00", "\x00\x00", "\xff\xfe", "*", "日本語", "1", "-1", "1.5",
		"meta", "ledger", "\r\n", "a\r\n$3\r\nfoo\r\n",
		strings.Repeat("y", 63), strings.Repeat("y", 64), strings.Repeat("y", 65), long, long + "1", long + "2", long + strings.Repeat("z", 24),
	}
	for length := range 70 {
		texts = append(texts, strings.Repeat("\x80", length+1))
	}
	for range 2 {
		for name, shape := range shapes {
			d := b.fresh()
			for i, text := range texts {
				d.add(name, shape, text, 0, int64(i)+1)
			}
			b.apply(d)
			b.now += int64(shape.BucketSize())
		}
	}
}

func testLargeCounts(b *bench) {
	for name, shape := range shapes {
		for _, n := range []int64{1e15 - 1, 1, 2, 123_456_789_012_345} {
			b.apply(b.fresh().add(name, shape, "exact", 0, n))
		}
	}
	b.checkLedger()
	// Nonsense neither fails nor wraps; it stays large.
	for name, shape := range shapes {
		for range 3 {
			d := b.fresh().add(name, shape, "nonsense", 0, math.MaxInt64-5)
			applied, err := b.Store.Apply(b.Context(), &d.Fold)
			if err != nil {
				b.Fatal(err)
			}
			if cells := applied.Totals[0]; len(cells) != 1 || cells[0].Count < 1e15 {
				b.Errorf("%s: totals %v", name, cells)
			}
		}
	}
	for rule, l := range b.Ledger(b) {
		if l.Counted < 1e15 {
			b.Errorf("ledger of %s: %+v", rule, l)
		}
	}
}

func testLargeFolds(b *bench) {
	for name, shape := range shapes {
		for range 2 {
			d := b.fresh()
			rule := d.rule(name, shape)
			for i := range 2000 {
				cells := []aggregate.Cell{{Bucket: shape.Bucket(b.now), Count: int64(i) + 1}}
				d.Keys = append(d.Keys, aggregate.Key{Rule: rule, Text: fmt.Sprintf("user:%06d", i), Cells: cells})
				d.Ledger[rule].Counted += int64(i) + 1
			}
			b.apply(d)
		}
		d := b.fresh()
		for age := range shape.Live() {
			d.add(name, shape, "user:000007", int64(age), 1)
		}
		b.apply(d)
		b.now += int64(shape.BucketSize())
		b.apply(b.fresh().add(name, shape, "user:000007", 0, 1))
	}
	d := b.fresh() // more keys than any budget, as a single report may have
	rule := d.rule("huge", perMinute)
	for i := range 20_000 {
		cells := []aggregate.Cell{{Bucket: perMinute.Bucket(b.now), Count: 1}}
		d.Keys = append(d.Keys, aggregate.Key{Rule: rule, Text: fmt.Sprint(i), Cells: cells})
	}
	b.apply(d)
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
		d := b.fold().mark(1, 1)
		d.Shard, d.Seen = shard, b.model.state[shard]
		b.apply(d)
	}
	b.checkLedger()
}

// Two workers apply the same reports to one shard at the same time: each is counted once.
func testTwoWorkers(b *bench) {
	const reports = 200
	var workers sync.WaitGroup
	versions := make([][]uint64, 2)
	for w, store := range []aggregate.Store{b.Store, b.Other} {
		workers.Go(func() {
			for i := range uint64(reports) {
				d := &draft{aggregate.Fold{Now: b.now}}
				d.mark(1, i/2+1).mark(uint64(1000+w), i+1).add("one", perMinute, "a", 0, 1).add("many", inMinutes, "a", 0, 1)
				applied, err := store.Apply(b.Context(), &d.Fold)
				if err != nil {
					b.Error(err)
					return
				}
				if len(applied.Repeated) == 0 {
					versions[w] = append(versions[w], applied.State.Version)
				}
			}
		})
	}
	workers.Wait()
	seen := make(map[uint64]bool)
	for _, v := range append(versions[0], versions[1]...) {
		if seen[v] {
			b.Errorf("version %d twice", v)
		}
		seen[v] = true
	}
	if len(seen) > reports/2 || len(seen) == 0 {
		b.Errorf("%d folds applied of %d sequences", len(seen), reports/2)
	}
	want := aggregate.RuleLedger{Counted: int64(len(seen))}
	if got := b.Ledger(b); got["one"] != want || got["many"] != want {
		b.Errorf("ledger %v, want %v of each", got, want)
	}
}

// Random folds, with repeats, as the model does them.
func testRandom(b *bench) {
	random := rand.New(rand.NewPCG(1, 2))
	sequences := make(map[uint64]uint64)
	for range 400 {
		b.now += random.Int64N(int64(20 * time.Second))
		d := b.fold()
		for epoch := range uint64(1 + random.IntN(4)) {
			if random.IntN(10) > 0 {
				sequences[epoch]++
			}
			d.mark(1+epoch, max(sequences[epoch], 1))
		}
		for range random.IntN(20) {
			for name, shape := range shapes {
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
