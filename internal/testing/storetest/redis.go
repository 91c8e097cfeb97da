package storetest

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
)

// InRedis returns what opens harnesses of a store in a Redis or a Redis Cluster whose data is the
// test's alone. Admin may do everything there.
func InRedis[S interface {
	storage.Store
	Ledger(context.Context) (storage.Ledger, error)
}](admin redis.UniversalClient, open func(testing.TB) S) func(testing.TB) Harness {
	return func(t testing.TB) Harness {
		m := Masters{admin}
		m.Lose(t)
		store := open(t)
		return Harness{
			Store: store,
			Other: open(t),
			Now:   time.Now().UnixNano(),
			Clock: func() int64 { return time.Now().UnixNano() },
			Ledger: func(t testing.TB) storage.Ledger {
				l, err := store.Ledger(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				return l
			},
			Lose:     m.Lose,
			Snapshot: m.Snapshot,
			Expiries: m.expiries,
		}
	}
}

// Masters are the servers behind a store.
type Masters struct{ redis.UniversalClient }

// each calls do for each master.
func (m Masters) each(t testing.TB, do func(ctx context.Context, master *redis.Client) error) {
	t.Helper()
	var err error
	switch c := m.UniversalClient.(type) {
	case *redis.ClusterClient:
		err = c.ForEachMaster(t.Context(), do)
	case *redis.Client:
		err = do(t.Context(), c)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Lose drops all data.
func (m Masters) Lose(t testing.TB) {
	t.Helper()
	m.each(t, func(ctx context.Context, master *redis.Client) error { return master.FlushAll(ctx).Err() })
}

// eachKey calls do for each key of all masters, one at a time.
func (m Masters) eachKey(t testing.TB, do func(ctx context.Context, master *redis.Client, key string) error) {
	t.Helper()
	var mu sync.Mutex
	m.each(t, func(ctx context.Context, master *redis.Client) error {
		keys, err := master.Keys(ctx, "*").Result()
		mu.Lock()
		defer mu.Unlock()
		for _, key := range keys {
			if err == nil {
				err = do(ctx, master, key)
			}
		}
		return err
	})
}

// Snapshot keeps a copy of all data, and returns what brings it back.
func (m Masters) Snapshot(t testing.TB) (restore func()) {
	t.Helper()
	type saved struct {
		data   string
		expiry time.Duration
	}
	all := make(map[string]saved)
	m.eachKey(t, func(ctx context.Context, master *redis.Client, key string) error {
		data, err := master.Dump(ctx, key).Result()
		if err != nil {
			return err
		}
		expiry, err := master.PExpireTime(ctx, key).Result()
		all[key] = saved{data, expiry}
		return err
	})
	return func() {
		m.Lose(t)
		for key, v := range all {
			if err := m.Do(t.Context(), "RESTORE", key, max(v.expiry.Milliseconds(), 0), v.data, "ABSTTL").Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func (m Masters) expiries(t testing.TB) []int64 {
	t.Helper()
	var all []int64
	m.eachKey(t, func(ctx context.Context, master *redis.Client, key string) error {
		if strings.HasSuffix(key, ":config") || strings.HasSuffix(key, "}:meta") || strings.HasSuffix(key, "}:ledger") || strings.Contains(key, "}:new:") || strings.Contains(key, "}:by:") {
			return nil
		}
		expiry, err := master.PExpireTime(ctx, key).Result()
		all = append(all, max(int64(expiry), 0))
		return err
	})
	return all
}
