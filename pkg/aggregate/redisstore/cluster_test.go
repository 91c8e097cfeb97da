package redisstore

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
)

// TestCluster: each shard has its master; one that is down holds up only its own shards.
func TestCluster(t *testing.T) {
	cluster, now := serverstest.RedisCluster(t), time.Now().UnixNano()
	options := Options{URL: "redis://" + strings.Join(cluster.Addrs(), ",")}
	admin := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), ReadTimeout: time.Minute})
	t.Cleanup(func() { admin.Close() })

	t.Run("a single address of it is refused", func(t *testing.T) {
		_, err := open(t, Options{URL: "redis://" + cluster.Addrs()[0]}).Join(t.Context(), 0)
		if err == nil || !strings.Contains(err.Error(), "several of its addresses") {
			t.Errorf("Join: %v", err)
		}
	})
	t.Run("a node that hangs holds up its own shards only", func(t *testing.T) {
		s, impatient := open(t, options), openImpatient(t, options)
		shards := mustJoin(t, s, 0).Shards
		if shards != 12 {
			t.Fatalf("%d shards on 3 masters, want 12", shards)
		}
		hanging := make(map[uint32]bool)
		for shard := range uint32(shards) {
			mustApply(t, s, oneHit(now, shard, 1))
			node := must(admin.MasterForKey(t.Context(), fmt.Sprintf("{%d}", shard)))(t)
			hanging[shard] = node.Options().Addr == cluster.Node(1).Addr()
		}
		noError(t, cluster.Node(1).Pause())
		tried := 0
		for shard := range uint32(shards) {
			if !hanging[shard] {
				mustApply(t, s, oneHit(now, shard, 2))
				continue
			}
			if tried++; tried > 2 {
				continue
			}
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			if _, err := impatient.Apply(ctx, oneHit(now, shard, 2)); err == nil {
				t.Errorf("shard %d: applied", shard)
			}
			cancel()
		}
		if tried == 0 {
			t.Error("the node has no shards")
		}
		noError(t, cluster.Node(1).Resume())
		for shard := range uint32(shards) { // each again: those that hung may have been applied
			applied := mustApply(t, s, oneHit(now, shard, 2))
			if len(applied.Repeated) != 1 && applied.Totals[0][0].Count != 2 {
				t.Errorf("shard %d: %+v", shard, applied)
			}
		}
		wantCounted(t, s, int64(2*shards))
	})
	t.Run("a node that may evict is refused", func(t *testing.T) {
		node := redis.NewClient(&redis.Options{Addr: cluster.Node(1).Addr(), ReadTimeout: time.Minute})
		t.Cleanup(func() { node.Close() })
		set(t, node, "maxmemory-policy", "allkeys-lru")
		set(t, node, "maxmemory", "100mb")
		s, refused := open(t, options), 0
		s.groups.Store(groupsOf(12)) // the record of the fleet may be on that node
		for shard := range uint32(12) {
			if _, err := s.Apply(t.Context(), oneHit(now, shard, 3)); err != nil && strings.Contains(err.Error(), "noeviction") {
				refused++
			} else if err != nil {
				t.Error(err)
			}
		}
		if refused == 0 || refused == 12 {
			t.Errorf("%d of 12 shards are refused", refused)
		}
	})
	t.Run("contract", func(t *testing.T) {
		var only []string
		if testing.Short() {
			only = []string{"Join", "Keys", "Shards", "LeaseKeys"} // the rest is the same on one node
		}
		contract(t, admin, options, only...)
	})
}
