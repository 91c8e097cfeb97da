package checker

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath"
	"github.com/offpath-io/offpath/cmd/checker/forwardauth"
	"github.com/offpath-io/offpath/cmd/checker/upstream"
	"github.com/offpath-io/offpath/cmd/internal/admin"
	"github.com/offpath-io/offpath/cmd/internal/daemon"
	"github.com/offpath-io/offpath/cmd/internal/decisionlog"
	"github.com/offpath-io/offpath/cmd/internal/rulesfile"
	"github.com/offpath-io/offpath/cmd/internal/signing"
	"github.com/offpath-io/offpath/internal/natsclient"
	"github.com/offpath-io/offpath/internal/tlsfiles"
	"github.com/offpath-io/offpath/internal/tracing"
	"github.com/offpath-io/offpath/internal/version"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/envoylimit"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/events/natsbus"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

// process is the daemon: its parts, in the order in which they come to be.
type process struct {
	config
	stdout, stderr io.Writer
	log            *slog.Logger
	files          *tlsfiles.Files
	registry       admin.Registry
	requests       *admin.Requests
	leaving        *daemon.Leaving

	listeners   listeners
	embedded    *embedded // nil: the fleet is elsewhere
	url         string    // of NATS
	trust       signing.Metrics
	adapters    adapters
	denials     *decisionlog.Log // nil: none
	tracer      *tracing.Tracer  // nil: none
	participant *offpath.Participant
}

// firstWait is how long a start waits for rules before it prints that there are none yet. It goes
// on waiting afterwards.
const firstWait = 3 * time.Second

// serve runs the daemon until ctx is done. It listens before anything else, so that a port in use
// is an error before there is anything to clean up.
//
// It stops in the order in which hits travel: it is not ready any more, and goes on answering for
// --stop-delay; the adapters answer their last requests; the checker delivers its last report, the
// embedded aggregator applies it, and only then do the connections and the server go.
func serve(ctx context.Context, c config, stdout, stderr io.Writer, log *slog.Logger) error {
	p := &process{
		config: c, stdout: stdout, stderr: stderr, log: log, files: tlsfiles.New(log),
		registry: admin.NewRegistry(version.Get(), c.namespace), leaving: daemon.NewLeaving(c.stopDelay),
		adapters: adapters{made: make(chan struct{})},
	}
	p.requests = admin.NewRequests(p.registry)
	defer p.close()
	for _, start := range []func(context.Context) error{
		p.open, p.findFleet, p.join, p.greet,
	} {
		if err := start(ctx); err != nil {
			return err
		}
	}
	return daemon.Run(ctx, log, p.parts()...)
}

// close ends everything that has been started and is no part.
func (p *process) close() {
	if p.participant != nil {
		_ = p.participant.Close() // its part returns the error
	}
	if p.embedded != nil {
		p.embedded.close()
	}
	p.listeners.close()
}

func (p *process) open(context.Context) (err error) {
	p.listeners, err = listen(p.config, p.files)
	return err
}

// findFleet starts a fleet in this process, or opens the keys of the one that there is.
func (p *process) findFleet(context.Context) (err error) {
	if p.nats != "" {
		p.url = p.nats
		p.trust, err = p.config.trust(p.files, p.log)
		return err
	}
	if p.embedded, err = startEmbedded(p.config, p.log); err != nil {
		return err
	}
	p.url, p.demoKey, p.trust = p.embedded.server.ClientURL(), p.embedded.keyFile, p.embedded.trust()
	return nil
}

func (p *process) join(ctx context.Context) error {
	access, err := p.access.Options(p.files)
	if err != nil {
		return err
	}
	service, err := p.serviceTLS(p.files)
	if err != nil {
		return err
	}
	if p.shadow {
		p.log.Warn("in shadow: nobody is denied; what rules would deny is counted")
	}
	o := offpath.Options{
		NATS: p.url, NATSOptions: access, Namespace: p.namespace, Name: p.name,
		RulesVerifier: p.trust.Rules, BlocksVerifier: p.trust.Entries, CacheDir: p.cacheDir,
		WantsDecisionLog: p.othersMakeLog(), Log: p.log, Shadow: p.shadow,
		Begin: func(checker *check.Checker) error {
			return p.adapters.begin(p.config, checker, service, p.log)
		},
	}
	if !p.rulesFromBucket() {
		o.RulesFile = p.rulesFrom
	}
	if o.Checker, err = p.checkerOptions(ctx); err != nil {
		return err
	}
	soon, cancel := context.WithTimeout(ctx, firstWait)
	defer cancel()
	p.participant, err = offpath.Start(soon, o)
	return err
}

