package redisstore

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
)

// The previous bucket is read once, and again when somebody has added to it.
func TestPreviousBucketsAreReadOnce(t *testing.T) {
	s, _ := newStore(t, 8)
	other := open(t, Options{})
	mustJoin(t, other, 8)
	now := time.Now().UnixNano()
	sequence := uint64(0)
	// batch adds one hit to the key in the bucket that is age old, and asks for its totals.
	batch := func(age int64) *storage.Batch {
		sequence++
		return hitAt(now, 7, sequence, age)
	}
	reads := func(s *Store, f *storage.Batch) int { // hashes of counts that it takes
		c := &call{recall: s.recall, newKeys: &s.newKeys, groups: s.groups.Load()}
		c.build(s.namespace, f)
		n := 0
		for _, key := range c.keys {
			if strings.Contains(key, ":1:") {
				n++
			}
		}
		return n
	}
	for i, step := range []struct {
		why   string
		store *Store
		age   int64
		reads int
		want  string
	}{
		{"the previous bucket gets a hit, and is known by that", s, 1, 2, "[1 0]"},
		{"it need not be read", s, 0, 1, "[1 1]"},
		{"nor again", s, 0, 1, "[1 2]"},
		{"another worker reads it once", other, 0, 2, "[1 3]"},
		{"and remembers it too", other, 0, 1, "[1 4]"},
		{"a late hit changes it", other, 1, 2, "[2 4]"},
		{"which the first cannot know when it asks, but does when it answers", s, 0, 1, "[2 5]"},
		{"so that it reads again", s, 0, 2, "[2 6]"},
		{"once", s, 0, 1, "[2 7]"},
		{"its own late hit changes it as well", s, 1, 2, "[3 7]"},
		{"and is known", s, 0, 1, "[3 8]"},
	} {
		f := batch(step.age)
		if got := reads(step.store, f); got != step.reads {
			t.Errorf("%d %s: %d hashes, want %d", i, step.why, got, step.reads)
		}
		var totals [2]int64
		for _, c := range mustApply(t, step.store, f).Totals[0] {
			totals[c.Bucket-hourly.Bucket(now)+1] = c.Count
		}
		if got := fmt.Sprint(totals); got != step.want {
			t.Errorf("%d %s: totals %s, want %s", i, step.why, got, step.want)
		}
	}
	// A batch that only reads, ahead of the others, does not tell the store so; what it reads is
	// not kept.
	size := int64(hourly.BucketSize())
	now += size
	mustApply(t, s, onlyReading(batch(0)))
	now -= size
	mustApply(t, s, batch(0))
	now += size
	if totals := mustApply(t, s, batch(0)).Totals[0]; len(totals) != 2 || totals[0].Count != 9 {
		t.Errorf("after a look ahead: %v", totals)
	}
	empty(t)
	if totals := mustApply(t, s, batch(0)).Totals[0]; len(totals) != 1 || totals[0].Count != 1 {
		t.Errorf("after a loss: %v", totals)
	}
}

// A short key may be the very bytes that stand for a long one; what is remembered of them differs.
func TestRecallTellsLongKeysFromShortOnes(t *testing.T) {
	s, _ := newStore(t, 1)
	long := strings.Repeat("L", maxField+6)
	short, _ := fieldOf(long)
	now := time.Now().UnixNano()
	for i, add := range [][2]int64{{100, 1}, {1, 1}, {1, 1}} { // to the bucket before, then to this one
		f := hitAt(now, 0, uint64(i)+1, 1-int64(min(i, 1)))
		bucket := f.Keys[0].Cells[0].Bucket
		f.Keys = []storage.Key{
			{Text: long, Cells: []storage.Cell{{Bucket: bucket, Count: add[0]}}},
			{Text: short, Cells: []storage.Cell{{Bucket: bucket, Count: add[1]}}},
		}
		applied := mustApply(t, s, f)
		if long, short := applied.Totals[0][0].Count, applied.Totals[1][0].Count; long != 100 || short != 1 {
			t.Errorf("batch %d: the previous totals are %d and %d, want 100 and 1", i, long, short)
		}
	}
}
