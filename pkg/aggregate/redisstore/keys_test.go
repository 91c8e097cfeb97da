package redisstore

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/window"
)

// batchOf is a batch of n keys for each shape, with one hit now and some before and after.
func batchOf(now int64, sequence uint64, n int, shapes ...window.Shape) *storage.Batch {
	f := &storage.Batch{Shard: 7, Now: now, Marks: []storage.Mark{{Epoch: 0xabc, Sequence: sequence}}}
	for i, shape := range shapes {
		f.Rules = append(f.Rules, storage.Rule{Name: fmt.Sprint("rule {x} ", i), Shape: shape})
		f.Ledger = append(f.Ledger, storage.Tally{Counted: 1, Late: 1, Refused: 1})
		for key := range n {
			cells := []storage.Cell{{Bucket: shape.Bucket(now), Count: 1}}
			if key%5 == 1 {
				cells = append(cells, storage.Cell{Bucket: shape.Bucket(now) + 1, Count: 1})
			}
			if key%5 == 2 && shape.Live() > 1 {
				cells = slices.Insert(cells, 0, storage.Cell{Bucket: shape.Bucket(now) - 1, Count: 1})
			}
			f.Keys = append(f.Keys, storage.Key{Rule: i, Text: strings.Repeat("}", key%80) + fmt.Sprint(key), Cells: cells})
		}
	}
	return f
}

// leaseBatchOf is a lease batch of n keys for each shape, for each of which two checkers ask.
func leaseBatchOf(now int64, n int, shapes ...window.Shape) *storage.LeaseBatch {
	f := &storage.LeaseBatch{Shard: 7, Now: now}
	for i, shape := range shapes {
		f.Rules = append(f.Rules, storage.Rule{Name: fmt.Sprint("rule {x} ", i), Shape: shape, Limit: 100})
		for key := range n {
			f.Keys = append(f.Keys, storage.LeaseKey{Rule: i, Text: strings.Repeat("}", key%80) + fmt.Sprint(key), Requests: []storage.LeaseRequest{
				{Epoch: 0xabc, Bucket: shape.Bucket(now), Want: 2},
				{Epoch: 1<<64 - 1, Bucket: shape.Bucket(now), Want: 3},
			}})
		}
	}
	return f
}

// Every key that the scripts make was declared, and all keys of a shard are in one slot of a
// cluster.
func TestKeysAreDeclared(t *testing.T) {
	const namespace = "some.name-space"
	s, admin := newStoreOf(t, 8, Options{Namespace: namespace})
	now := time.Now().UnixNano()
	t.Run("counts", func(t *testing.T) {
		batch := batchOf(now, 1, 200, hourly, whole, minute, tokens, drop)
		c := newCall(s, batch)
		mustApply(t, s, batch)
		if made := wantDeclared(t, admin, c.keys); made < 400 {
			t.Errorf("only %d keys", made)
		}
	})
	empty(t)
	t.Run("leases", func(t *testing.T) {
		batch := leaseBatchOf(now, 100, hourly, whole, minute)
		c := leaseCall{newKeys: &s.newKeys}
		c.build(namespace, s.name, 0, batch)
		mustLease(t, s, batch)
		if made, want := wantDeclared(t, admin, c.keys), 1+3+300*3+1; made != want || len(c.keys) != want {
			t.Errorf("%d keys made, %d declared, want %d", made, len(c.keys), want)
		}
	})
}

// wantDeclared checks the names of what was made and of what was declared, and returns how many
// were made.
func wantDeclared(t *testing.T, admin *redis.Client, declared []string) int {
	t.Helper()
	made := slices.DeleteFunc(keysOf(t, admin, "*"), func(key string) bool { return strings.HasSuffix(key, ":config") })
	for _, key := range made {
		if !slices.Contains(declared, key) {
			t.Errorf("key %q is not declared", key)
		}
	}
	slot := admin.ClusterKeySlot(t.Context(), "7").Val()
	for _, key := range declared {
		if !strings.HasPrefix(key, "some.name-space:{7}:") || admin.ClusterKeySlot(t.Context(), key).Val() != slot {
			t.Errorf("key %q is in another slot", key)
		}
	}
	return len(made)
}

// Groups stay packed, also with keys of every length.
func TestGroupsStayPacked(t *testing.T) {
	s, admin := newStore(t, 8)
	mustApply(t, s, batchOf(time.Now().UnixNano(), 1, 500, hourly))
	groups := keysOf(t, admin, "offpath:{7}:1:*")
	if len(groups) < 100 {
		t.Fatalf("%d groups", len(groups))
	}
	for _, key := range groups {
		if got := admin.ObjectEncoding(t.Context(), key).Val(); got != "listpack" {
			t.Errorf("%s is a %s", key, got)
		}
	}
}

