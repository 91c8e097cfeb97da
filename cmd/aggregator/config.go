package main

import (
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/offpath-io/offpath/cmd/internal/daemon"
	"github.com/offpath-io/offpath/cmd/internal/signing"
	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/internal/natsconn"
	"github.com/offpath-io/offpath/internal/redisconn"
	"github.com/offpath-io/offpath/internal/tracing"
	"github.com/offpath-io/offpath/internal/version"
	"github.com/offpath-io/offpath/pkg/events"
)

const summary = `Adds what checkers report to Redis, each report once, and tells them the totals.

It starts whether or not NATS and Redis are up, and says what it is waiting for. Any number of
aggregators share the work. "aggregator ledger --redis URL" prints what became of every hit; "aggregator rules
--help" lists the commands that read and write the fleet's rules, and "aggregator keygen" makes keys that sign rules and blocks. What the console at the admin port shows and does, so do
"aggregator top", "fleet", "get KEY", "block KEY", "unblock KEY" and "reset KEY"; each has --help.`

// config is what the flags say.
type config struct {
	nats      string
	access    natsconn.Access
	redis     string
	redisIn   redisconn.Access
	admin     string
	adminTLS  daemon.TLS
	namespace string
	shards    int // 0: as recorded
	logLevel  slog.Level
	gather    time.Duration
	newKeys   int
	traceTo   string // "" for nowhere

	rulesFrom string // fromNATS or fromFiles

	maxCheckers int
	maxChunks   int
	maxRules    int
	maxWindow   time.Duration

	tokenFile, tokens string // of those who may block and reset keys
	consoleHosts      string

	rulesKeys, entriesKeys signing.Keys
	origins                daemon.Origins // whose pages may read the metrics
}

func readConfig(args []string, getenv func(string) string, stdout io.Writer) (c config, done bool, err error) {
	c = config{
		admin: "127.0.0.1:9091", namespace: defaultNamespace, gather: 2 * time.Millisecond,
		rulesFrom: fromNATS, newKeys: 1_000_000,
		maxCheckers: 10_000, maxWindow: events.MaxWindow, maxChunks: 100_000, maxRules: 100_000,
	}
	s := flags.New("aggregator", summary, version.Get().Line("aggregator"))
	flags.Add(s, &c.nats, "nats", "URL", "NATS of the fleet; several servers of it with commas between", flags.NATS)
	addRedis(s, &c.redis, &c.redisIn)
	flags.Add(s, &c.admin, "admin", "ADDRESS", "where the console, /metrics, /healthz and /readyz are", flags.Address)
	flags.Add(s, &c.tokenFile, "console-token-file", "FILE", "tokens of those who may block and reset keys at the console, one each line, NAME:TOKEN or TOKEN; without any it only shows",
		flags.Text)
	s.AddSecret(&c.tokens, "console-token", "such tokens themselves")
	flags.Add(s, &c.consoleHosts, "console-host", "NAMES",
		"names by which browsers ask for the console, with commas between, beside localhost and addresses", flags.Text)
	flags.Add(s, &c.rulesFrom, "rules", "nats|files", "where the fleet's rules are: in its bucket, and then reports and statuses that say otherwise of one that is in there are not believed; or in files of the checkers, and then what they say is all that is known", readRulesFrom)
	c.rulesKeys.AddPublic(s, signing.Rules)
	c.entriesKeys.AddPublic(s, signing.Entries)
	c.entriesKeys.AddSigning(s, signing.Entries)
	c.origins.AddFlags(s, "for /metrics")
	addNamespace(s, &c.namespace)
	flags.Add(s, &c.shards, "shards", "N", "number of shards, recorded in Redis at first use; 0 takes what is recorded, or what suits",
		flags.Int(0, events.MaxShards))
	flags.Add(s, &c.logLevel, "log-level", "LEVEL", "the least that is logged: debug, info, warn or error", flags.Level)
	flags.Add(s, &c.newKeys, "new-keys", "N", "how many keys of one rule may be new in a shard within its window; hits of others are in no count",
		flags.Int(1, 1_000_000_000))
	flags.Add(s, &c.gather, "gather", "DURATION", "how long a report waits for others to be applied with",
		flags.Duration(10*time.Microsecond, time.Second))
	flags.Add(s, &c.maxCheckers, "max-checkers", "N", "most live checkers of one --name that are told apart; others make no fleet larger", flags.Int(1, 1<<16))
	flags.Add(s, &c.maxWindow, "max-window", "DURATION", "longest window of a rule that is counted; reports with longer ones are refused",
		flags.Duration(time.Millisecond, events.MaxWindow))
	flags.Add(s, &c.maxRules, "max-rules", "N",
		"most rules that checkers of one --name may have within a day; reports with others are refused",
		flags.Int(1, 10_000_000))
	flags.Add(s, &c.maxChunks, "max-settled-chunks", "N",
		"how many times 8,192 receipts one --name may have a shard remember in a day, at 1 KB; others settle nothing",
		flags.Int(1, 1_000_000_000))
	c.access.AddFlags(s)
	c.adminTLS.AddFlags(s, "admin")
	flags.Add(s, &c.traceTo, "trace", "URL", "where OpenTelemetry traces of reports go, by OTLP over HTTP: http://127.0.0.1:4318; none if it is not given. Checkers say which are traced",
		tracing.ReadEndpoint)
	done, err = s.Parse(args, getenv, stdout)
	if err == nil && !done {
		err = firstError(required("nats", c.nats), checkRedis(c.redis, &c.redisIn), c.access.Check(c.nats), c.adminTLS.Check("admin"))
	}
	return c, done, err
}

// What --rules takes.
const (
	fromNATS  = "nats"
	fromFiles = "files"
)

func readRulesFrom(text string) (string, error) {
	if text != fromNATS && text != fromFiles {
		return "", fmt.Errorf("%.40q: want %s or %s", text, fromNATS, fromFiles)
	}
	return text, nil
}

const defaultNamespace = "offpath"

func addNamespace(s *flags.Set, p *string) {
	flags.Add(s, p, "namespace", "NAME", "the fleet's name: fleets of different names share NATS and Redis", flags.Namespace)
}

func addRedis(s *flags.Set, url *string, access *redisconn.Access) {
	flags.Add(s, url, "redis", "URL",
		"redis:// or rediss://, which is TLS; several with commas between are a Cluster; ?master_name= asks Sentinels", redisconn.URL)
	access.AddFlags(s)
}

func checkRedis(url string, access *redisconn.Access) error {
	return firstError(required("redis", url), access.Check(url))
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
