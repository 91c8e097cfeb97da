package checker

import (
	"cmp"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/offpath-io/offpath/cmd/internal/daemon"
	"github.com/offpath-io/offpath/cmd/internal/rulesfile"
	"github.com/offpath-io/offpath/cmd/internal/signing"
	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/internal/natsconn"
	"github.com/offpath-io/offpath/internal/version"
	"github.com/offpath-io/offpath/pkg/envoylimit"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/identity/httpidentity"
	"github.com/offpath-io/offpath/pkg/limitheaders"
)

const summary = `
Decides whether a request may pass, for programs that ask over HTTP and for Envoy, which asks over
gRPC.

With --nats it joins the fleet on that NATS server. Without, it decides alone, with a NATS server and
an aggregator of its own that counts in memory.

Rules can change while it runs: --rules FILE follows a file, --rules DIR all YAML files of a
directory, and --rules nats the fleet's bucket in JetStream, which "offpath rules apply" writes.
Invalid rules are refused, and the last valid ones
stay in force.

With --upstream it is also a reverse proxy, and limits the requests that it passes on.`

// config has the values of the flags.
type config struct {
	rulesFrom   string // a file, a directory, or fromNATS; "" is fromNATS, with the demo's rules in it
	nats        string // "" runs the rest of a fleet in this process
	access      natsconn.Access
	name        string // "" is none but the epoch
	listen      string
	grpc        string // "" is no gRPC API
	admin       string
	namespace   string
	logLevel    slog.Level
	flush       time.Duration
	quietFor    time.Duration
	acquire     time.Duration // 0: never wait
	maxLiveKeys int
	maxIdleKeys int    // 0 is none
	keyHash     string // a file with a secret; "" leaves keys as they are

	receiptKeyFile, receiptKey string // both "": this checker draws a key of its own

	envoyHeaders envoylimit.Headers
	shadow       bool // nobody is denied

	trustedProxies string // "" if nothing was said of them
	forwarding     httpidentity.Forwarding
	ipv6Prefix     int
	rateHeaders    limitheaders.Format

	tls serverTLS

	upstream string // "" is no reverse proxy
	proxy    string
	answer   time.Duration
	chargeOn string // statuses with commas between; "" for none

	options

	onNoMatch rulesfile.NoMatch

	rulesKeys, entriesKeys signing.Keys // public ones only

	cacheDir string // "" for none

	demoKey string // a file with the demo's signing key of rules

	origins daemon.Origins // whose pages may ask the HTTP API and the admin API

	consoleToken string // for blocking and resetting keys at the embedded console
	trail

	expectCheckers                      int
	staleAfter, shareAfter, outageAfter int // hellos without an answer
}

const (
	// maxKeys bounds the flags for numbers of keys: more than any machine holds.
	maxKeys = 1 << 31
	// mostHellos bounds the degradation levels: years.
	mostHellos = 100_000_000
)

// newCommand returns the command, which hands its configuration to run.
func newCommand(
	getenv func(string) string, run func(cmd *cobra.Command, c config) error,
) *cobra.Command {
	c := newConfig()
	c.cacheDir = stateDirectory(getenv)
	cmd := &cobra.Command{
		Use: "checker", Long: summary, Version: version.Get().Line("checker"),
		Args: flags.NoArguments,
	}
	c.addFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := c.check(cmd.Flags()); err != nil {
			return err
		}
		return run(cmd, c)
	}
	return cmd
}

// newConfig returns the defaults.
func newConfig() config {
	c := config{
		listen:      "127.0.0.1:8080",
		grpc:        "127.0.0.1:8081",
		admin:       "127.0.0.1:9090",
		namespace:   natsconn.DefaultNamespace,
		flush:       50 * time.Millisecond,
		quietFor:    time.Second,
		acquire:     20 * time.Millisecond,
		maxLiveKeys: 1 << 20,
		maxIdleKeys: 1 << 20,
		staleAfter:  3,
		shareAfter:  10,
		outageAfter: 300,
		ipv6Prefix:  identity.DefaultIPv6Prefix,
		rateHeaders: limitheaders.Newest,
		proxy:       "127.0.0.1:8088",
		answer:      30 * time.Second,
		onNoMatch:   rulesfile.AllowNoMatch,
	}
	c.trail.setDefaults()
	return c
}