// checkerOptions returns the checker's options, as the flags set them.
func (p *process) checkerOptions(ctx context.Context) (o check.Options, err error) {
	const hello = 2 * time.Second // as the flags' help says
	o = check.Options{
		FlushEvery: p.flush, QuietFor: p.quietFor, ExpectCheckers: p.expectCheckers,
		HelloEvery: hello, StaleAfter: time.Duration(p.staleAfter) * hello,
		ShareAfter: time.Duration(p.shareAfter) * hello, OutageAfter: time.Duration(p.outageAfter) * hello,
		MaxLiveKeys: p.maxLiveKeys, MaxIdleKeys: p.maxIdleKeys, Epoch: events.NewEpoch(p.name),
		DrainTimeout: p.drainTime, Now: daemon.Clock(), DenyUnmatched: p.onNoMatch == rulesfile.DenyNoMatch,
	}
	if o.MaxIdleKeys == 0 {
		o.MaxIdleKeys = -1 // which package check calls none
	}
	if o.KeyHash, err = p.hasher(p.log); err != nil {
		return o, err
	}
	if o.ReceiptKeys, err = p.receiptKeys(p.files); err != nil {
		return o, err
	}
	name := natsbus.CheckerName(p.name, o.Epoch)
	if p.denials = p.openDecisionLog(name); p.denials != nil {
		o.OnDenied = p.denials.Denied
	}
	if p.tracer, err = openTracer(ctx, p.config, name, p.log); p.tracer != nil {
		o.Trace = p.tracer.Report
	}
	took := newReportTimes()
	p.registry.MustRegister(took)
	o.Trace = timed(took, o.Trace)
	return o, err
}

// conn is the present connection to NATS.
func (p *process) conn() *nats.Conn { return p.participant.Conn() }

// greet prints the banner.
func (p *process) greet(context.Context) error {
	var set *rules.Set // nil: there are none yet
	if checker := p.participant.Checker(); checker != nil {
		set = checker.Rules()
	}
	err := printBanner(p.stdout, banner{
		config: p.config, rules: set, nats: p.url, version: version.Get(),
		http: daemon.URL(p.listeners.http), grpc: p.listeners.grpcTarget(),
		admin: daemon.URL(p.listeners.admin), proxy: p.listeners.proxyURL(),
	})
	if err != nil {
		return fmt.Errorf("print what is running: %w", err)
	}
	return nil
}

// parts are in the order in which hits come back: the last one is stopped first.
func (p *process) parts() (parts []daemon.Part) {
	if p.embedded != nil {
		parts = append(parts, p.embedded.worker)
	}
	parts = append(parts, daemon.Part{Name: "files", Run: p.files.Run}, p.adminPart())
	if p.denials != nil {
		parts = append(parts, daemon.Part{Name: "decision log", Run: p.denials.Run})
	}
	if p.tracer != nil {
		parts = append(parts, daemon.Part{Name: "traces", Run: p.tracer.Run})
	}
	parts = append(parts, daemon.Part{Name: "reporter", Run: p.report}, p.httpPart())
	if p.listeners.grpc != nil {
		parts = append(parts, p.grpcParts()...)
	}
	if p.listeners.proxy != nil {
		proxy := p.requests.HTTP("proxy", http.HandlerFunc(p.adapters.proxy))
		parts = append(parts,
			p.leaving.HTTP("proxy", p.listeners.proxy, proxy, p.log, p.wait, upstream.Tune))
	}
	if p.embedded != nil { // its pages keep the admin port open
		parts = append(parts, daemon.Part{Name: "console", Run: p.embedded.board.Run})
	}
	return append(parts, p.leaving.Part(p.log))
}

// report delivers unreported hits when ctx is done.
func (p *process) report(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-p.participant.Done():
	}
	return p.participant.Drain()
}

