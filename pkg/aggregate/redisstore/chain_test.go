package redisstore

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/testing/storetest"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/window"
)

const (
	counts  = "offpath:{0}:[1n]:*" // the keys of the first shard's counts
	forever = time.Duration(math.MaxInt64)
)

// hashesOf is how many hashes of counts a batch takes, and totalOf the totals of its first key in
// the last two buckets.
func hashesOf(s *Store, f *storage.Batch) (n int) {
	for _, key := range newCall(s, f).keys {
		if strings.Contains(key, ":1:") {
			n++
		}
	}
	return n
}

func totalsOf(now int64, applied storage.Applied) string {
	var totals [2]int64
	for _, c := range applied.Totals[0] {
		totals[c.Bucket-hourly.Bucket(now)+1] = c.Count
	}
	return fmt.Sprint(totals)
}

// Totals are read once, and again when somebody else may have changed them. What may have changed
// them is whatever the steps say, before a hit is added.
func TestTotalsAreReadOnce(t *testing.T) {
	s, admin := newStore(t, 8)
	other := open(t, Options{})
	mustJoin(t, other, 8)
	now, sequence := time.Now().UnixNano(), uint64(0)
	batch := func(age int64) *storage.Batch {
		sequence++
		return hitAt(now, 7, sequence, age)
	}
	nothing := func() {}
	by := func(s *Store, age int64) func() { return func() { mustApply(t, s, batch(age)) } }
	for i, step := range []struct {
		why    string
		before func()
		age    int64
		hashes int // that the batch takes: 1 is what it adds to
		want   string
	}{
		{"a new key is looked for in both buckets", nothing, 1, 2, "[1 0]"},
		{"and is known by that", nothing, 0, 1, "[1 1]"},
		{"so that it need not be read", nothing, 0, 1, "[1 2]"},
		{"a late hit of its own is known, too", nothing, 1, 1, "[2 2]"},
		{"a batch that only reads changes nothing", func() { mustApply(t, s, onlyReading(batch(0))) }, 0, 1, "[2 3]"},
		{"nor does another's", func() { mustApply(t, other, onlyReading(batch(0))) }, 0, 1, "[2 4]"},
		{"nor a probe", func() { mustApply(t, other, &storage.Batch{Shard: 7, Now: now}) }, 0, 1, "[2 5]"},
		{"nor another shard's batch", func() { mustApply(t, other, oneHit(now, 6, 1)) }, 0, 1, "[2 6]"},
		{"nor permits", func() {
			lease := oneLease(now, 0, 1)
			lease.Shard = 7
			mustLease(t, s, lease)
			lease.Keys[0].Requests[0].Known = 1
			mustLease(t, other, lease)
		}, 0, 1, "[2 7]"},
		{"another's hit is found out by the answer", by(other, 0), 0, 1, "[2 9]"},
		{"after which it was read", nothing, 0, 1, "[2 10]"},
		{"as is another's late hit", by(other, 1), 0, 1, "[3 11]"},
		{"a repeat changes nothing", func() {
			f := batch(0)
			f.Marks[0].Sequence = 1
			mustApply(t, s, f)
		}, 0, 1, "[3 12]"},
		{"an older build leaves no id", func() {
			noError(t, admin.HIncrBy(t.Context(), "offpath:{7}:meta", "version", 1).Err())
			names := keysOf(t, admin, fmt.Sprintf("offpath:{7}:1:*:%d:*", hourly.Bucket(now)))
			noError(t, admin.HIncrBy(t.Context(), names[0], "key", 5).Err())
		}, 0, 1, "[3 18]"},
	} {
		step.before()
		f := batch(step.age)
		if got := hashesOf(s, f); got != step.hashes {
			t.Errorf("%d %s: %d hashes, want %d", i, step.why, got, step.hashes)
		}
		if got := totalsOf(now, mustApply(t, s, f)); got != step.want {
			t.Errorf("%d %s: totals %s, want %s", i, step.why, got, step.want)
		}
		wantExpiry(t, admin, step.why, "offpath:{7}:1:*", 1, forever)
	}
}

