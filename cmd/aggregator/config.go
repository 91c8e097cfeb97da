package main

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/offpath-io/offpath/cmd/internal/daemon"
	"github.com/offpath-io/offpath/cmd/internal/signing"
	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/internal/natsconn"
	"github.com/offpath-io/offpath/internal/redisconn"
	"github.com/offpath-io/offpath/internal/tracing"
	"github.com/offpath-io/offpath/internal/version"
	"github.com/offpath-io/offpath/pkg/events"
)

const summary = `
Adds the hits that checkers report to Redis, each report once, and sends back the totals.

It starts whether or not NATS and Redis are up, and says what it waits for. Any number of
aggregators share the work. Its commands print what became of every hit, read and write the fleet's
rules, make keys that sign rules and blocks, and do what the console at the admin address does.`

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
	newKeys   int
	remember  int    // 0: nothing
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

// newCommand returns the command, which hands its configuration to run.
func newCommand(
	getenv func(string) string, run func(cmd *cobra.Command, c config) error,
) *cobra.Command {
	c := config{
		admin: "127.0.0.1:9091", namespace: defaultNamespace,
		rulesFrom: fromNATS, newKeys: 1_000_000, remember: 1 << 21,
		maxCheckers: 10_000, maxWindow: events.MaxWindow, maxChunks: 100_000, maxRules: 100_000,
	}
	cmd := &cobra.Command{
		Use: "aggregator", Long: summary, Version: version.Get().Line("aggregator"),
		Args: flags.NoArguments,
	}
	flags.Topic(cmd, "Fleet", c.addFleetFlags)
	flags.Topic(cmd, "Rules and blocks", c.addRulesFlags)
	flags.Topic(cmd, "Console and metrics", c.addAdminFlags)
	flags.Topic(cmd, "Limits", c.addLimitFlags)
	flags.Topic(cmd, "Logs and traces", c.addLogFlags)
	flags.Topic(cmd, "Access to NATS", c.access.AddFlags)
	flags.Topic(cmd, "Access to Redis", c.redisIn.AddFlags)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		err := cmp.Or(required("nats", c.nats), checkRedis(c.redis, &c.redisIn),
			c.access.Check(c.nats), c.adminTLS.Check("admin"))
		if err != nil {
			return err
		}
		return run(cmd, c)
	}
	cmd.AddCommand(newLedger(), newKeygen(), newRules(), newTop(), newFleet(), newGet(),
		newBlock(getenv), newUnblock(getenv), newReset(getenv))
	return cmd
}

func (c *config) addFleetFlags(s *pflag.FlagSet) {
	natsconn.AddFleetFlags(s, &c.nats, &c.namespace)
	addRedis(s, &c.redis)
	flags.Add(s, &c.shards, "shards", "`N` shards, recorded in Redis at first use; 0 takes the "+
		"recorded number, or a suitable one", flags.Int(0, events.MaxShards))
}

func (c *config) addRulesFlags(s *pflag.FlagSet) {
	flags.Add(s, &c.rulesFrom, "rules", "where the fleet's rules are: `nats|files`. With nats, "+
		"reports that contradict the fleet's bucket about a rule in it are not believed; with "+
		"files, what checkers say of their files is all that is known",
		flags.OneOf(fromNATS, fromFiles))
	c.rulesKeys.AddPublic(s, signing.Rules)
	c.rulesKeys.AddSigning(s, signing.Rules)
	c.entriesKeys.AddPublic(s, signing.Entries)
	c.entriesKeys.AddSigning(s, signing.Entries)
}

func (c *config) addAdminFlags(s *pflag.FlagSet) {
	flags.Add(s, &c.admin, "admin", "`ADDRESS` of the console, /metrics, /healthz and /readyz",
		flags.Address)
	s.StringVar(&c.tokenFile, "console-token-file", "", "`FILE` with the tokens of the people who "+
		"may block and reset keys, and write rules, at the console, NAME:TOKEN or TOKEN, one each line; without "+
		"any it only shows")
	flags.AddSecret(s, &c.tokens, "console-token", "such tokens themselves")
	s.StringVar(&c.consoleHosts, "console-host", "", "`NAMES` that browsers may use for the "+
		"console besides localhost and addresses, with commas between")
	c.origins.AddFlags(s, "/metrics")
	c.adminTLS.AddFlags(s, "admin")
}

func (c *config) addLimitFlags(s *pflag.FlagSet) {
	flags.Add(s, &c.newKeys, "new-keys", "at most `N` new keys of one rule in a shard within its "+
		"window; hits of others are in no count", flags.Int(1, 1_000_000_000))
	flags.Add(s, &c.remember, "remember", "at least `N` totals of buckets, and up to twice that, are kept "+
		"in memory instead of read from Redis, at up to 60 bytes each; 0 keeps none",
		flags.Int(0, 1_000_000_000))
	flags.Add(s, &c.maxCheckers, "max-checkers", "at most `N` live checkers of one --name are "+
		"told apart; others make no fleet larger", flags.Int(1, 1<<16))
	flags.Add(s, &c.maxWindow, "max-window", "longest window, a `DURATION`, of a rule that is "+
		"counted; reports with longer ones are refused",
		flags.Duration(time.Millisecond, events.MaxWindow))
	flags.Add(s, &c.maxRules, "max-rules", "at most `N` rules within a day from the checkers of "+
		"one --name; reports with others are refused", flags.Int(1, 10_000_000))
	flags.Add(s, &c.maxChunks, "max-settled-chunks", "a shard remembers `N` times 8,192 receipts "+
		"of one --name in a day, at 1 KB; others settle nothing", flags.Int(1, 1_000_000_000))
}

func (c *config) addLogFlags(s *pflag.FlagSet) {
	flags.Add(s, &c.logLevel, "log-level", "the least `LEVEL` to log: debug, info, warn or error",
		flags.OneOf(slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError))
	flags.Add(s, &c.traceTo, "trace", "`URL` to send OpenTelemetry traces of reports to, by OTLP "+
		"over HTTP, such as http://127.0.0.1:4318; checkers say which reports are traced",
		tracing.ReadEndpoint)
}

// What --rules takes.
const (
	fromNATS  = "nats"
	fromFiles = "files"
)

const defaultNamespace = "offpath"

func addRedis(s *pflag.FlagSet, url *string) {
	flags.Add(s, url, "redis", "`URL` of Redis: redis://, or rediss:// for TLS; several with "+
		"commas between are a Cluster; ?master_name= asks Sentinels", redisconn.URL)
}

func checkRedis(url string, access *redisconn.Access) error {
	return cmp.Or(required("redis", url), access.Check(url))
}

func required(name, value string) error {
	if value == "" {
		return flags.Usagef("--%s URL is needed", name)
	}
	return nil
}
