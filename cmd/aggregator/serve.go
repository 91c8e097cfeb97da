package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/offpath-io/offpath/cmd/internal/admin"
	"github.com/offpath-io/offpath/cmd/internal/console"
	"github.com/offpath-io/offpath/cmd/internal/daemon"
	"github.com/offpath-io/offpath/cmd/internal/signing"
	"github.com/offpath-io/offpath/internal/natsclient"
	"github.com/offpath-io/offpath/internal/redact"
	"github.com/offpath-io/offpath/internal/tlsfiles"
	"github.com/offpath-io/offpath/internal/tracing"
	"github.com/offpath-io/offpath/internal/version"
	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/natsmemory"
	"github.com/offpath-io/offpath/pkg/aggregate/redisstore"
	"github.com/offpath-io/offpath/pkg/events/natsbus"
)

// process is the daemon: its parts, in the order in which they come to be.
type process struct {
	config
	stdout   io.Writer
	log      *slog.Logger
	files    *tlsfiles.Files
	registry *prometheus.Registry
	leaving  *daemon.Leaving

	operators     func() console.Tokens // who may block and reset keys
	rules, blocks signing.Opened
	listener      net.Listener
	store         *redisstore.Store
	conn          *nats.Conn
	applies       *applies
	tally         *console.Tally
	tracer        *tracing.Tracer // nil: none
	worker        *aggregate.Worker
	denials       *denials
	board         *console.Console
	ledger        *ledgerGauge
}

// serve runs the daemon until ctx is done. It listens before anything else, so that a port in use
// is an error before there is anything to clean up.
func serve(ctx context.Context, c config, stdout io.Writer, log *slog.Logger) error {
	p := &process{
		config: c, stdout: stdout, log: log, files: tlsfiles.New(log),
		registry: admin.NewRegistry(version.Get()), leaving: daemon.NewLeaving(0),
		applies: newApplies(time.Now), tally: console.NewTally(),
	}
	defer p.close()
	for _, start := range []func(context.Context) error{
		p.openKeys, p.listen, p.connect, p.work, p.greet,
	} {
		if err := start(ctx); err != nil {
			return err
		}
	}
	return daemon.Run(ctx, log, p.parts()...)
}

// close ends what has come to be and is no part.
func (p *process) close() {
	if p.conn != nil {
		natsclient.Close(p.conn)
	}
	if p.store != nil {
		_ = p.store.Close() // nobody is left to tell
	}
	if p.listener != nil {
		_ = p.listener.Close() // again, if the server has
	}
}

func (p *process) openKeys(context.Context) (err error) {
	if p.operators, err = console.OpenTokens(p.files, p.tokenFile, p.tokens); err != nil {
		return fmt.Errorf("console: %w", err)
	}
	if p.rules, err = p.rulesKeys.Open(signing.Rules, p.files, p.log); err != nil {
		return err
	}
	if p.blocks, err = p.entriesKeys.Open(signing.Entries, p.files, p.log); err != nil {
		return err
	}
	signing.Warn(p.log, p.rules.Verifier, p.blocks.Verifier, p.rulesFrom == fromNATS)
	return nil
}

func (p *process) listen(context.Context) error {
	secure, err := p.adminTLS.Secure(p.files, "admin")
	if err != nil {
		return err
	}
	listener, err := daemon.Listen(p.admin)
	if err != nil {
		return fmt.Errorf("admin: %w", err)
	}
	p.listener = secure(listener)
	return nil
}

// connect opens Redis and NATS, neither of which has to be up.
func (p *process) connect(context.Context) (err error) {
	o := redisstore.Options{URL: p.redis, Namespace: p.namespace, NewKeys: p.newKeys}
	if p.store, err = p.redisIn.Open(p.files, o); err != nil {
		return err
	}
	access, err := p.access.Options(p.files)
	if err != nil {
		return err
	}
	p.conn, err = natsclient.Open(p.nats, connectionName(), p.log, access...)
	return err
}