// What has expired is dropped from a key's list while the key is in use, and nothing of a checker
// that is gone stays.
func TestExpiredPermitsAreDropped(t *testing.T) {
	s, admin := newStore(t, 1)
	shape := window.Shape{Length: time.Minute, Buckets: 2}
	begin := time.Now().Add(-5 * time.Hour).UnixNano() // of which nothing expires by the server's clock
	for i := range 200 {
		batch := leaseBatchOf(begin+int64(i)*int64(shape.BucketSize()), 1, shape)
		leased := mustLease(t, s, batch)
		if n := len(leased.Keys[0].Held); n > 7 {
			t.Fatalf("%d buckets after %d, of which 3 are live and 4 more kept", n, i)
		}
	}
	for _, key := range wantExpiry(t, admin, "permits", "*:[hg]:*", 1, 4*time.Minute) {
		if n := admin.StrLen(t.Context(), key).Val(); n > 100 {
			t.Errorf("%s has %d bytes", key, n)
		}
	}
}

// A key of many buckets sheds those that have expired; one that drains also what was refunded, even
// if nothing else was counted.
func TestExpiredBucketsAreDropped(t *testing.T) {
	plain := func(now int64, sequence uint64) *storage.Batch { return batchOf(now, sequence, 1, minute) }
	refunds := func(now int64, sequence uint64) *storage.Batch {
		f := batchOf(now, sequence, 2, tokens)
		f.Rules[0].Limit, f.Rules[0].Burst = 1, 1
		back := f.Rules[0]
		back.Kind = storage.Refunded
		f.Rules, f.Ledger = append(f.Rules, back), append(f.Ledger, storage.Tally{})
		f.Keys[1].Cells = nil // what it was charged never came
		for _, key := range f.Keys[:2] {
			cells := []storage.Cell{{Bucket: tokens.Bucket(now), Count: 1}}
			f.Keys = append(f.Keys, storage.Key{Rule: 1, Text: key.Text, Cells: cells})
		}
		return f
	}
	kept := int64(mostBuckets(minute))
	for _, tt := range []struct {
		why           string
		batch         func(now int64, sequence uint64) *storage.Batch
		keys          int
		fewest, bound int64 // fields of each key, when it has the most
	}{
		{"counts", plain, 1, kept - 1, kept},
		{"refunds", refunds, 2, kept, 2*kept + 5}, // the level, and what comes before it is looked
	} {
		s, admin := newStore(t, 8)
		now, most := time.Now().UnixNano(), map[string]int64{}
		for i := range uint64(3*kept + 10) {
			mustApply(t, s, tt.batch(now, i+1))
			for _, key := range keysOf(t, admin, "offpath:{7}:n:*") {
				most[key] = max(most[key], admin.HLen(t.Context(), key).Val())
			}
			now += int64(time.Minute)
		}
		if len(most) != tt.keys {
			t.Errorf("%s: %d keys, want %d", tt.why, len(most), tt.keys)
		}
		for key, fields := range most {
			if fields < tt.fewest || fields > tt.bound {
				t.Errorf("%s: up to %d fields in %q, want %d to %d", tt.why, fields, key, tt.fewest, tt.bound)
			}
		}
	}
}

// So do many keys at once, and keys whose batch failed after they were read.
func TestExpiredBucketsOfManyKeysAreDropped(t *testing.T) {
	const keys = 1000
	shape := window.Shape{Length: time.Hour, Buckets: 6}
	s, admin := newStore(t, 1)
	now := time.Now().UnixNano()
	for i := range 4 * mostBuckets(shape) {
		if i%3 > 0 { // this batch is refused, and nothing of it done
			f := newcomersOf(shape, now, 1, "rule", 0, keys)
			if applied := mustApply(t, s, f); i > 0 && len(applied.Repeated) != 1 {
				t.Fatalf("batch %d: %+v", i, applied)
			}
		}
		mustApply(t, s, newcomersOf(shape, now, uint64(i)+2, "rule", 0, keys))
		now += int64(shape.BucketSize())
	}
	most, names := int64(0), keysOf(t, admin, "offpath:{0}:n:*")
	for _, key := range names {
		most = max(most, admin.HLen(t.Context(), key).Val())
	}
	if bound := int64(mostBuckets(shape) + readEvery(shape)); len(names) != keys || most > bound {
		t.Errorf("%d keys have up to %d fields, want %d and %d", len(names), most, keys, bound)
	}
}

// A node whose clock differs from the fleet's keeps what it has for as long as any other would.
func TestExpiryIsIndependentOfTheNodesClock(t *testing.T) {
	s, admin := newStore(t, 8)
	for i, off := range []time.Duration{-100 * 24 * time.Hour, 100 * 24 * time.Hour} {
		empty(t)
		now := time.Now().Add(off).UnixNano()
		mustApply(t, s, batchOf(now, uint64(i)+1, 5, hourly, minute))
		for _, pattern := range []string{"offpath:{7}:1:*", "offpath:{7}:n:*"} {
			if keys := wantExpiry(t, admin, off.String(), pattern, 30*time.Minute, 5*time.Hour); len(keys) == 0 {
				t.Errorf("no keys like %s", pattern)
			}
		}
	}
}
