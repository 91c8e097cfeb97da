package servers_test

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/offpath-io/offpath/internal/testing/servers"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
)

func TestRedisCluster(t *testing.T) {
	c := serverstest.RedisCluster(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	defer client.Close()

	const keys = 300
	for i := range keys {
		must(t, client.Set(t.Context(), fmt.Sprint("key", i), i, 0).Err())
	}
	sum := int64(0)
	for i := range 3 {
		size, err := connect(t, c.Node(i).Addr()).DBSize(t.Context()).Result()
		must(t, err)
		expect(t, size >= keys/6, "node %d holds %d of %d keys: the slots are not spread evenly", i, size, keys)
		sum += size
	}
	expect(t, sum == keys, "the nodes hold %d keys, want %d", sum, keys)

	// A node comes back empty, with its old place in the cluster.
	must(t, c.Node(1).Kill())
	must(t, c.WaitOK(t.Context())) // with a dead node
	must(t, c.Node(1).Restart(t.Context()))
	must(t, c.WaitOK(t.Context()))
	for i := range keys {
		must(t, client.Set(t.Context(), fmt.Sprint("key", i), i, 0).Err())
	}
}

func TestRedisClusterNeedsAMaster(t *testing.T) {
	if _, err := servers.StartRedisCluster(t.Context(), 0); err == nil {
		t.Error("no error")
	}
}
