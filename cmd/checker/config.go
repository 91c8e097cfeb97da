package main

import (
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/offpath-io/offpath/cmd/internal/daemon"
	"github.com/offpath-io/offpath/cmd/internal/signing"
	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/internal/natsconn"
	"github.com/offpath-io/offpath/internal/version"
	"github.com/offpath-io/offpath/pkg/envoylimit"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/identity/httpidentity"
	"github.com/offpath-io/offpath/pkg/limitheaders"
)

const summary = `Decides, for programs that ask over HTTP, and for Envoy over gRPC, whether a request may pass.

Without --nats everything runs in this process: a NATS server, an aggregator that keeps its counts
in memory, and, without --rules, the demo's rules. Other checkers may join it by its NATS URL.
With --nats it joins the fleet on that NATS, which --rules has to be given for.

Rules can change while it runs. --rules FILE watches the file. --rules nats watches the fleet's bucket
in NATS JetStream, which "aggregator rules apply" writes; so does a start without --nats and --rules. Bad rules
are refused, and the last good ones stay.

With --upstream it is a reverse proxy too, and limits what it passes on.`

// config is what the flags say.
type config struct {
	rulesFrom   string // a file, or fromNATS; "" is fromNATS, with the demo's rules in it
	nats        string // "" runs everything in this process
	access      natsconn.Access
	name        string // "" is none but the epoch
	listen      string
	grpc        string // "" is no gRPC door
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

	trustedProxies string // "" if nothing was said of them
	forwarding     httpidentity.Forwarding
	ipv6Prefix     int
	rateHeaders    limitheaders.Format

	tls doorTLS

	upstream string // "" is no reverse proxy
	proxy    string
	answer   time.Duration
	chargeOn string // statuses with commas between; "" for none

	options

	rulesKeys, entriesKeys signing.Keys // public ones only

	cacheDir string // "" for none

	demoKey string // a file with the demo's signing key of rules

	origins daemon.Origins // whose pages may ask the HTTP door and the admin door

	consoleToken string // of those who may block and reset keys at the embedded aggregator's console
	trail

	expectCheckers                      int
	staleAfter, shareAfter, outageAfter int // hellos without an answer
}

const (
	// maxKeys bounds the flags for numbers of keys: more than any machine holds.
	maxKeys = 1 << 31
	// mostHellos bounds the steps of the ladder: years.
	mostHellos = 100_000_000
)