// A hash that has expired because the node's clock was set, or was deleted, and is made anew,
// expires again: by a known key, or by another one of its group if a clock was seen.
func TestHashesThatAreMadeAnewExpire(t *testing.T) {
	now, hours := time.Now().UnixNano(), 3*time.Hour.Milliseconds()
	for _, tt := range []struct {
		why           string
		shape         window.Shape
		other         bool // key of its group
		behind, clock int64
	}{
		{"deleted", hourly, false, 0, 0},
		{"deleted", minute, false, 0, 0},
		{"the clock is ahead", hourly, true, -hours, 0},
		{"the clock was ahead, and is back", hourly, true, 0, hours},
	} {
		s, admin := newStore(t, 1)
		f := newcomersOf(tt.shape, now, 1, "rule", 0, 1)
		groupOf := func(text string) uint32 { return crc32.Checksum([]byte(text), castagnoli) & (s.groups.Load() - 1) }
		key := 1
		for tt.other && groupOf(fmt.Sprintf("key-%d", key)) != groupOf("key-0") {
			key++
		}
		mustApply(t, s, f)
		f = newcomersOf(tt.shape, now, 2, "rule", key, 1)
		f.Keys[0].Cells[0].Bucket-- // so that it is not new
		mustApply(t, s, f)
		noError(t, admin.Del(t.Context(), keysOf(t, admin, counts)...).Err())
		k := *s.shard(0).known.Load()
		s.shard(0).known.Store(&known{k.era, k.groups, k.behind + tt.behind, k.clock + tt.clock})
		again := newcomersOf(tt.shape, now, 3, "rule", 0, 1)
		if tt.other {
			again.Keys[0].Text = f.Keys[0].Text
		}
		mustApply(t, s, again)
		if names := wantExpiry(t, admin, tt.why, counts, 1, forever); len(names) != 1 {
			t.Errorf("%s: %q", tt.why, names)
		}
	}
}

// Another era of groups begins when the node's clock is found to have been set, and not because
// calls wait. Totals stay remembered.
func TestErasOfTheNodesClock(t *testing.T) {
	s, now := newShard(), int64(1e12)
	for i, step := range []struct {
		why   string
		now   int64 // fleet's, added
		shift int64
		holds bool
		era   bool // begins, of groups
	}{
		{"the first call", 0, 50, false, true},
		{"the next", 100, 50, true, false},
		{"one that has waited", 100, 2000, true, false},
		{"one that has not", 2000, 10, true, false},
		{"the clock goes ahead", 100, 15_000, true, true},
		{"and stays", 100, 15_000, true, false},
		{"and goes back", 100, 10, true, true},
		{"the fleet's time goes back, too", -20_000, 20_010, true, true},
		{"somebody else was here", 20_000, 10, false, true},
	} {
		now += step.now
		before := *s.known.Load()
		s.leave(&header{generation: 1, holds: step.holds, shift: step.shift}, "id", now)
		if k := s.known.Load(); k.groups != before.groups != step.era || k.era != before.era == step.holds || k.behind > step.shift || k.clock < now+step.shift {
			t.Errorf("%d %s: %+v, %+v", i, step.why, before, k)
		}
	}
}

// Counts that expire early, because the node's clock was set, stay known to whoever counts them.
func TestTotalsOutliveAStepOfTheNodesClock(t *testing.T) {
	now := time.Now().UnixNano()
	for name, shape := range map[string]window.Shape{"one": hourly, "many": minute} {
		s, admin := newStore(t, 1)
		mustApply(t, s, newcomersOf(shape, now, 1, "rule", 0, 1))
		k := *s.shard(0).known.Load()
		k.behind -= 3 * time.Hour.Milliseconds()
		s.shard(0).known.Store(&k)
		noError(t, admin.Del(t.Context(), keysOf(t, admin, counts)...).Err())
		for want := int64(2); want < 4; want++ {
			got := mustApply(t, s, newcomersOf(shape, now, uint64(want), "rule", 0, 1)).Totals[0]
			if len(got) != 1 || got[0].Count != want {
				t.Errorf("%s: %v, want %d hits", name, got, want)
			}
		}
	}
}

