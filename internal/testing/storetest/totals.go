package storetest

import (
	"crypto/sha256"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/window"
)

func testReading(b *bench) {
	for name, shape := range shapes {
		b.apply(b.fresh().add(name, shape, "a", 0, 3))
		before := b.seen
		d := b.batch()
		d.read(name, shape, "a")
		d.read(name, shape, "nobody")
		b.apply(d)
		b.apply(b.batch().add(name, shape, "a", 0, 0))
		if b.seen != before {
			b.Errorf("reading changed the state: %v, then %v", before, b.seen)
		}
	}
	b.apply(b.batch()) // nothing at all
	b.checkLedger()
}

// Rules of the same name but another shape count apart, and so do rules of another name, and a
// rule's denied hits.
func testIdentity(b *bench) {
	for range 2 {
		d := b.fresh()
		n := int64(1)
		for _, name := range []string{"a", "a" + denied, "a" + refunded, "b", "a:", strings.Repeat("long-", 25) + "1", strings.Repeat("long-", 25) + "2"} {
			for _, shape := range []window.Shape{
				inTwo, perMinute, fixed, inMinutes,
				{Length: 2 * time.Minute, Buckets: 1}, {Length: time.Minute, Buckets: 60}, {Length: time.Hour, Buckets: 1},
				{Length: time.Minute, Buckets: 60, Kind: window.Log}, {Length: time.Minute, Buckets: 60, Kind: window.Token},
				{Length: time.Minute, Buckets: 60, Kind: window.Leaky}, {Length: time.Minute, Buckets: 1, Kind: window.Log},
				{Length: time.Minute, Buckets: 1, Kind: window.Token}, {Length: time.Minute, Buckets: 1, Kind: window.Leaky},
			} {
				d.add(name, shape, "k", 0, n)
				n++
			}
		}
		b.apply(d)
	}
	b.checkLedger()
}

// oddTexts are keys with which something could go wrong.
func oddTexts() []string {
	long := strings.Repeat("x", 1000)
	texts := []string{
		"", " ", "a", "A", "a ", ":", "a:b", "{", "}", "{0}", "{}", "\x00", "\x00\x00", "\xff\xfe", "*", "日本語", "1", "-1", "1.5",
		"meta", "ledger", "\r\n", "a\r\n$3\r\nfoo\r\n",
		strings.Repeat("y", 63), strings.Repeat("y", 64), strings.Repeat("y", 65), long, long + "1", long + "2", long + strings.Repeat("z", 24),
	}
	sum := sha256.Sum256([]byte(long)) // which may stand for it
	texts = append(texts, string(sum[:]), string(sum[:16]))
	for length := range 70 {
		texts = append(texts, strings.Repeat("\x80", length+1))
	}
	return texts
}

func testKeys(b *bench) {
	texts := oddTexts()
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
			applied, err := b.Store.Apply(b.Context(), &d.Batch)
			if err != nil || len(applied.Totals[0]) != 1 || applied.Totals[0][0].Count < 1e15 {
				b.Fatalf("%s: totals %v, %v", name, applied.Totals, err)
			}
		}
	}
	for rule, l := range b.Ledger(b) {
		if l.Counted < 1e15 {
			b.Errorf("ledger of %s: %+v", rule, l)
		}
	}
}

func testLargeBatches(b *bench) {
	many := func(name string, shape window.Shape, n int) {
		d := b.fresh()
		rule := d.rule(name, shape)
		for i := range n {
			cells := []storage.Cell{{Bucket: shape.Bucket(b.now), Count: int64(i) + 1}}
			d.Keys = append(d.Keys, storage.Key{Rule: rule, Text: fmt.Sprintf("user:%06d", i), Cells: cells})
		}
		b.apply(d)
	}
	for name, shape := range shapes {
		many(name, shape, 2000)
		many(name, shape, 2000)
		d := b.fresh()
		for age := range shape.Live() {
			d.add(name, shape, "user:000007", int64(age), 1)
		}
		b.apply(d)
		b.now += int64(shape.BucketSize())
		b.apply(b.fresh().add(name, shape, "user:000007", 0, 1))
	}
	many("huge", perMinute, 20_000) // more keys than any budget, as a single report may have
}
