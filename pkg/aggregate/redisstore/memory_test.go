package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/offpath-io/offpath/pkg/aggregate"
)

// TestMemoryPerKey measures what a key with two live buckets takes in Redis, as the README says:
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
	shape, now := hourly, time.Now().UnixNano()
	before := usedMemory(t, admin)
	for age := range int64(2) {
		for from := 0; from < keys; from += 2000 {
			fold := &aggregate.Fold{
				Now:    now,
				Marks:  []aggregate.Mark{{Epoch: 1, Sequence: uint64(from) + uint64(age) + 1}},
				Rules:  []aggregate.Rule{{Name: "per-user", Shape: shape, Limit: 100}},
				Ledger: make([]aggregate.Tally, 1),
			}
			fold.Marks[0].Epoch += uint64(age)
			for i := range 2000 {
				n := from + i
				cells := []aggregate.Cell{{Bucket: shape.Bucket(now) - age, Count: int64(1 + n%100)}}
				fold.Keys = append(fold.Keys, aggregate.Key{Text: fmt.Sprintf("user:%06d", n), Cells: cells})
			}
			if applied := mustApply(t, store, fold); len(applied.Repeated) > 0 {
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

func usedMemory(t *testing.T, admin *redis.Client) int64 {
	t.Helper()
	info, err := admin.InfoMap(context.Background(), "memory").Result()
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseInt(info["Memory"]["used_memory"], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
