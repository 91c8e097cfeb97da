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
Adds the hits that checkers report to the counters in Redis, each exactly once, and sends back the
totals. Any number of aggregators share the work.

It starts whether or not NATS and Redis are up, and logs what it waits for. "offpath" is the command
for people.`

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
func newCommand(run func(cmd *cobra.Command, c config) error) *cobra.Command {
	c := config{
		admin: "127.0.0.1:9091", namespace: natsconn.DefaultNamespace,
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
		err := cmp.Or(flags.Required("nats", c.nats), flags.Required("redis", c.redis),
			c.redisIn.Check(c.redis), c.access.Check(c.nats), c.adminTLS.Check("admin"))
		if err != nil {
			return err
		}
		return run(cmd, c)
	}
	return cmd
}

func (c *config) addFleetFlags(s *pflag.FlagSet) {
	natsconn.AddFleetFlags(s, &c.nats, &c.namespace)
	redisconn.AddURL(s, &c.redis)
	flags.Add(s, &c.shards, "shards", "number `N` of shards, recorded in Redis at first use; 0 for "+
		"the recorded number, or a suitable one", flags.Int(0, events.MaxShards))
}

func (c *config) addRulesFlags(s *pflag.FlagSet) {
	flags.Add(s, &c.rulesFrom, "rules", "where the fleet's rules are, `nats|files`. With nats, "+
		"reports that contradict the rules in the fleet's bucket are refused; with files, checkers "+
		"are believed",
		flags.OneOf(fromNATS, fromFiles))
	c.rulesKeys.AddPublic(s, signing.Rules)
	c.rulesKeys.AddSigning(s, signing.Rules)
	c.entriesKeys.AddPublic(s, signing.Entries)
	c.entriesKeys.AddSigning(s, signing.Entries)
}

func (c *config) addAdminFlags(s *pflag.FlagSet) {
	flags.Add(s, &c.admin, "admin", "`ADDRESS` of the console, /metrics, /healthz and /readyz, as host:port",
		flags.Address)
	s.StringVar(&c.tokenFile, "console-token-file", "", "`FILE` with the tokens of people who may "+
		"block and reset keys, and write rules, at the console, NAME:TOKEN or TOKEN, one per line; "+
		"without tokens the console is read-only")
	flags.AddSecret(s, &c.tokens, "console-token", "such tokens, if they are not in a file")
	s.StringVar(&c.consoleHosts, "console-host", "", "host `NAMES`, separated by commas, by which "+
		"browsers may reach the console, besides localhost and IP addresses")
	c.origins.AddFlags(s, "/metrics")
	c.adminTLS.AddFlags(s, "admin")
}

func (c *config) addLimitFlags(s *pflag.FlagSet) {
	flags.Add(s, &c.newKeys, "new-keys", "count at most `N` new keys per rule and shard within a "+
		"window; hits of more keys are not counted", flags.Int(1, 1_000_000_000))
	flags.Add(s, &c.remember, "remember", "cache at least `N` totals of buckets, and up to twice as many, "+
		"at up to 60 bytes each; 0 for none",
		flags.Int(0, 1_000_000_000))
	flags.Add(s, &c.maxCheckers, "max-checkers", "count at most `N` live checkers of one --name", flags.Int(1, 1<<16))
	flags.Add(s, &c.maxWindow, "max-window", "longest window of a rule, a `DURATION`; reports "+
		"with longer ones are refused",
		flags.Duration(time.Millisecond, events.MaxWindow))
	flags.Add(s, &c.maxRules, "max-rules", "accept at most `N` rules a day from the checkers of "+
		"one --name; reports with more are refused", flags.Int(1, 10_000_000))
	flags.Add(s, &c.maxChunks, "max-settled-chunks", "remember at most `N` times 8,192 settled "+
		"receipts a day per shard and --name, at 1 KB each; more settle nothing", flags.Int(1, 1_000_000_000))
}

func (c *config) addLogFlags(s *pflag.FlagSet) {
	flags.Add(s, &c.logLevel, "log-level", "lowest `LEVEL` to log: debug, info, warn or error",
		flags.OneOf(slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError))
	flags.Add(s, &c.traceTo, "trace", "send OpenTelemetry traces of reports to this `URL`, by OTLP "+
		"over HTTP, such as http://127.0.0.1:4318; checkers choose which reports",
		tracing.ReadEndpoint)
}

// What --rules takes.
const (
	fromNATS  = "nats"
	fromFiles = "files"
)
