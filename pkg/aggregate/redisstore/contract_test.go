package redisstore

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/offpath-io/offpath/internal/testing/storetest"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
)

func TestContractOnOneRedis(t *testing.T) {
	admin := empty(t)
	for name, remember := range map[string]int{"Remembering": 0, "RememberingLittle": 8, "RememberingNothing": -1} {
		t.Run(name, func(t *testing.T) {
			var only []string
			if testing.Short() && remember != 0 {
				only = []string{"Reading", "Generations", "Order", "Random"} // what reads previous buckets
			}
			contract(t, admin, Options{Remember: remember}, only...)
		})
	}
}

func contract(t *testing.T, admin redis.UniversalClient, o Options, only ...string) {
	storetest.Run(t, func(t testing.TB) storetest.Harness {
		s := &masters{admin}
		s.lose(t)
		store := open(t, o)
		return storetest.Harness{
			Store: store,
			Other: open(t, o),
			Now:   time.Now().UnixNano(),
			Clock: func() int64 { return time.Now().UnixNano() },
			Ledger: func(t testing.TB) storage.Ledger {
				return must(store.Ledger(t.Context()))(t)
			},
			Lose:     s.lose,
			Snapshot: s.snapshot,
			Expiries: s.expiries,
		}
	}, only...)
}

// masters are the servers behind a store.
type masters struct{ redis.UniversalClient }

// each calls do for each master.
func (s *masters) each(t testing.TB, do func(ctx context.Context, master *redis.Client) error) {
	t.Helper()
	var err error
	switch c := s.UniversalClient.(type) {
	case *redis.ClusterClient:
		err = c.ForEachMaster(t.Context(), do)
	case *redis.Client:
		err = do(t.Context(), c)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (s *masters) lose(t testing.TB) {
	t.Helper()
	s.each(t, func(ctx context.Context, master *redis.Client) error { return master.FlushAll(ctx).Err() })
}

// eachKey calls do for each key of all masters, one at a time.
func (s *masters) eachKey(t testing.TB, do func(ctx context.Context, master *redis.Client, key string) error) {
	t.Helper()
	var mu sync.Mutex
	s.each(t, func(ctx context.Context, master *redis.Client) error {
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

func (s *masters) snapshot(t testing.TB) func() {
	t.Helper()
	type saved struct {
		data   string
		expiry time.Duration
	}
	all := make(map[string]saved)
	s.eachKey(t, func(ctx context.Context, master *redis.Client, key string) error {
		data, err := master.Dump(ctx, key).Result()
		if err != nil {
			return err
		}
		expiry, err := master.PExpireTime(ctx, key).Result()
		all[key] = saved{data, expiry}
		return err
	})
	return func() {
		s.lose(t)
		for key, v := range all {
			noError(t, s.Do(t.Context(), "RESTORE", key, max(v.expiry.Milliseconds(), 0), v.data, "ABSTTL").Err())
		}
	}
}

func (s *masters) expiries(t testing.TB) []int64 {
	t.Helper()
	var all []int64
	s.eachKey(t, func(ctx context.Context, master *redis.Client, key string) error {
		if strings.HasSuffix(key, ":config") || strings.HasSuffix(key, "}:meta") || strings.HasSuffix(key, "}:ledger") || strings.Contains(key, "}:new:") {
			return nil
		}
		expiry, err := master.PExpireTime(ctx, key).Result()
		all = append(all, max(int64(expiry), 0))
		return err
	})
	return all
}