// work makes the worker and what looks at it.
func (p *process) work(ctx context.Context) (err error) {
	o := aggregate.Options{
		Store: p.store, Shards: p.shards, BatchDelay: p.gather, Log: p.log,
		MaxCheckers: p.maxCheckers, MaxWindow: p.maxWindow, MaxChunks: p.maxChunks,
		MaxRules: p.maxRules, OnUnleased: p.applies.unleased,
		OnApply: func(info aggregate.ApplyInfo) { p.applies.observe(info); p.tally.Observe(info) },
	}
	if o.Bus, err = natsbus.NewWorker(p.conn, p.namespace); err != nil {
		return err
	}
	if o.Memory, err = natsmemory.New(p.conn, p.namespace); err != nil {
		return err
	}
	if p.traceTo != "" {
		p.tracer, err = tracing.Open(ctx, tracing.Options{
			Endpoint: p.traceTo, Service: "offpath-aggregator", Instance: connectionName(),
			Version: version.Get().Version, Log: p.log,
		})
		if err != nil {
			return err
		}
		o.Trace = p.tracer.Aggregate
	}
	if p.worker, err = aggregate.New(o); err != nil {
		return err
	}
	p.ledger = newLedgerGauge(p.store.Ledger, p.log)
	return p.openConsole()
}

func (p *process) openConsole() (err error) {
	p.denials = newDenials(p.conn, p.namespace, p.log)
	o := console.Options{
		Conn: p.conn, Namespace: p.namespace, Worker: p.worker, Tally: p.tally,
		Tokens: p.operators, Hosts: strings.Split(p.consoleHosts, ","), Heard: p.denials.heard,
		RulesVerifier: p.rules.Verifier, EntriesVerifier: p.blocks.Verifier,
		EntriesKey: p.blocks.Key, Log: p.log,
	}
	if p.rulesFrom == fromNATS {
		o.SetRules = p.worker.SetRules
	}
	p.board, err = console.New(o)
	return err
}

// greet registers the metrics, and prints what is running.
func (p *process) greet(context.Context) error {
	p.applies.register(p.registry)
	p.registry.MustRegister(p.ledger, &metrics{p.worker, p.conn.IsConnected},
		admin.FileMetrics(p.files.States),
		signing.Metrics{Rules: p.rules.Verifier, Entries: p.blocks.Verifier})
	if err := printBanner(p.stdout, p.config, daemon.URL(p.listener)); err != nil {
		return fmt.Errorf("print what is running: %w", err)
	}
	return nil
}

// parts are in the order in which work flows back; they stop from the last to the first.
func (p *process) parts() []daemon.Part {
	api := p.origins.Guard(admin.Handler(p.registry, readiness(p.worker, p.conn, p.leaving)))
	parts := []daemon.Part{
		{Name: "files", Run: p.files.Run},
		{Name: "NATS", Run: func(ctx context.Context) error { return natsclient.Run(ctx, p.conn) }},
		daemon.HTTP("admin", p.listener, p.board.Handler(api), p.log),
		{Name: "ledger", Run: p.ledger.poll},
		{Name: "decision log", Run: p.denials.run},
	}
	if p.tracer != nil {
		parts = append(parts, daemon.Part{Name: "traces", Run: p.tracer.Run})
	}
	return append(parts, daemon.Part{Name: "worker", Run: p.worker.Run},
		daemon.Part{Name: "console", Run: p.board.Run}, p.leaving.Part(p.log))
}

func printBanner(w io.Writer, c config, adminURL string) error {
	_, err := fmt.Fprintf(w, "offpath aggregator %s\n\n"+
		"  console    %s/\n  admin      %s/metrics, /healthz, /readyz\n"+
		"  NATS       %s\n  Redis      %s\n  namespace  %s\n\n",
		version.Get().Version, adminURL, adminURL, redact.URLs(c.nats), redact.URLs(c.redis),
		c.namespace)
	return err
}

// connectionName is for NATS' own monitoring: it need not be unique.
func connectionName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("offpath-aggregator-%s-%d", host, os.Getpid())
}

// state is what /readyz tells.
type state struct {
	Ready bool `json:"ready"`
	// Leaving says that it has been told to stop.
	Leaving bool   `json:"leaving,omitempty"`
	NATS    string `json:"nats"`
	// WaitingFor says what is missing; it is empty when ready.
	WaitingFor []string `json:"waiting_for"`
}

// readiness says whether the worker could apply a report at this moment.
func readiness(worker *aggregate.Worker, conn *nats.Conn, leaving *daemon.Leaving) admin.Readiness {
	return func() (bool, any) {
		s := state{NATS: natsclient.State(conn), WaitingFor: []string{}}
		if !conn.IsConnected() {
			s.WaitingFor = append(s.WaitingFor, "NATS")
		}
		if err := worker.Ready(); err != nil {
			s.WaitingFor = append(s.WaitingFor, "Redis: "+err.Error())
		}
		s.Leaving = leaving.Begun()
		s.Ready = len(s.WaitingFor) == 0 && !s.Leaving
		return s.Ready, s
	}
}