// A hit of an older bucket leaves a hash the expiry of its newest, in whatever order they are
// packed.
func TestExpiryIsThatOfTheNewestBucket(t *testing.T) {
	s, admin := newStore(t, 1)
	now, size := time.Now().UnixNano(), int64(minute.BucketSize())
	const keys = 20 // of which some are read now, to see what has expired
	mustApply(t, s, newcomersOf(minute, now, 1, "rule", 0, keys))
	now += 6 * size
	f := newcomersOf(minute, now, 2, "rule", 0, keys)
	for i := 1; i < keys; i += 2 {
		f.Keys[i].Cells = append([]storage.Cell{{Bucket: minute.Bucket(now) - 5, Count: 1}}, f.Keys[i].Cells...)
	}
	mustApply(t, s, f)
	f = newcomersOf(minute, now, 3, "rule", 0, keys)
	for i := range keys {
		f.Keys[i].Cells[0].Bucket -= 3
	}
	mustApply(t, s, f)
	want := time.Duration(storage.ExpiryOf(minute, minute.Bucket(now)) - now)
	if n := len(wantExpiry(t, admin, "counts", "offpath:{0}:n:*", want-time.Duration(size), want+time.Duration(size))); n != keys {
		t.Errorf("%d keys", n)
	}
}

// Aggregators from before owners are told of late hits, as they remember totals of earlier
// buckets; nothing is kept for them once they are gone.
func TestOlderAggregatorsAreToldOfLateHits(t *testing.T) {
	s, admin := newStore(t, 1)
	now := time.Now().UnixNano()
	rule := hitAt(now, 0, 1, 0).Rules[0]
	watch := "offpath:{0}:r:" + ruleName(&rule)
	for i, step := range []struct {
		why    string
		newest int64 // that one of them has met, relative to now's; 0 if there is none
		age    int64
		late   string
	}{
		{"there is none of them", 0, 1, ""},
		{"one is as far", 1, 0, ""},
		{"it remembers the bucket before", 1, 1, "1"},
		{"again", 1, 1, "2"},
		{"one is ahead", 2, 0, "3"},
		{"hits of the future are not late", 1, -1, "3"},
	} {
		if step.newest > 0 {
			noError(t, admin.HSet(t.Context(), watch, "newest", hourly.Bucket(now)+step.newest-1).Err())
		}
		mustApply(t, s, hitAt(now, 0, uint64(i)+1, step.age))
		mustApply(t, s, onlyReading(hitAt(now, 0, 0, step.age)))
		if got := admin.HGet(t.Context(), watch, "late").Val(); got != step.late {
			t.Errorf("%s: %q, want %q", step.why, got, step.late)
		}
		if step.newest == 0 && admin.Exists(t.Context(), watch).Val() > 0 {
			t.Errorf("%s: %s is made", step.why, watch)
		}
	}
}

// A call that was made before a loss, and has its turn after another one that found the loss,
// relies on nothing of before.
func TestACallFromBeforeALoss(t *testing.T) {
	s, admin := newStore(t, 1)
	now := time.Now().UnixNano()
	mustApply(t, s, hitAt(now, 0, 1, 0))
	c := newCall(s, hitAt(now, 0, 2, 0))
	noError(t, admin.FlushAll(t.Context()).Err())
	mustApply(t, s, newcomersOf(hourly, now, 1, "rule", 0, 1))
	if applied, complete, err := s.run(t.Context(), c); err != nil || complete {
		t.Errorf("%+v, %v, %v", applied, complete, err)
	}
	wantExpiry(t, admin, "counts", "offpath:{0}:1:*", 1, forever)
	if got := mustApply(t, s, hitAt(now, 0, 3, 0)).Totals[0]; len(got) != 1 || got[0].Count != 2 {
		t.Errorf("totals %v, want 2", got)
	}
}

// A call that has its turn after one of later buckets cannot say all totals, as some are not
// remembered any more, but what it adds is: also if it ends there, because the store cannot be
// read.
func TestACallOfEarlierBuckets(t *testing.T) {
	for name, shape := range map[string]window.Shape{"one": hourly, "fixed": whole, "many": minute} {
		s, _ := newStore(t, 1)
		size, sequence := int64(shape.BucketSize()), uint64(0)
		first := shape.Bucket(time.Now().UnixNano())
		batch := func(bucket int64) *storage.Batch { // a hit in the bucket that is current
			sequence++
			f := newcomersOf(shape, bucket*size, 1, "rule", 0, 1)
			f.Marks[0].Epoch = sequence
			return f
		}
		later := int64(shape.Live()) - 1
		if later > 1 {
			later = slack + 1
		}
		mustApply(t, s, batch(first))
		early := newCall(s, batch(first))
		mustApply(t, s, batch(first+later))
		if _, complete, err := s.run(t.Context(), early); err != nil || complete != (later == 0) {
			t.Errorf("%s: complete %v, %v", name, complete, err)
		}
		totals := mustApply(t, s, batch(first+later)).Totals[0]
		want := int64(2)
		if later == 0 {
			want = 4
		}
		if got := storage.CountOf(totals, first); got != want {
			t.Errorf("%s: %d hits, want %d", name, got, want)
		}
	}
}

