package redisstore_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/internal/testing/storetest"
	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/redisstore"
)

func TestContractOnOneRedis(t *testing.T) {
	url := serverstest.Redis(t).URL()
	for name, recall := range map[string]int{"Remembering": 0, "RememberingLittle": 8, "RememberingNothing": -1} {
		t.Run(name, func(t *testing.T) { contract(t, redisstore.Options{URL: url, Recall: recall}) })
	}
}

func TestContractOnCluster(t *testing.T) {
	contract(t, redisstore.Options{URL: "redis://" + strings.Join(serverstest.RedisCluster(t).Addrs(), ",")})
}

func contract(t *testing.T, o redisstore.Options) {
	var admin redis.UniversalClient
	if addrs := strings.Split(strings.TrimPrefix(o.URL, "redis://"), ","); len(addrs) > 1 {
		admin = redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	} else {
		admin = redis.NewClient(&redis.Options{Addr: addrs[0]})
	}
	t.Cleanup(func() { admin.Close() })
	storetest.Run(t, func(t testing.TB) storetest.Harness {
		s := &servers{admin}
		s.lose(t)
		store := openWith(t, o)
		return storetest.Harness{
			Store: store,
			Other: openWith(t, o),
			Now:   time.Now().UnixNano(),
			Clock: func() int64 { return time.Now().UnixNano() },
			Ledger: func(t testing.TB) aggregate.Ledger {
				l, err := store.Ledger(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				return l
			},
			Lose:     s.lose,
			Snapshot: s.snapshot,
			Expiries: s.expiries,
		}
	})
}

func open(t testing.TB, url string) *redisstore.Store {
	t.Helper()
	return openWith(t, redisstore.Options{URL: url})
}

func openWith(t testing.TB, o redisstore.Options) *redisstore.Store {
	t.Helper()
	s, err := redisstore.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// servers are the masters behind a store.
type servers struct{ redis.UniversalClient }

// each calls do for each master.
func (s *servers) each(t testing.TB, do func(ctx context.Context, master *redis.Client) error) {
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

func (s *servers) lose(t testing.TB) {
	t.Helper()
	s.each(t, func(ctx context.Context, master *redis.Client) error { return master.FlushAll(ctx).Err() })
}

// eachKey calls do for each key of all masters.
func (s *servers) eachKey(t testing.TB, do func(ctx context.Context, master *redis.Client, key string) error) {
	t.Helper()
	s.each(t, func(ctx context.Context, master *redis.Client) error {
		keys, err := master.Keys(ctx, "*").Result()
		for _, key := range keys {
			if err == nil {
				err = do(ctx, master, key)
			}
		}
		return err
	})
}

func (s *servers) snapshot(t testing.TB) func() {
	t.Helper()
	var mu sync.Mutex
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
		mu.Lock()
		defer mu.Unlock()
		all[key] = saved{data, expiry}
		return err
	})
	return func() {
		s.lose(t)
		for key, v := range all {
			if err := s.Do(t.Context(), "RESTORE", key, max(v.expiry.Milliseconds(), 0), v.data, "ABSTTL").Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func (s *servers) expiries(t testing.TB) []int64 {
	t.Helper()
	var mu sync.Mutex
	var all []int64
	s.eachKey(t, func(ctx context.Context, master *redis.Client, key string) error {
		if strings.HasSuffix(key, ":config") || strings.HasSuffix(key, "}:meta") || strings.HasSuffix(key, "}:ledger") {
			return nil
		}
		expiry, err := master.PExpireTime(ctx, key).Result()
		mu.Lock()
		defer mu.Unlock()
		all = append(all, max(int64(expiry), 0))
		return err
	})
	return all
}