func readConfig(args []string, getenv func(string) string, stdout io.Writer) (c config, done bool, err error) {
	c = config{
		listen:      "127.0.0.1:8080",
		grpc:        "127.0.0.1:8081",
		admin:       "127.0.0.1:9090",
		namespace:   defaultNamespace,
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
		cacheDir:    stateDirectory(getenv),
	}
	c.trail.setDefaults()
	s := flags.New("checker", summary, version.Get().Line("checker"))
	flags.Add(s, &c.rulesFrom, "rules", "FILE|nats", "rules to decide by: a YAML file, or the fleet's bucket; both are watched (a file called nats is ./nats)", flags.Text)
	flags.Add(s, &c.nats, "nats", "URL", "NATS of the fleet to join; several servers of it with commas between", flags.NATS)
	flags.Add(s, &c.name, "name", "NAME", "who this checker is to NATS, whose accounts can hold it to subjects with this name in them; several may share one", flags.Namespace)
	flags.Add(s, &c.listen, "listen", "ADDRESS", "where the HTTP door listens, as host:port", flags.Address)
	flags.Add(s, &c.grpc, "grpc", "ADDRESS|none", "where the gRPC door listens, as host:port: Envoy's rate limit service v3, and its quota service", grpcAddress)
	flags.Add(s, &c.envoyHeaders, "envoy-headers", "WHICH", "headers that Envoy is asked to add to its response: none, ratelimit (RateLimit-Limit and so on) or x-ratelimit", readEnvoyHeaders)
	flags.Add(s, &c.admin, "admin", "ADDRESS", "where /metrics, /healthz and /readyz are", flags.Address)
	flags.Add(s, &c.namespace, "namespace", "NAME", "the fleet's name: fleets of different names share a NATS", flags.Namespace)
	flags.Add(s, &c.logLevel, "log-level", "LEVEL", "the least that is logged: debug, info, warn or error", flags.Level)
	flags.Add(s, &c.flush, "flush", "DURATION", "how long hits wait at most until they are reported",
		flags.Duration(time.Millisecond, time.Minute))
	flags.Add(s, &c.quietFor, "quiet-for", "DURATION", "how long hits of keys far below their limit wait at most; one that is killed loses them",
		flags.Duration(time.Millisecond, time.Hour))
	flags.Add(s, &c.acquire, "acquire", "DURATION", "how long a request under strict enforcement waits for a permit at most; 0 for not at all",
		flags.Duration(0, time.Minute))
	flags.Add(s, &c.maxLiveKeys, "max-live-keys", "N", "most keys with unreported hits, and blocked keys, about 200 bytes each",
		flags.Int(1, maxKeys))
	flags.Add(s, &c.maxIdleKeys, "max-idle-keys", "N", "most further keys to remember, about 200 bytes each; 0 for none",
		flags.Int(0, maxKeys))
	flags.Add(s, &c.keyHash, "key-hash", "FILE", "a secret, of 16 bytes or more, the same in all checkers: NATS and the store see keyed hashes of keys", flags.Text)
	flags.Add(s, &c.receiptKeyFile, "receipt-key-file", "FILE", "the fleet's secret by which checkers know each other's receipts, of 32 bytes or more; a second line may hold the one before it. Without, a checker settles its own only, until it restarts", flags.Text)
	s.AddSecret(&c.receiptKey, "receipt-key", "that secret, if it is in no file")
	flags.Add(s, &c.expectCheckers, "expect-checkers", "N", "how many checkers the fleet has, to keep to a share of the limits until it is heard of; 0 to go by own hits",
		flags.Int(0, 1<<16))
	flags.Add(s, &c.staleAfter, "stale-after", "N", "after so many unanswered hellos, one each 2s, what is known is stale", flags.Int(1, mostHellos))
	flags.Add(s, &c.shareAfter, "share-after", "N", "after so many, this checker keeps to its share of the limits", flags.Int(1, mostHellos))
	flags.Add(s, &c.outageAfter, "outage-after", "N", "after so many, rules of on_outage open or closed decide by that", flags.Int(1, mostHellos))
	c.rulesKeys.AddPublic(s, signing.Rules)
	c.entriesKeys.AddPublic(s, signing.Entries)
	flags.Add(s, &c.cacheDir, "cache-dir", "DIR|none", "where the rules of the bucket and the blocks in force are kept, for a start while NATS is away; systemd's StateDirectory unless given", cacheDirectory)
	c.origins.AddFlags(s, "the HTTP door, and for /metrics")
	c.trail.addFlags(s)
	c.addProxyFlags(s)
	s.AddSecret(&c.consoleToken, "console-token", "tokens of those who may block and reset keys at the demo's console, NAME:TOKEN or TOKEN")
	c.addTLSFlags(s)
	done, err = s.Parse(args, getenv, stdout)
	if err == nil && !done {
		err = c.checkProxy(s)
	}
	if err == nil && !done {
		err = c.checkTLS()
	}
	if err == nil && !done && c.nats != "" && c.rulesFrom == "" {
		err = flags.Usagef("--nats joins a fleet: it needs --rules FILE too, the same rules as the rest of the fleet has, or --rules nats for those in its bucket")
	}
	if err == nil && !done && c.nats == "" && (s.Given("rules-public-keys") || s.Given("entries-public-keys")) {
		err = flags.Usagef("--rules-public-keys and --entries-public-keys are for a fleet, --nats: " +
			"without one, keys are made up at the start")
	}
	if err == nil && !done && c.nats == "" {
		if s.Given("cache-dir") && c.cacheDir != "" {
			err = flags.Usagef("--cache-dir is for a fleet, --nats: without one, nothing is needed that could be away")
		}
		c.cacheDir = ""
	}
	if err == nil && !done && c.receiptKeyFile != "" && c.receiptKey != "" {
		err = flags.Usagef("--receipt-key-file, and a receipt key in the environment: want one of them")
	}
	if err == nil && !done && (c.shareAfter < c.staleAfter || c.outageAfter < c.shareAfter) {
		err = flags.Usagef("--stale-after %d, --share-after %d, --outage-after %d: want them in this order", c.staleAfter, c.shareAfter, c.outageAfter)
	}
	return c, done, err
}

// grpcAddress takes an address, or what stands for none.
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

// cacheDirectory takes a directory, or what stands for none.
func cacheDirectory(text string) (string, error) {
	if text == noCache {
		return "", nil
	}
	return flags.Text(text)
}

// noCache is what --cache-dir says for none.
const noCache = "none"

const defaultNamespace = "offpath"

// fromNATS is what --rules says for the bucket.
const fromNATS = "nats"

// rulesFromBucket reports whether rules come from the bucket.
func (c config) rulesFromBucket() bool { return c.rulesFrom == "" || c.rulesFrom == fromNATS }