func (c *config) addFlags(cmd *cobra.Command) {
	flags.Topic(cmd, "Fleet", c.addFleetFlags)
	flags.Topic(cmd, "Rules and blocks", c.addRulesFlags)
	flags.Topic(cmd, "Addresses", c.addAddressFlags)
	flags.Topic(cmd, "Reporting and permits", c.addReportFlags)
	flags.Topic(cmd, "Without the fleet", c.addDegradationFlags)
	flags.Topic(cmd, "Keys and receipts", c.addKeyFlags)
	flags.Topic(cmd, "Clients behind proxies", c.addClientFlags)
	flags.Topic(cmd, "Reverse proxy", c.addProxyFlags)
	flags.Topic(cmd, "Logs and traces", func(s *pflag.FlagSet) {
		c.addLogLevel(s)
		c.trail.addFlags(s)
	})
	flags.Topic(cmd, "Access to NATS", c.access.AddFlags)
	flags.Topic(cmd, "TLS", c.addTLSFlags)
}

func (c *config) addLogLevel(s *pflag.FlagSet) {
	flags.Add(s, &c.logLevel, "log-level", "lowest `LEVEL` to log: debug, info, warn or error",
		flags.OneOf(slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError))
}

func (c *config) addFleetFlags(s *pflag.FlagSet) {
	natsconn.AddFleetFlags(s, &c.nats, &c.namespace)
	flags.Add(s, &c.name, "name", "`NAME` of this checker in NATS subjects, so that a NATS "+
		"account can restrict it to its own; several checkers may share one", natsconn.Name)
}

func (c *config) addRulesFlags(s *pflag.FlagSet) {
	s.StringVar(&c.rulesFrom, "rules", "", "where the rules are, `FILE|DIR|nats`: a YAML file, a "+
		"directory of them, or the fleet's bucket in NATS; changes are followed (./nats is a file "+
		"called nats)")
	s.BoolVar(&c.shadow, "shadow", false, "deny nothing: treat all rules as shadow rules, and "+
		"count what they would deny")
	c.onNoMatch.AddFlag(s)
	c.rulesKeys.AddPublic(s, signing.Rules)
	c.entriesKeys.AddPublic(s, signing.Entries)
	flags.Add(s, &c.cacheDir, "cache-dir", "directory `DIR|none` that keeps rules and blocks "+
		"for a start while NATS is away; by default systemd's StateDirectory",
		cacheDirectory)
}

func (c *config) addAddressFlags(s *pflag.FlagSet) {
	flags.Add(s, &c.listen, "listen", "`ADDRESS` of the HTTP API, as host:port", flags.Address)
	flags.Add(s, &c.grpc, "grpc", "`ADDRESS|none` of the gRPC API (Envoy's rate limit service v3 "+
		"and quota service), as host:port", grpcAddress)
	flags.Add(s, &c.envoyHeaders, "envoy-headers", "`WHICH` rate limit headers Envoy adds to its "+
		"response: none, ratelimit (RateLimit-Limit and so on), x-ratelimit, or three names with "+
		"commas between, for limit, remaining and reset", envoylimit.ParseHeaders)
	flags.Add(s, &c.admin, "admin", "`ADDRESS` of /metrics, /healthz and /readyz, as host:port", flags.Address)
	c.origins.AddFlags(s, "the HTTP API and /metrics")
	flags.AddSecret(s, &c.consoleToken, "console-token", "tokens of people who may block and reset "+
		"keys at the embedded console, NAME:TOKEN or TOKEN")
	flags.Add(s, &c.stopDelay, "stop-delay", "go on serving for this `DURATION` once told to stop, "+
		"with /readyz answering 503, so that load balancers notice",
		flags.Duration(0, 5*time.Minute))
}

func (c *config) addReportFlags(s *pflag.FlagSet) {
	flags.Add(s, &c.flush, "flush", "longest `DURATION` before hits are reported",
		flags.Duration(time.Millisecond, time.Minute))
	flags.Add(s, &c.quietFor, "quiet-for", "the same for keys far below their limit, a `DURATION`; a "+
		"checker that is killed loses these hits", flags.Duration(time.Millisecond, time.Hour))
	flags.Add(s, &c.acquire, "acquire", "longest `DURATION` that a request waits for a permit "+
		"under strict enforcement; 0 to never wait", flags.Duration(0, time.Minute))
}