func (p *process) adminPart() daemon.Part {
	p.registry.MustRegister(p.trust, admin.FileMetrics(p.files.States), metrics{
		stats: p.participant.Stats, connected: func() bool { return p.conn().IsConnected() },
		reconnects: func() uint64 { return p.conn().Stats().Reconnects }, mostLive: p.maxLiveKeys,
	}, envoyMetrics{p.adapters.envoyStats})
	if p.denials != nil {
		p.registry.MustRegister(logMetrics{p.denials})
	}
	handler := p.origins.Guard(admin.Handler(p.registry, p.readiness))
	if p.embedded != nil {
		handler = p.embedded.board.Handler(handler)
	}
	return daemon.HTTP("admin", p.listeners.admin, p.requests.HTTP("admin", handler), p.log, p.wait)
}

// maxHeader is the most bytes of a request's header at the HTTP API. A proxy that asks there sends
// its client's headers along, and takes more of them than a program would send.
const maxHeader = 64 << 10

func (p *process) httpPart() daemon.Part {
	return p.leaving.HTTP("HTTP API", p.listeners.http, p.httpHandler(), p.log, p.wait,
		func(h *http.Server) { h.MaxHeaderBytes = maxHeader })
}

// healthPath is where envoyproxy/ratelimit says whether it is healthy.
const healthPath = "/healthcheck"

// httpHandler is the HTTP API, and beside it what envoyproxy/ratelimit serves at its HTTP port.
func (p *process) httpHandler() http.Handler {
	api, auth := p.requests.HTTP("http", &p.adapters), p.requests.HTTP("forward_auth", &p.adapters)
	asJSON := p.requests.HTTP("http",
		p.origins.Guard(envoylimit.JSON(envoyAdapter{adapters: &p.adapters})))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case envoylimit.JSONPath:
			asJSON.ServeHTTP(w, r)
		case healthPath:
			if ready, _ := p.readiness(); !ready {
				http.Error(w, "not ready", http.StatusInternalServerError)
				return
			}
			_, _ = io.WriteString(w, "OK") // the client may have gone
		case forwardauth.Path:
			auth.ServeHTTP(w, r)
		default:
			api.ServeHTTP(w, r)
		}
	})
}

// wait sets how long a server waits for its clients.
func (o options) wait(s *http.Server) {
	if t := o.clientTime; t > 0 {
		s.ReadHeaderTimeout, s.ReadTimeout, s.WriteTimeout = t, t, t
	}
}

// trust returns the verifiers of the fleet's rules and blocks.
func (c config) trust(files *tlsfiles.Files, log *slog.Logger) (trust signing.Metrics, err error) {
	rules, err := c.rulesKeys.Open(signing.Rules, files, log)
	if err != nil {
		return trust, err
	}
	entries, err := c.entriesKeys.Open(signing.Entries, files, log)
	signing.Warn(log, rules.Verifier, entries.Verifier, c.rulesFromBucket())
	return signing.Metrics{Rules: rules.Verifier, Entries: entries.Verifier}, err
}

// hasher returns the Hasher of keys, nil if keys are not hashed.
func (c config) hasher(log *slog.Logger) (*identity.Hasher, error) {
	if c.keyHash == "" {
		return nil, nil
	}
	h, err := identity.ReadHasher(c.keyHash)
	if err != nil {
		return nil, fmt.Errorf("--key-hash: %w", err)
	}
	log.Info("keys are hashed", "secret", h.Fingerprint())
	return h, nil
}

// state is the body of /readyz. A checker is ready as soon as it has rules: it decides with and
// without a fleet.
type state struct {
	Ready bool `json:"ready"`
	// Leaving: it has been told to stop.
	Leaving   bool   `json:"leaving,omitempty"`
	NATS      string `json:"nats"`
	Freshness string `json:"freshness"`
	// Rules are the rules in force, and why others are refused.
	Rules string `json:"rules"`
	// Problem is why the last report or message went wrong, "" if all is well.
	Problem string `json:"problem"`
}

func (p *process) readiness() (bool, any) {
	stats, leaving := p.participant.Stats(), p.leaving.Begun()
	ready := stats.Rules.InForce() && !leaving
	return ready, state{
		Ready: ready, Leaving: leaving, NATS: natsclient.State(p.conn()),
		Freshness: stats.Checker.Freshness.String(), Rules: stats.Rules.String(),
		Problem: stats.Checker.Problem,
	}
}
