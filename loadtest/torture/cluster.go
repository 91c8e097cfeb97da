package torture

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

const (
	// clusterMasters are how many groups of a master and a replica there are.
	clusterMasters = 3
	// slots are those of every Redis Cluster.
	slots = 16384
	// busOffset is how far above its port a node listens for other nodes.
	busOffset = 10000
)

// cluster is a Redis Cluster of masters with a replica each. Everybody, other nodes included,
// reaches a node by the two links to it: one to its port, and one to its bus.
type cluster struct{ replicated }

// startCluster does not use servers.StartRedisCluster, whose nodes know each other by their own
// ports.
func startCluster(ctx context.Context, f *fleet) (*cluster, error) {
	s := &cluster{newReplicated(f)}
	for i := range 2 * clusterMasters {
		n, err := f.startNode(ctx, fmt.Sprint("redis-", i),
			[]string{"--cluster-announce-port", "--cluster-announce-bus-port"},
			"--cluster-announce-ip", "127.0.0.1", "--cluster-enabled", "yes",
			"--cluster-node-timeout", "1500",
			// As in a fleet where one shard's trouble is not to be all shards'. A node that is cut
			// off is to be read all the same.
			"--cluster-require-full-coverage", "no", "--cluster-allow-reads-when-down", "yes",
			// Groups stay as they are: who counts what is known by them.
			"--cluster-allow-replica-migration", "no", "--repl-diskless-sync-delay", "1")
		if err != nil {
			return nil, err
		}
		n.group = i % clusterMasters
		s.all = append(s.all, n)
	}
	for _, step := range []func(context.Context) error{
		s.meet,
		func(ctx context.Context) error { return until(ctx, s.acquainted) },
		s.replicate,
		func(ctx context.Context) error { return until(ctx, s.whole) },
	} {
		if err := step(ctx); err != nil {
			return nil, fmt.Errorf("torture: start cluster: %w", err)
		}
	}
	return s, nil
}

// meet gives the masters their slots, and introduces the first node to all others.
func (s *cluster) meet(ctx context.Context) error {
	for i, n := range s.all {
		// Epochs of their own spare the nodes a round of settling who is newer.
		if err := n.admin.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
			return fmt.Errorf("%s: %w", n.name, err)
		}
		if i < clusterMasters {
			first, end := i*slots/clusterMasters, (i+1)*slots/clusterMasters
			if err := n.admin.ClusterAddSlotsRange(ctx, first, end-1).Err(); err != nil {
				return fmt.Errorf("%s: %w", n.name, err)
			}
		}
		if i == 0 {
			continue
		}
		host, port, err := net.SplitHostPort(n.addr)
		if err != nil {
			return err
		}
		bus := n.bus[strings.LastIndexByte(n.bus, ':')+1:]
		if err := s.all[0].admin.Do(ctx, "CLUSTER", "MEET", host, port, bus).Err(); err != nil {
			return fmt.Errorf("%s: %w", n.name, err)
		}
	}
	return nil
}

// acquainted wants each node to know all others.
func (s *cluster) acquainted(ctx context.Context) error {
	for _, n := range s.all {
		list, err := n.admin.ClusterNodes(ctx).Result()
		if err != nil {
			return fmt.Errorf("%s: %w", n.name, err)
		}
		for _, other := range s.all {
			if !strings.Contains(list, other.addr+"@") || strings.Contains(list, "handshake") {
				return fmt.Errorf("%s does not know %s yet:\n%s", n.name, other.name, list)
			}
		}
	}
	return nil
}

// replicate gives each master its replica.
func (s *cluster) replicate(ctx context.Context) error {
	for i, n := range s.all[clusterMasters:] {
		id, err := s.all[i].admin.ClusterMyID(ctx).Result()
		if err == nil {
			err = n.admin.ClusterReplicate(ctx, id).Err()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", n.name, err)
		}
	}
	return nil
}

// url names all nodes.
func (s *cluster) url(string) (string, error) {
	var addresses []string
	for _, n := range s.all {
		addresses = append(addresses, n.addr)
	}
	return "redis://" + strings.Join(addresses, ","), nil
}

// whole wants each node to know that all slots are served, and all links between nodes to work.
func (s *cluster) whole(ctx context.Context) error {
	if err := s.inSync(ctx); err != nil {
		return err
	}
	for _, n := range s.all {
		info, err := n.admin.ClusterInfo(ctx).Result()
		if err != nil {
			return fmt.Errorf("%s: %w", n.name, err)
		}
		if !strings.Contains(info, "cluster_state:ok") ||
			!strings.Contains(info, "cluster_slots_ok:"+strconv.Itoa(slots)) {
			return fmt.Errorf("%s says:\n%s", n.name, info)
		}
	}
	return nil
}

// rejoin has nothing to do: a node knows its cluster, which tells it who is master now.
func (s *cluster) rejoin(context.Context, *node) error { return nil }

// failover asks a replica to take over. It does so once it has all.
func (s *cluster) failover(ctx context.Context, target int) (*node, error) {
	all, err := masters(ctx, s)
	if err != nil || len(all) != clusterMasters {
		return nil, errors.Join(err, errBusy)
	}
	master := all[target%len(all)]
	for _, n := range s.all {
		if n != master && n.group == master.group {
			err := n.admin.ClusterFailover(ctx).Err()
			if err != nil && strings.Contains(err.Error(), "Master is down") { // as its link is
				err = errBusy
			}
			return master, err
		}
	}
	return nil, fmt.Errorf("%s has no replica", master.name)
}
