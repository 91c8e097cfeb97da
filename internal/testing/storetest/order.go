package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/window"
)

// batch is a report of some hits of one bucket of a key, and a settlement of that bucket's hits.
type batch struct {
	bucket, hits int64
	more         int64 // by how much the settlement is above the estimate, or below it
	epoch        uint64
	at, again    int64 // when the report is applied, and when once more; 0 for never
	settled      int64 // when the settlement is
	settledAgain int64
}

// Whatever the order in which reports and settlements come, however late within the lateness that
// every rule has, however often, and to which worker: all answers are the model's, which knows no
// order, for every algorithm.
func testOrder(b *bench) {
	random := rand.New(rand.NewPCG(3, 4))
	rounds := 5
	if testing.Short() {
		rounds = 2
	}
	for name, shape := range each(shapes) {
		for round := range rounds {
			b.now += 3 * int64(shape.Length)
			batches := randomBatches(random, shape, b.now)
			for order := range 4 {
				b.inOrder(fmt.Sprintf("%s-%d-%d", name, round, order), name, shape, batches)
				reorder(random, shape, batches, b.now)
			}
		}
	}
	b.checkLedger()
}

// randomBatches are batches of the buckets that a window at now can still touch when the last of
// them is current, each applied in its own bucket.
func randomBatches(random *rand.Rand, shape window.Shape, now int64) []batch {
	batches := make([]batch, 20)
	for i := range batches {
		bucket := shape.Bucket(now) + random.Int64N(int64(shape.Live()))
		at := shape.End(bucket) - 1
		batches[i] = batch{
			bucket: bucket, hits: random.Int64N(8), more: random.Int64N(20) - 12, epoch: random.Uint64(), at: at, settled: at,
		}
	}
	return batches
}

// reorder applies each report and settlement at some time between its bucket and when the first
// bucket is gone, and some of them once more.
func reorder(random *rand.Rand, shape window.Shape, batches []batch, now int64) {
	gone := storage.GoneAt(shape, shape.Bucket(now))
	times := func(begin int64) (at, again int64) {
		at = begin + random.Int64N(gone-begin)
		if random.IntN(3) == 0 {
			again = at + random.Int64N(gone-at)
		}
		return at, again
	}
	for i := range batches {
		m := &batches[i]
		begin := shape.End(m.bucket - 1)
		m.at, m.again = times(begin)
		m.settled, m.settledAgain = times(begin)
	}
}

// inOrder applies batches in the order of their times to a key of its own, and looks at it from
// when the last one of them had to be there until nothing is left.
func (b *bench) inOrder(key, name string, shape window.Shape, batches []batch) {
	type step struct {
		at     int64
		number uint64 // of the batch
		settle bool
	}
	from, first := b.now, shape.Bucket(b.now)
	var steps []step
	for i, m := range batches {
		n := uint64(i)
		for _, s := range []step{{m.at, n, false}, {m.settled, n, true}, {m.again, n, false}, {m.settledAgain, n, true}} {
			if s.at != 0 {
				steps = append(steps, s)
			}
		}
	}
	sort.SliceStable(steps, func(i, j int) bool { return steps[i].at < steps[j].at })
	b.last++
	mix := b.last << 8 // an epoch is a checker's for all keys
	for i, s := range steps {
		b.now = s.at
		m := batches[s.number]
		age := shape.Bucket(b.now) - m.bucket
		var d *draft
		switch {
		case !s.settle:
			d = b.batch().mark(m.epoch^mix, 1).add(name, shape, key, age, m.hits)
		case m.more >= 0:
			d = b.fresh().settle(7, mix+s.number+1).add(name, shape, key, age, m.more)
		default:
			d = b.fresh().settle(7, mix+s.number+1).giveBack(name, shape, key, age, -m.more)
			d.read(name, shape, key)
			if i%2 == 1 { // a batch's keys come in any order
				slices.Reverse(d.Keys)
			}
		}
		b.applyTo([]storage.Store{b.Store, b.Other}[i%2], d)
	}
	gone := storage.GoneAt(shape, first)
	for _, after := range []int64{0, int64(shape.BucketSize()), int64(shape.Length) / 2, int64(shape.Length), 2 * int64(shape.Length)} {
		b.now = gone + after
		d := b.batch()
		d.read(name, shape, key)
		d.read(name+refunded, shape, key)
		b.apply(d)
	}
	b.now = from
}

// A new limit is how fast everything drains from then on that has not been settled. The counts
// survive.
func testNewLimit(b *bench) {
	for _, name := range []string{"tokens", "queue", "coarse"} {
		shape := shapes[name]
		// What came before a change drains by the limits of then, whether the store settles it
		// before or after that.
		past, steps := window.Drain{Shape: shape, Limit: 100}, 3*shape.Live()+3*shape.Buckets
		for i := range steps {
			d := b.fresh().add(name, shape, "changing", 0, 60+int64(i%90))
			if limit := int64(37 + 41*i); i%max(steps/7, 2) == 1 {
				past.Past, past.Limit = past.After(limit, b.now), limit
			}
			d.Rules[0].Limit, d.Rules[0].Past = past.Limit, past.Past
			b.apply(d)
			b.now += int64(shape.BucketSize())*5/8 + int64(time.Millisecond)
		}
		b.apply(b.fresh().add(name, shape, "a", 0, 50))
		for _, limit := range []int64{100, 1000, 7, 100} {
			b.now += int64(shape.BucketSize()) + int64(time.Millisecond)
			d := b.batch()
			d.read(name, shape, "a")
			d.Rules[0].Limit, d.Rules[0].Revision = limit, d.Rules[0].Revision+1
			b.apply(d)
		}
	}
}

// A level that does not drain for several windows is right all the time, though the counts that
// made it are long forgotten; also after a snapshot.
func testLongLevel(b *bench) {
	for _, name := range []string{"tokens", "queue", "coarse"} {
		shape := shapes[name]
		full := 100/int64(shape.Buckets) + 1 // more than drains in a bucket
		for i := range 5*shape.Buckets + 20 {
			d := b.fresh().add(name, shape, "huge", 0, 3e14+int64(i%7))
			if i%5 != 0 {
				b.apply(d.add(name, shape, "a", 0, full+int64(i%3)))
				d = b.fresh()
			}
			if i%5 == 1 && shape.Buckets > 1 { // those of the bucket before come only now
				d.add(name, shape, "a", 1, 3*full)
			}
			if i%3 == 1 && shape.Buckets > 1 { // mostly in a batch without hits of that key
				d.giveBack(name, shape, "a", 1, full/2+1)
			}
			d.giveBack(name, shape, "huge", 0, 5)
			b.apply(d)
			b.now += int64(shape.BucketSize())
			if i == 4*shape.Buckets {
				b.Snapshot(b)()
				b.now += int64(shape.Length) // it goes on to drain meanwhile
			}
		}
		for range 12 {
			d := b.batch()
			d.read(name, shape, "a")
			d.read(name, shape, "huge")
			b.apply(d)
			b.now += int64(shape.Length) / 3
		}
	}
	b.checkLedger()
}
