package fleet

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/offpath-io/offpath/internal/redisconn"
	"github.com/offpath-io/offpath/internal/testing/servers"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/aggregate/redisstore"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
)

// store is where the fleet counts: one in memory for all aggregators, or a Redis that each has
// connections of its own to.
type store struct {
	memory    *memstore.Store
	url       string // of Redis
	access    redisconn.Access
	namespace string
	log       *slog.Logger
	server    *servers.Redis      // if it is ours
	admin     *redisstore.Store   // to look at it
	opened    []*redisstore.Store // by the aggregators
	ahead     time.Duration       // see Options
}

func openStore(ctx context.Context, o Options, namespace string) (*store, error) {
	s := &store{url: o.Redis, access: o.RedisAccess, namespace: namespace, log: o.Log}
	switch s.url {
	case "":
		s.memory = memstore.New()
		return s, nil
	case Embedded:
		server, err := servers.StartRedis(ctx, servers.RedisOptions{})
		if err != nil {
			return nil, err
		}
		s.server, s.url = server, server.URL()
	}
	admin, err := s.access.OpenOnce(redisstore.Options{URL: s.url, Namespace: namespace, Remember: -1})
	if err == nil {
		s.admin = admin
		ctx, cancel := context.WithTimeout(ctx, o.MeetingTimeout)
		defer cancel()
		err = admin.Client().Ping(ctx).Err()
	}
	if err != nil {
		s.close()
		return nil, fmt.Errorf("reach Redis: %w", err)
	}
	return s, nil
}

// forAggregator returns the store as one more aggregator has it.
func (s *store) forAggregator() (storage.Store, error) {
	if s.memory != nil && s.ahead != 0 {
		return clocked{s.memory, s.ahead}, nil
	}
	if s.memory != nil {
		return s.memory, nil
	}
	own, err := s.access.OpenOnce(redisstore.Options{URL: s.url, Namespace: s.namespace})
	if err != nil {
		return nil, err
	}
	s.opened = append(s.opened, own)
	return own, nil
}

// clocked is a store with a clock that is ahead of this machine's, as another machine's may be.
type clocked struct {
	*memstore.Store
	ahead time.Duration
}

func (c clocked) Join(ctx context.Context, shards int) (storage.Fleet, error) {
	fleet, err := c.Store.Join(ctx, shards)
	fleet.Time = time.Unix(0, ownTime()).Add(c.ahead)
	return fleet, err
}

func (s *store) ledger(ctx context.Context) (storage.Ledger, error) {
	if s.memory != nil {
		return s.memory.Ledger(ctx)
	}
	return s.admin.Ledger(ctx)
}

// kind is its name in the report.
func (s *store) kind() string {
	if s.memory != nil {
		return "memory"
	}
	return "redis"
}

// usage is what a Redis says of itself.
type usage struct {
	calls, memory int64
	lives         string // names the lives of the servers: another after a restart
}

// sameLives says whether two figures are of the same servers.
func sameLives(a, b *usage) bool { return a != nil && b != nil && a.lives == b.lives }

// usage returns what Redis, or all masters of a Cluster, have done and hold; nil if there is none,
// or no answer.
func (s *store) usage(ctx context.Context) *usage {
	if s.memory != nil {
		return nil
	}
	var mu sync.Mutex
	var lives []string
	u := &usage{}
	err := eachMaster(ctx, s.admin.Client(), func(ctx context.Context, c redis.Cmdable) error {
		info := c.InfoMap(ctx, "everything")
		calls, _ := strconv.ParseInt(info.Item("Stats", "total_commands_processed"), 10, 64)
		memory, _ := strconv.ParseInt(info.Item("Memory", "used_memory_dataset"), 10, 64)
		mu.Lock()
		defer mu.Unlock()
		u.calls += calls
		u.memory += memory
		lives = append(lives, info.Item("Server", "run_id"))
		return info.Err()
	})
	if err != nil {
		return nil
	}
	slices.Sort(lives)
	u.lives = strings.Join(lives, " ")
	return u
}

func eachMaster(ctx context.Context, client redis.UniversalClient, f func(context.Context, redis.Cmdable) error) error {
	if cluster, ok := client.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error { return f(ctx, c) })
	}
	return f(ctx, client)
}

// cleanTimeout is how long removing our keys from somebody's Redis may take.
const cleanTimeout = 10 * time.Second

// close ends the connections. In a Redis that is not ours nothing is left behind.
func (s *store) close() {
	for _, own := range s.opened {
		_ = own.Close()
	}
	if s.admin != nil {
		if s.server == nil {
			ctx, cancel := context.WithTimeout(context.Background(), cleanTimeout)
			if err := eachMaster(ctx, s.admin.Client(), s.clean); err != nil {
				s.log.Warn("some of the run's keys stay in Redis: most expire, the ledger does not",
					slog.String("prefix", s.namespace), slog.Any("error", err))
			}
			cancel()
		}
		_ = s.admin.Close()
	}
	if s.server != nil {
		_ = s.server.Stop()
	}
}

func (s *store) clean(ctx context.Context, c redis.Cmdable) error {
	keys := c.Scan(ctx, 0, s.namespace+"*", 1000).Iterator()
	for keys.Next(ctx) {
		if err := c.Unlink(ctx, keys.Val()).Err(); err != nil {
			return err
		}
	}
	return keys.Err()
}
