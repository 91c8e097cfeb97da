package torture

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/offpath-io/offpath/internal/testing/servers"
	"github.com/offpath-io/offpath/loadtest/torture/link"
)

// Mode is how Redis runs.
type Mode string

// The modes.
const (
	Single   Mode = "single"   // one Redis alone
	Sentinel Mode = "sentinel" // a master and a replica, watched by three Sentinels
	Cluster  Mode = "cluster"  // three masters with a replica each
)

// Modes are all of them.
var Modes = []Mode{Single, Sentinel, Cluster}

// store is Redis as the storm needs it.
type store interface {
	// nodes are the servers that hold data.
	nodes() []*node
	// url is what an aggregator is told.
	url(from string) (string, error)
	// ledger is the sum over those who are masters now.
	ledger(ctx context.Context) (int64, error)
	// inSync returns what is not as it should be: each node that is to be copied has a copy.
	inSync(ctx context.Context) error
	// whole is inSync, and everybody who has to know it does.
	whole(ctx context.Context) error
	// rejoin makes a node that was started again the copy of whoever is master now.
	rejoin(ctx context.Context, n *node) error
	// failover begins a planned one; it returns the master that is to be replaced.
	failover(ctx context.Context, target int) (*node, error)
	// failovers are what became of masters; nil if there is nobody else to become one.
	failovers() *failovers
	// readings are what nodes had in their ledgers when.
	readings() *failovers
}

// startStore starts Redis as the mode has it.
func (f *fleet) startStore(ctx context.Context, mode Mode) (err error) {
	switch mode {
	case Sentinel:
		f.store, err = startSentinel(ctx, f)
	case Cluster:
		f.store, err = startCluster(ctx, f)
	default:
		f.store, err = startSingle(ctx, f)
	}
	return err
}

// node is one redis-server that holds data.
type node struct {
	name  string
	group int // nodes of one group copy each other
	redis *servers.Redis
	admin *redis.Client // not through a link
	addr  string        // of its link, by which all others know it
	bus   string        // of the link to its bus, in a Cluster

	reading sync.Mutex // so that readings are in order
}

// startNode starts a redis-server. The options in announce, if there are any, are for the port of
// the link by which others are to know it, and of the one to its bus in a Cluster.
func (f *fleet) startNode(
	ctx context.Context, name string, announce []string, args ...string,
) (*node, error) {
	n := &node{name: name}
	var ports []string // of the links
	for _, option := range announce {
		address, err := servers.FreeAddress()
		if err != nil {
			return nil, fmt.Errorf("torture: %w", err)
		}
		port := address[strings.LastIndexByte(address, ':')+1:]
		ports = append(ports, port)
		args = append(args, option, port)
	}
	var err error
	options := f.storeOptions(append(args, "--aclfile", f.secrets.file("redis.acl"))...)
	if n.redis, err = servers.StartRedis(ctx, options); err != nil {
		return nil, fmt.Errorf("torture: %w", err)
	}
	f.redis = append(f.redis, n)
	n.addr = n.redis.Addr()
	n.admin = redis.NewClient(&redis.Options{
		Addr: n.addr, MaxRetries: -1, DialerRetries: 1, DisableIdentity: true,
		ReadTimeout: time.Minute, // it may be frozen
		// After as many failures to connect the client would try only once a second.
		PoolSize: 10_000,
		OnConnect: func(ctx context.Context, conn *redis.Conn) error {
			if len(announce) == 2 { // a node of a Cluster reads its own data as a replica only then
				return conn.ReadOnly(ctx).Err()
			}
			return nil
		},
	})
	if len(ports) > 0 {
		if n.addr, err = f.listen(name, ports[0], n.redis.Addr()); err != nil {
			return nil, err
		}
	}
	if len(ports) > 1 {
		host, port, _ := strings.Cut(n.redis.Addr(), ":")
		number, err := strconv.Atoi(port)
		if err != nil {
			return nil, fmt.Errorf("torture: %w", err)
		}
		n.bus, err = f.listen(name, ports[1], net.JoinHostPort(host, strconv.Itoa(number+busOffset)))
		if err != nil {
			return nil, err
		}
	}
	return n, nil
}

// listen makes the link by which all others reach a part.
func (f *fleet) listen(name, port, target string) (string, error) {
	number, err := strconv.Atoi(port)
	if err != nil {
		return "", fmt.Errorf("torture: %w", err)
	}
	l, err := link.ListenOn(number, target)
	if err != nil {
		return "", fmt.Errorf("torture: link to %s: %w", name, err)
	}
	f.links = append(f.links, &wire{l, name, name})
	return l.Addr(), nil
}

// cut resets all connections to a node, as the death of its machine does.
func (f *fleet) cut(name string) (connections int) {
	for _, w := range f.links {
		if w.from == name || w.to == name {
			connections += w.Cut()
		}
	}
	return connections
}

// storePatience is how long Redis may take to be whole again: Sentinel makes a master that was away
// a replica after 10 s.
const storePatience = time.Minute

// until waits for what takes Redis a while.
func until(ctx context.Context, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, storePatience)
	defer cancel()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("after %v: %w", storePatience, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// masters are the nodes that are masters now.
func masters(ctx context.Context, s store) (list []*node, err error) {
	if s.failovers() == nil {
		return s.nodes(), nil
	}
	for _, n := range s.nodes() {
		r, err := n.read(ctx)
		if err != nil {
			return nil, err
		}
		if r.master {
			list = append(list, n)
		}
	}
	return list, nil
}

// onMasters does something to all masters.
func onMasters(ctx context.Context, s store, do func(*redis.Client) error) error {
	all, err := masters(ctx, s)
	for _, n := range all {
		err = errors.Join(err, do(n.admin))
	}
	return err
}