func (c *config) addDegradationFlags(s *pflag.FlagSet) {
	flags.Add(s, &c.expectCheckers, "expect-checkers", "assume at least `N` checkers and keep to a share of the limits "+
		"until the fleet answers; 0 to decide by own hits",
		flags.Int(0, 1<<16))
	flags.Add(s, &c.staleAfter, "stale-after",
		"counts of a shard are stale after `N` unanswered hellos, one every 2s",
		flags.Int(1, mostHellos))
	flags.Add(s, &c.shareAfter, "share-after",
		"after `N` unanswered hellos, keep to a share of the limits",
		flags.Int(1, mostHellos))
	flags.Add(s, &c.outageAfter, "outage-after",
		"after `N` unanswered hellos, rules with on_outage open or closed apply it",
		flags.Int(1, mostHellos))
}

func (c *config) addKeyFlags(s *pflag.FlagSet) {
	flags.Add(s, &c.maxLiveKeys, "max-live-keys", "hold at most `N` keys with unreported hits or a "+
		"block, at 200 to 400 bytes each", flags.Int(1, maxKeys))
	flags.Add(s, &c.maxIdleKeys, "max-idle-keys", "cache at most `N` more keys, idle for 35 s, "+
		"at about 400 bytes each; 0 for none", flags.Int(0, maxKeys))
	s.StringVar(&c.keyHash, "key-hash", "", "hash keys with the secret in `FILE`, at least 16 bytes and "+
		"the same for all checkers, before they leave this process")
	s.StringVar(&c.receiptKeyFile, "receipt-key-file", "", "`FILE` with the fleet's secret that "+
		"signs receipts, at least 32 bytes; a second line may hold the previous one. Without it, "+
		"a checker settles only its own receipts, until it restarts")
	flags.AddSecret(s, &c.receiptKey, "receipt-key", "that secret, if it is not in a file")
}

// check refuses settings that do not make sense together, and completes the others.
func (c *config) check(given *pflag.FlagSet) error {
	err := cmp.Or(c.checkProxy(given), c.checkTLS(), c.checkFleet(given))
	switch {
	case err != nil:
		return err
	case c.receiptKeyFile != "" && c.receiptKey != "":
		return flags.Usagef("--receipt-key-file, and a receipt key in the environment: " +
			"want one of them")
	case c.shareAfter < c.staleAfter || c.outageAfter < c.shareAfter:
		return flags.Usagef("--stale-after %d, --share-after %d, --outage-after %d: "+
			"want them in this order", c.staleAfter, c.shareAfter, c.outageAfter)
	}
	return nil
}

// checkFleet refuses settings of a fleet where there is none, and a fleet without rules.
func (c *config) checkFleet(given *pflag.FlagSet) error {
	switch {
	case c.nats != "" && c.rulesFrom == "":
		return flags.Usagef("--nats joins a fleet: it needs --rules FILE too, with the same " +
			"rules as the rest of the fleet, or --rules nats for those in its bucket")
	case c.nats != "":
		return nil
	case c.rulesFromBucket():
		return flags.Usagef("want --nats URL, to join a fleet, or --rules FILE, to decide alone " +
			"(\"offpath demo\" starts everything with example rules)")
	case given.Changed("rules-public-keys") || given.Changed("entries-public-keys"):
		return flags.Usagef("--rules-public-keys and --entries-public-keys are for a fleet, " +
			"--nats: without one, keys are made up at the start")
	case given.Changed("cache-dir") && c.cacheDir != "":
		return flags.Usagef("--cache-dir is for a fleet, --nats: " +
			"without one, nothing can be away at a start")
	}
	c.cacheDir = ""
	return nil
}

// grpcAddress reads an address, or the word for none.
func grpcAddress(text string) (string, error) {
	if text == "" || text == noGRPC {
		return "", nil
	}
	return flags.Address(text)
}

// stateDirectory is the first of those that systemd has made for the service, "" without any.
func stateDirectory(getenv func(string) string) string {
	first, _, _ := strings.Cut(getenv("STATE_DIRECTORY"), ":")
	return first
}

// cacheDirectory reads a directory, or the word for none.
func cacheDirectory(text string) (string, error) {
	if text == noCache {
		return "", nil
	}
	return text, nil
}

// noCache is the value of --cache-dir for none.
const noCache = "none"

// fromNATS is the value of --rules for the bucket.
const fromNATS = "nats"

// rulesFromBucket reports whether rules come from the bucket.
func (c config) rulesFromBucket() bool { return c.rulesFrom == "" || c.rulesFrom == fromNATS }
