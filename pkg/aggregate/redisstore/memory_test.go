package redisstore

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/window"
)

// TestMemoryPerKey measures what a key with two live buckets takes in Redis, as docs/performance.md
// says:
//
//	go test -v -run TestMemoryPerKey ./pkg/aggregate/redisstore
func TestMemoryPerKey(t *testing.T) {
	const keys = 1_000_000
	const text = len("user:000000")
	const most = 40 // bytes beside the text; 27 were measured
	if testing.Short() {
		t.Skip("long: runs in make test-all")
	}
	store, admin := newStore(t, 0)
	now := time.Now().UnixNano()
	before := usedMemory(t, admin)
	for age := range int64(2) {
		for from := 0; from < keys; from += 2000 {
			batch := hitAt(now, 0, uint64(age)*keys+uint64(from)+1, age)
			cell := batch.Keys[0].Cells[0]
			batch.Keys = nil
			for n := from; n < from+2000; n++ {
				cell.Count = int64(1 + n%100)
				batch.Keys = append(batch.Keys, storage.Key{Text: fmt.Sprintf("user:%06d", n), Cells: []storage.Cell{cell}})
			}
			if applied := mustApply(t, store, batch); len(applied.Repeated) > 0 {
				t.Fatal(applied.Repeated)
			}
		}
	}
	used := float64(usedMemory(t, admin)-before) / keys
	t.Logf("%d keys of %d bytes, two buckets live: %.1f bytes per key, %.1f beside its text", keys, text, used, used-float64(text))
	if used-float64(text) > most {
		t.Errorf("%.1f bytes per key beside its text, want at most %d", used-float64(text), most)
	}
}

// What is remembered is as much as was asked for, or up to twice that, whatever the rules.
func TestMemoryIsBounded(t *testing.T) {
	const most = 200
	for name, shape := range map[string]window.Shape{"one": hourly, "fixed": whole, "many": minute} {
		s, _ := newStoreOf(t, 1, Options{Remember: most})
		now := time.Now().UnixNano()
		for i := range 30 {
			mustApply(t, s, newcomersOf(shape, now, uint64(i)+1, name, 20*i, 20))
			if got, full := s.Remembered(), i > 15; got > 2*most || full && got < most {
				t.Errorf("%s, %d keys: %d totals", name, 20*(i+1), got)
			}
		}
	}
	none := open(t, Options{Remember: -1})
	mustJoin(t, none, 1)
	mustApply(t, none, oneHit(time.Now().UnixNano(), 0, 100))
	if got := none.Remembered(); got != 0 {
		t.Errorf("%d totals, want none", got)
	}
}

// A total beyond what is remembered is read each time, until it has left every window.
func TestMemoryComesBackAfterAHugeTotal(t *testing.T) {
	for name, shape := range map[string]window.Shape{"one": hourly, "fixed": whole, "many": minute} {
		s, _ := newStore(t, 1)
		now, sequence := time.Now().UnixNano(), uint64(0)
		apply := func(count, want int64) (remembered bool) {
			t.Helper()
			sequence++
			f := newcomersOf(shape, now, sequence, "rule", 0, 1)
			f.Keys[0].Cells[0].Count = count
			c := newCall(s, f)
			if got := storage.Total(mustApply(t, s, f).Totals[0]); got != want {
				t.Errorf("%s, batch %d: %d hits, want %d", name, sequence, got, want)
			}
			return len(c.wholes[0]) == 0 && len(c.reads) == 0
		}
		for n := range int64(10) {
			apply(events.MaxCount, (n+1)*events.MaxCount)
		}
		if apply(0, 10*events.MaxCount) {
			t.Errorf("%s: a huge total is remembered", name)
		}
		now += int64(shape.Live()) * int64(shape.BucketSize())
		apply(1, 1)
		if !apply(1, 2) {
			t.Errorf("%s: the next totals are not remembered", name)
		}
	}
}

// TestMemoryOfMadeUpSettlements is bounded, at 1 KB each, however many checkers they are said to be
// of.
func TestMemoryOfMadeUpSettlements(t *testing.T) {
	store, admin := newStore(t, 0)
	before := usedMemory(t, admin)
	for from := range uint64(40) {
		batch := &storage.Batch{Now: time.Now().UnixNano(), MaxChunks: 1000}
		batch.Marks = []storage.Mark{{Epoch: 1, Sequence: from + 1}}
		for n := range uint64(500) {
			id := storage.Settled{Epoch: 500*from + n, Number: storage.Chunk - 1, Sender: 7}
			batch.Settled = append(batch.Settled, id)
		}
		applied := mustApply(t, store, batch)
		if want := from >= 2; len(applied.SettledOverflow) > 0 != want {
			t.Fatalf("batch %d: %d settlements beyond", from, len(applied.SettledOverflow))
		}
	}
	if used := usedMemory(t, admin) - before; used > 2<<20 {
		t.Errorf("%d bytes", used)
	}
}

func usedMemory(t *testing.T, admin *redis.Client) int64 {
	t.Helper()
	info := must(admin.InfoMap(t.Context(), "memory").Result())(t)
	return must(strconv.ParseInt(info["Memory"]["used_memory"], 10, 64))(t)
}