// Calls at once have their turns: each answer is what its batch has left.
func TestCallsAtOnce(t *testing.T) {
	s, _ := newStore(t, 1)
	now := time.Now().UnixNano()
	const callers, batches = 8, 40
	var mu sync.Mutex
	var got []int64
	var all sync.WaitGroup
	for caller := range uint64(callers) {
		all.Go(func() {
			for i := range uint64(batches) {
				f := hitAt(now, 0, i+1, 0)
				f.Marks[0].Epoch = caller + 1
				applied, err := s.Apply(t.Context(), f)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				got = append(got, applied.Totals[0][0].Count)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	slices.Sort(got)
	for i, total := range got {
		if total != int64(i)+1 {
			t.Fatalf("totals %v", got)
		}
	}
	if n := s.shard(0).chain.version; n != fmt.Sprint(callers*batches) {
		t.Errorf("known at version %s", n)
	}
}

// A call that waits for its turn gives up with its context, and spoils nothing.
func TestTurnsEndWithTheContext(t *testing.T) {
	s, _ := newStore(t, 1)
	now := time.Now().UnixNano()
	mustApply(t, s, hitAt(now, 0, 1, 0))
	s.shard(0).turn <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Apply(ctx, hitAt(now, 0, 2, 0)); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting: %v", err)
	}
	<-s.shard(0).turn
	f := hitAt(now, 0, 2, 0)
	if got := hashesOf(s, f); got != 1 {
		t.Errorf("%d hashes, want 1", got)
	}
	if got := mustApply(t, s, f).Totals[0]; got[0].Count != 2 {
		t.Errorf("totals %v", got)
	}
}

// A short key may be the very bytes that stand for a long one; what is remembered of them differs.
func TestMemoryTellsLongKeysFromShortOnes(t *testing.T) {
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

// Stores with more, little and no memory take turns on one Redis, mostly several batches each, and
// answer as the store in memory does: with late and future hits, refunds, levels, repeats, long
// silences, several buckets at once; with calls that wait, or time out and come later, a stale
// replica promoted, and all data lost.
func TestStoresTakeTurns(t *testing.T) {
	seeds := uint64(300)
	if testing.Short() {
		seeds = 8
	}
	admin := empty(t)
	stores := []*Store{open(t, Options{}), open(t, Options{}), open(t, Options{Remember: 300}), open(t, Options{Remember: -1})}
	for seed := range seeds {
		admin.FlushAll(t.Context())
		for _, s := range stores {
			mustJoin(t, s, 1)
		}
		takeTurns(t, seed, stores)
		for _, key := range keysOf(t, admin, counts) {
			if ttl := admin.PTTL(t.Context(), key).Val(); ttl <= 0 && ttl != -2*time.Nanosecond { // it has expired
				t.Fatalf("seed %d: %s never expires", seed, key)
			}
		}
	}
}

func takeTurns(t *testing.T, seed uint64, stores []*Store) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 1))
	memory := memstore.New()
	must(memory.Join(t.Context(), 1))(t)
	shapes := []window.Shape{
		hourly, whole, minute, tokens, drop,
		{Length: time.Hour, Buckets: 6}, {Length: time.Hour, Buckets: 1, Kind: window.Log},
	}
	now, at := time.Now().UnixNano(), 0
	admin := storetest.Masters{UniversalClient: stores[0].Client()}
	restore, snapshot := func() { admin.Lose(t) }, memory.Snapshot()
	var late []func()
	var last storage.State
	for i := range uint64(120) {
		if random.IntN(6) == 0 {
			at = random.IntN(len(stores))
		}
		switch event := random.IntN(60); {
		case event == 0:
			restore, snapshot = admin.Snapshot(t), memory.Snapshot()
		case event == 1:
			admin.Lose(t)
			memory.Lose()
		case event < 6: // so often that another store gets just as far
			restore()
			memory.Restore(snapshot)
			at = random.IntN(len(stores))
		case event < 30 && len(late) > 0:
			n := random.IntN(len(late))
			late[n]()
			late = slices.Delete(late, n, n+1)
		}
		now += random.Int64N([]int64{int64(time.Second), int64(5 * time.Minute), int64(time.Hour)}[random.IntN(3)])
		if random.IntN(30) == 0 {
			now += random.Int64N(int64(4 * time.Hour))
		}
		f := &storage.Batch{Now: now, Marks: []storage.Mark{{Epoch: 1 + random.Uint64N(2), Sequence: i + 1 - random.Uint64N(2)}}}
		if random.IntN(8) == 0 {
			f.Marks = nil // it only reads
		}
		if random.IntN(20) == 0 { // somebody remembers what was lost
			f.Seen = last
		}
		for _, shape := range shapes {
			for kind := range storage.Kind(3) {
				if random.IntN(3) > 0 {
					continue
				}
				rule := len(f.Rules)
				f.Rules = append(f.Rules, storage.Rule{Name: "r", Shape: shape, Kind: kind, Limit: 50, Burst: 20})
				f.Ledger = append(f.Ledger, storage.Tally{})
				for key := range 4 {
					if random.IntN(3) == 0 {
						continue
					}
					k := storage.Key{Rule: rule, Text: fmt.Sprint(strings.Repeat("k", 63*(key%2)), key)}
					for age := int64(shape.Live()) - 1; age >= -2; age-- {
						if random.IntN(shape.Live()+2) > 1 {
							continue
						}
						n := random.Int64N(3)
						if f.Marks == nil {
							n = 0
						}
						k.Cells = append(k.Cells, storage.Cell{Bucket: shape.Bucket(now) - age, Count: n})
					}
					f.Keys = append(f.Keys, k)
				}
			}
		}
		s := stores[at]
		if random.IntN(8) == 0 {
			late = append(late, later(t, s, f, memory, random.IntN(2) == 0))
			continue
		}
		want, got := must(memory.Apply(t.Context(), f))(t), mustApply(t, s, f)
		if last.Less(got.State) {
			last = got.State
		}
		if !slices.Equal(got.Repeated, want.Repeated) || len(got.Totals) != len(want.Totals) {
			t.Fatalf("seed %d, batch %d: repeated %v, want %v", seed, i, got.Repeated, want.Repeated)
		}
		for key := range got.Totals {
			r := &f.Rules[f.Keys[key].Rule]
			if a, b := seen(f, key, got.Totals[key]), seen(f, key, want.Totals[key]); !slices.Equal(a, b) {
				t.Fatalf("seed %d, batch %d, store %d, key %d of %+v: totals %v, want %v", seed, i, at, key, *r, a, b)
			}
			if r.Drains() && got.Levels[key] != want.Levels[key] {
				t.Fatalf("seed %d, batch %d, store %d, key %d of %+v: level %v, want %v", seed, i, at, key, *r, got.Levels[key], want.Levels[key])
			}
		}
	}
}

// later lays out a batch as it is to be applied now, and returns what applies it: when this store
// has its turn, or else when Redis goes on and nobody waits for the answer any more.
func later(t *testing.T, s *Store, f *storage.Batch, memory *memstore.Store, waits bool) func() {
	t.Helper()
	c := newCall(s, f)
	if !waits {
		c.expect(s.shard(0).chain, newID(), true, 0)
	}
	return func() {
		t.Helper()
		if waits {
			_, _, err := s.run(t.Context(), c)
			noError(t, err)
		} else {
			must(s.eval(t.Context(), &c.frame, applyScript, applySource))(t)
		}
		must(memory.Apply(t.Context(), f))(t)
	}
}

// seen are the totals of a key that its batch asks for.
func seen(f *storage.Batch, key int, totals []storage.Cell) (cells []storage.Cell) {
	shape := f.Rules[f.Keys[key].Rule].Shape
	current := shape.Bucket(f.Now)
	for _, c := range totals {
		asked := c.Bucket <= current && c.Bucket > current-int64(shape.Live())
		if c.Count > 0 && (asked || slices.ContainsFunc(f.Keys[key].Cells, func(k storage.Cell) bool { return k.Bucket == c.Bucket })) {
			cells = append(cells, c)
		}
	}
	return cells
}
