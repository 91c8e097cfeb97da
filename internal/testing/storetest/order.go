package storetest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sort"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/window"
)

// batch is a report of some hits of one bucket, of one key, and what settlements give back of that bucket: more than
// all of its hits now and then.
type batch struct {
	bucket, hits int64
	back         int64
	epoch        uint64
	at           int64 // when it is applied
	again        int64 // and when once more; 0 for never
}

// Whatever the order in which batches come, however late within the lateness that every rule has, and
// however often: in the end all answers are the same, for every algorithm.
func testOrder(b *bench) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, name := range slices.Sorted(maps.Keys(shapes)) {
		shape := shapes[name]
		for round := range 5 {
			b.now += 3 * int64(shape.Length)
			batches := randomBatches(random, shape, b.now)
			from := b.now
			var want []answer
			for order := range 4 {
				b.now = from
				got := b.inOrder(fmt.Sprintf("%s-%d-%d", name, round, order), name, shape, batches)
				if want == nil {
					want = got
				} else if !slices.EqualFunc(got, want, answer.equal) {
					b.Fatalf("%s: in another order the answers are %v, were %v", name, got, want)
				}
				reorder(random, shape, batches, from)
			}
		}
	}
	b.checkLedger()
}

// randomBatches are batches of the buckets that a window at now can still touch when the last of them is
// current, each applied in its own bucket.
func randomBatches(random *rand.Rand, shape window.Shape, now int64) []batch {
	batches := make([]batch, 20)
	for i := range batches {
		bucket := shape.Bucket(now) + random.Int64N(int64(shape.Live()))
		batches[i] = batch{bucket: bucket, hits: random.Int64N(8), back: max(random.Int64N(20)-12, 0), epoch: random.Uint64(), at: shape.End(bucket) - 1}
	}
	return batches
}

// reorder applies each batch at some time between its bucket and when the first bucket is gone, and some of
// them once more.
func reorder(random *rand.Rand, shape window.Shape, batches []batch, now int64) {
	gone := aggregate.GoneAt(shape, shape.Bucket(now))
	for i := range batches {
		begin := shape.End(batches[i].bucket - 1)
		batches[i].at = begin + random.Int64N(gone-begin)
		if batches[i].again = 0; random.IntN(3) == 0 {
			batches[i].again = batches[i].at + random.Int64N(gone-batches[i].at)
		}
	}
}

// answer is what the store says of a key at some time.
type answer struct {
	totals [2][]aggregate.Cell // admitted, refunded
	level  window.Level
}

func (a answer) equal(b answer) bool {
	return a.level == b.level && slices.Equal(a.totals[0], b.totals[0]) && slices.Equal(a.totals[1], b.totals[1])
}

// inOrder applies batches in the order of their times to a key of its own, and returns the answers from when
// the last one of them had to be there until nothing is left.
func (b *bench) inOrder(key, name string, shape window.Shape, batches []batch) []answer {
	type step struct {
		at    int64
		batch *batch
	}
	from, b0 := b.now, shape.Bucket(b.now)
	var steps []step
	for i := range batches {
		steps = append(steps, step{batches[i].at, &batches[i]})
		if batches[i].again != 0 {
			steps = append(steps, step{batches[i].again, &batches[i]})
		}
	}
	sort.SliceStable(steps, func(i, j int) bool { return steps[i].at < steps[j].at })
	mix := uint64(len(key)) + uint64(b.last)<<8 // an epoch is a checker's for all keys
	b.last++
	for _, s := range steps {
		b.now = s.at
		d := b.fold().mark(s.batch.epoch^mix, 1)
		age := shape.Bucket(b.now) - s.batch.bucket
		d.add(name, shape, key, age, s.batch.hits)
		if s.batch.back > 0 {
			d.giveBack(name, shape, key, age, s.batch.back)
			slices.Reverse(d.Keys) // a fold's keys come in any order
		}
		b.apply(d)
	}
	var answers []answer
	gone := aggregate.GoneAt(shape, b0)
	for _, after := range []int64{0, int64(shape.BucketSize()), int64(shape.Length) / 2, int64(shape.Length), 2 * int64(shape.Length)} {
		b.now = gone + after
		d := b.fold()
		d.read(name, shape, key)
		d.read(name+refunded, shape, key)
		applied := b.apply(d)
		var a answer
		for i, cells := range applied.Totals {
			a.totals[i] = slices.DeleteFunc(slices.Clone(cells), func(c aggregate.Cell) bool { return c.Count == 0 })
		}
		if shape.Drains() {
			a.level = applied.Levels[0]
		}
		answers = append(answers, a)
	}
	b.now = from
	return answers
}

// A new limit is how fast everything drains from then on that has not been settled. The counts survive.
func testNewLimit(b *bench) {
	for _, name := range []string{"tokens", "queue", "coarse"} {
		shape := shapes[name]
		b.apply(b.fresh().add(name, shape, "a", 0, 50))
		for _, limit := range []int64{100, 1000, 7, 100} {
			b.now += int64(shape.BucketSize()) + int64(time.Millisecond)
			d := b.fold()
			d.read(name, shape, "a")
			d.Rules[0].Limit, d.Rules[0].Revision = limit, d.Rules[0].Revision+1
			b.apply(d)
		}
	}
}

// A level that does not drain for several windows is right all the time, though the counts that made it are
// long forgotten; also after a snapshot.
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
			if i%3 == 1 && shape.Buckets > 1 { // mostly in a fold without hits of that key
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
			d := b.fold()
			d.read(name, shape, "a")
			d.read(name, shape, "huge")
			b.apply(d)
			b.now += int64(shape.Length) / 3
		}
	}
	b.checkLedger()
}
