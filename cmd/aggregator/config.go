package main

import (
	"io"
	"log/slog"
	"time"

	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/internal/version"
	"github.com/offpath-io/offpath/pkg/aggregate/redisstore"
	"github.com/offpath-io/offpath/pkg/events"
)

const summary = `Adds what checkers report to Redis, each report once, and tells them the totals.

It starts whether or not NATS and Redis are up, and says what it is waiting for. Any number of
aggregators share the work. "aggregator ledger --redis URL" prints what became of every hit; "aggregator rules
--help" lists the commands that read and write the fleet's rules.`

// config is what the flags say.
type config struct {
	nats      string
	redis     string
	admin     string
	namespace string
	shards    int // 0: as recorded
	logLevel  slog.Level
	gather    time.Duration
}

func readConfig(args []string, getenv func(string) string, stdout io.Writer) (c config, done bool, err error) {
	c = config{admin: "127.0.0.1:9091", namespace: defaultNamespace, gather: 2 * time.Millisecond}
	s := flags.New("aggregator", summary, version.Get().Line("aggregator"))
	flags.Add(s, &c.nats, "nats", "URL", "NATS of the fleet; several servers of it with commas between", flags.NATS)
	addRedis(s, &c.redis)
	flags.Add(s, &c.admin, "admin", "ADDRESS", "where /metrics, /healthz and /readyz are", flags.Address)
	addNamespace(s, &c.namespace)
	flags.Add(s, &c.shards, "shards", "N", "number of shards, recorded in Redis at first use; 0 takes what is recorded, or what suits",
		flags.Int(0, events.MaxShards))
	flags.Add(s, &c.logLevel, "log-level", "LEVEL", "the least that is logged: debug, info, warn or error", flags.Level)
	flags.Add(s, &c.gather, "gather", "DURATION", "how long a report waits for others to be applied with",
		flags.Duration(10*time.Microsecond, time.Second))
	done, err = s.Parse(args, getenv, stdout)
	if err == nil && !done {
		err = firstError(required("nats", c.nats), required("redis", c.redis))
	}
	return c, done, err
}

const defaultNamespace = "offpath"

func addRedis(s *flags.Set, p *string) {
	flags.Add(s, p, "redis", "URL",
		"redis:// or rediss://; several with commas between are a Cluster; ?master_name= asks Sentinels", redisURL)
}

func addNamespace(s *flags.Set, p *string) {
	flags.Add(s, p, "namespace", "NAME", "the fleet's name: fleets of different names share NATS and Redis", flags.Namespace)
}

// redisURL takes what the store takes, which does not connect to find out.
func redisURL(text string) (string, error) {
	store, err := redisstore.Open(redisstore.Options{URL: text, Namespace: defaultNamespace})
	if err != nil {
		return "", err
	}
	return text, store.Close()
}

func required(name, value string) error {
	if value == "" {
		return flags.Usagef("--%s URL is needed", name)
	}
	return nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
