package torture

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/offpath-io/offpath/internal/testing/servers"
)

const (
	sentinels = 3
	// masterName is what Sentinels call the master.
	masterName = "torture"
)

// sentinel is a master and a replica, with three Sentinels. Everybody reaches a node by the one
// link to it. Sentinels know each other by their links, so that the client library, which asks them
// for others, goes through links too.
type sentinel struct {
	replicated
	addrs map[*part]string // of the Sentinels' links
}

func startSentinel(ctx context.Context, f *fleet) (*sentinel, error) {
	s := &sentinel{newReplicated(f), map[*part]string{}}
	for i := range 2 {
		n, err := f.startNode(ctx, fmt.Sprint("redis-", i), []string{"--replica-announce-port"},
			"--replica-announce-ip", "127.0.0.1", "--repl-diskless-sync-delay", "1")
		if err != nil {
			return nil, err
		}
		s.all = append(s.all, n)
	}
	if err := replicate(ctx, s.all[1], s.all[0]); err != nil {
		return nil, err
	}
	for i := range sentinels {
		if err := s.startSentinel(ctx, fmt.Sprint("sentinel-", i)); err != nil {
			return nil, err
		}
	}
	if err := until(ctx, s.whole); err != nil {
		return nil, fmt.Errorf("torture: %w", err)
	}
	return s, nil
}

func replicate(ctx context.Context, n, master *node) error {
	host, port, err := net.SplitHostPort(master.addr)
	if err != nil {
		return err
	}
	if err := n.admin.ReplicaOf(ctx, host, port).Err(); err != nil {
		return fmt.Errorf("torture: make %s a replica: %w", n.name, err)
	}
	return nil
}

// startSentinel starts one. Sentinels write down in their file what they learn.
func (s *sentinel) startSentinel(ctx context.Context, name string) error {
	announced, err := servers.FreeAddress()
	if err != nil {
		return fmt.Errorf("torture: %w", err)
	}
	_, announcedPort, _ := strings.Cut(announced, ":")
	_, masterPort, _ := strings.Cut(s.all[0].addr, ":")
	p, err := s.fleet.start(ctx, name, "redis-server", func(port int) ([]string, error) {
		file := filepath.Join(s.fleet.dir, fmt.Sprintf("%s-%d.conf", name, port))
		args := []string{file, "--sentinel"}
		if _, err := os.Stat(file); err == nil { // it starts again
			return args, nil
		}
		return args, os.WriteFile(file, fmt.Appendf(nil, `port %d
bind 127.0.0.1
dir %s
sentinel announce-ip 127.0.0.1
sentinel announce-port %s
sentinel monitor %[4]s 127.0.0.1 %[5]s 2
sentinel down-after-milliseconds %[4]s 1000
sentinel failover-timeout %[4]s 4000
`, port, s.fleet.dir, announcedPort, masterName, masterPort), 0o600)
	})
	if err != nil {
		return err
	}
	p.begin(nil)
	s.fleet.sentinels = append(s.fleet.sentinels, p)
	s.addrs[p], err = s.fleet.listen(name, announcedPort, p.program.Address())
	return err
}

// url names the Sentinels, through links of the aggregator's own.
func (s *sentinel) url(from string) (string, error) {
	var addresses []string
	for _, p := range s.fleet.sentinels {
		address, err := s.fleet.connect(from, p.name, p.program.Address())
		if err != nil {
			return "", err
		}
		addresses = append(addresses, address)
	}
	return "redis://" + strings.Join(addresses, ",") + "?master_name=" + masterName, nil
}

// ask asks a Sentinel, not through a link.
func ask(
	ctx context.Context, p *part, do func(context.Context, *redis.SentinelClient) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c := redis.NewSentinelClient(&redis.Options{
		Addr: p.program.Address(), MaxRetries: -1, DisableIdentity: true, ContextTimeoutEnabled: true,
	})
	defer c.Close()
	if err := do(ctx, c); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	return nil
}

// mostWrong is how many Sentinels may name another master for good: one that was frozen while it led
// a failover, and during the next one, believes that it has seen the newest.
const mostWrong = 1

// whole wants the Sentinels to know the master, its replica and each other.
func (s *sentinel) whole(ctx context.Context) error {
	if err := s.inSync(ctx); err != nil {
		return err
	}
	all, err := masters(ctx, s)
	if err != nil {
		return err
	}
	if len(all) != 1 {
		return fmt.Errorf("%d masters", len(all))
	}
	var wrong []error
	for _, p := range s.fleet.sentinels {
		if err := s.knows(ctx, p, all[0]); err != nil {
			wrong = append(wrong, err)
		}
	}
	if len(wrong) > mostWrong {
		return errors.Join(wrong...)
	}
	return nil
}

// knows says whether a Sentinel knows the master, its replica and the other Sentinels.
func (s *sentinel) knows(ctx context.Context, p *part, master *node) error {
	return ask(ctx, p, func(ctx context.Context, c *redis.SentinelClient) error {
		m, err := c.Master(ctx, masterName).Result()
		if err != nil {
			return err
		}
		addr := net.JoinHostPort(m["ip"], m["port"])
		if addr != master.addr || m["flags"] != "master" ||
			m["num-slaves"] != "1" || m["num-other-sentinels"] != fmt.Sprint(sentinels-1) {
			return fmt.Errorf("it says that the master is %s: %s, with %s replicas and %s other Sentinels",
				addr, m["flags"], m["num-slaves"], m["num-other-sentinels"])
		}
		return nil
	})
}

// rejoin does what a script that starts Redis does where there are Sentinels: it asks for the
// master first. They would do it themselves after 10 s.
func (s *sentinel) rejoin(ctx context.Context, n *node) error {
	if m := s.otherMaster(ctx, n); m != nil {
		return replicate(ctx, n, m)
	}
	return nil
}

func (s *sentinel) failover(ctx context.Context, target int) (*node, error) {
	all, err := masters(ctx, s)
	if err != nil || len(all) != 1 {
		return nil, errors.Join(err, errBusy)
	}
	for i := range sentinels { // some may be away, or not ready to
		p := s.fleet.sentinels[(target+i)%sentinels]
		if !p.program.Running() || s.knows(ctx, p, all[0]) != nil {
			continue
		}
		err = ask(ctx, p, func(ctx context.Context, c *redis.SentinelClient) error {
			return c.Failover(ctx, masterName).Err()
		})
		if err == nil {
			return all[0], nil
		}
	}
	return nil, errBusy
}
