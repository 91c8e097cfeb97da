package servers

import (
	"context"
	"errors"
	"fmt"
	"strconv"
)

// slots is the number of hash slots of every Redis Cluster.
const slots = 16384

// RedisCluster is a private Redis Cluster of masters without replicas. Its methods may be called
// from any goroutine.
type RedisCluster struct {
	nodes []*Redis
}

// StartRedisCluster starts the given number of masters on loopback, shares the slots out evenly,
// and returns once every node says that the cluster works. Redis itself waits 2 s before it does.
// The context bounds the start.
//
// A dead node takes only its own slots with it (cluster-require-full-coverage no), provided that
// most masters live.
func StartRedisCluster(ctx context.Context, masters int) (*RedisCluster, error) {
	if masters < 1 {
		return nil, fmt.Errorf("start redis cluster: %d masters, want at least 1", masters)
	}
	c := &RedisCluster{}
	for range masters {
		node, err := StartRedis(ctx, RedisOptions{Args: []string{
			"--cluster-enabled", "yes", "--cluster-node-timeout", "60000", "--cluster-require-full-coverage", "no",
		}})
		if err != nil {
			return nil, fmt.Errorf("start redis cluster: %w", errors.Join(err, c.Stop()))
		}
		c.nodes = append(c.nodes, node)
	}
	err := c.assemble(ctx)
	if err == nil {
		err = c.WaitOK(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("start redis cluster: %w", errors.Join(err, c.Stop()))
	}
	return c, nil
}

// assemble gives each node its slots and introduces the first to all others, who then tell each
// other.
func (c *RedisCluster) assemble(ctx context.Context) error {
	for i, node := range c.nodes {
		client := adminClient(node.Addr())
		defer client.Close()
		// Epochs of their own spare the nodes a round of settling who is newer.
		if err := client.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
			return fmt.Errorf("set epoch of node %d: %w", i, err)
		}
		first, end := i*slots/len(c.nodes), (i+1)*slots/len(c.nodes)
		if err := client.ClusterAddSlotsRange(ctx, first, end-1).Err(); err != nil {
			return fmt.Errorf("assign slots to node %d: %w", i, err)
		}
	}
	first := adminClient(c.nodes[0].Addr())
	defer first.Close()
	for i, node := range c.nodes[1:] {
		if err := first.Do(ctx, "CLUSTER", "MEET", host, node.port).Err(); err != nil {
			return fmt.Errorf("introduce node %d: %w", i+1, err)
		}
	}
	return nil
}

// WaitOK returns once every running node says that the cluster works: with all slots served if all
// nodes run, else with those of the running ones. After a node's Restart this takes about 2 s more,
// though the node answers at once. It waits a minute at the most.
func (c *RedisCluster) WaitOK(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	coverage := "cluster_slots_ok"
	var running []*Redis
	for _, node := range c.nodes {
		if node.PID() == 0 {
			coverage = "cluster_slots_assigned"
			continue
		}
		running = append(running, node)
	}
	for _, node := range running {
		if err := node.waitClusterOK(ctx, coverage); err != nil {
			return fmt.Errorf("wait for redis cluster: %w", err)
		}
	}
	return nil
}

// waitClusterOK returns once the node says that the cluster works and that the field counts all
// slots.
func (r *Redis) waitClusterOK(ctx context.Context, coverage string) error {
	client := adminClient(r.Addr())
	defer client.Close()
	return await(ctx, nil, func(ctx context.Context) (bool, error) {
		info, err := client.ClusterInfo(ctx).Result()
		ok := infoField(info, "cluster_state") == "ok" && infoField(info, coverage) == strconv.Itoa(slots)
		return ok, errors.Join(err, fmt.Errorf("node %s says:\n%s", r.Addr(), info))
	})
}

// Addrs returns the nodes' addresses, in order.
func (c *RedisCluster) Addrs() []string {
	addrs := make([]string, len(c.nodes))
	for i, node := range c.nodes {
		addrs[i] = node.Addr()
	}
	return addrs
}

// Node returns the i-th master, from 0; it may be killed, paused and restarted by itself.
func (c *RedisCluster) Node(i int) *Redis { return c.nodes[i] }

// Stop ends all nodes and removes their files.
func (c *RedisCluster) Stop() error {
	var errs []error
	for _, node := range c.nodes {
		errs = append(errs, node.Stop())
	}
	return errors.Join(errs...)
}
