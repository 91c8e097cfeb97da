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
	log     *slog.Logger
	files   *tlsfiles.Files
	leaving *daemon.Leaving
	applies *applies
	tally   *console.Tally

	tokens        func() console.Tokens
	rules, blocks signing.Opened
	listener      net.Listener
	store         *redisstore.Store
	conn          *nats.Conn
	tracer        *tracing.Tracer // nil: none
	worker        *aggregate.Worker
	denials       *denials
	board         *console.Console
}

// serve runs the daemon until ctx is done. It listens before it connects to anything, so that a
// port in use is an error before there is anything to clean up.
func serve(ctx context.Context, c config, stdout io.Writer, log *slog.Logger) error {
	p := &process{
		config: c, log: log, files: tlsfiles.New(log), leaving: daemon.NewLeaving(0),
		applies: newApplies(time.Now), tally: console.NewTally(),
	}
	defer p.close()
	for _, start := range []func(context.Context) error{
		p.openFiles, p.connect, p.makeWorker, p.makeConsole,
	} {
		if err := start(ctx); err != nil {
			return err
		}
	}
	if err := printBanner(stdout, c, daemon.URL(p.listener)); err != nil {
		return fmt.Errorf("print what is running: %w", err)
	}
	return daemon.Run(ctx, log, p.parts()...)
}

// close ends what has come to be and is no part.
func (p *process) close() {
	if p.conn != nil {
		natsclient.Close(p.conn)
	}
	if p.store != nil {
		_ = p.store.Close() // all batches are done
	}
	if p.listener != nil {
		_ = p.listener.Close() // again, if the server has
	}
}

// openFiles reads tokens, keys and certificates, and listens.
func (p *process) openFiles(context.Context) (err error) {
	if p.tokens, err = console.OpenTokens(p.files, p.tokenFile, p.config.tokens); err != nil {
		return fmt.Errorf("console: %w", err)
	}
	if p.rules, err = p.rulesKeys.Open(signing.Rules, p.files, p.log); err != nil {
		return err
	}
	if p.blocks, err = p.entriesKeys.Open(signing.Entries, p.files, p.log); err != nil {
		return err
	}
	signing.Warn(p.log, p.rules.Verifier, p.blocks.Verifier, p.rulesFrom == fromNATS)
	if p.listener, err = p.adminTLS.Listen(p.files, "admin", p.admin); err != nil {
		return fmt.Errorf("admin: %w", err)
	}
	return nil
}

// connect opens the connections to Redis and NATS; neither has to be there yet.
func (p *process) connect(context.Context) (err error) {
	remember := p.remember
	if remember == 0 {
		remember = -1 // 0 is the default there
	}
	p.store, err = p.redisIn.Open(p.files, redisstore.Options{
		URL: p.redis, Namespace: p.namespace, NewKeys: p.newKeys, Remember: remember,
	})
	if err != nil {
		return err
	}
	access, err := p.access.Options(p.files)
	if err != nil {
		return err
	}
	p.conn, err = natsclient.Open(p.nats, connectionName(), p.log, access...)
	return err
}

func (p *process) makeWorker(ctx context.Context) error {
	bus, err := natsbus.NewWorker(p.conn, p.namespace)
	if err != nil {
		return err
	}
	memory, err := natsmemory.New(p.conn, p.namespace)
	if err != nil {
		return err
	}
	o := aggregate.Options{
		Store: p.store, Bus: bus, Memory: memory, Shards: p.shards,
		MaxCheckers: p.maxCheckers, MaxWindow: p.maxWindow, MaxChunks: p.maxChunks, MaxRules: p.maxRules,
		OnApply:    func(info aggregate.ApplyInfo) { p.applies.observe(info); p.tally.Observe(info) },
		OnUnleased: p.applies.unleased,
		Now:        daemon.Clock(),
		Log:        p.log,
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
	p.worker, err = aggregate.New(o)
	return err
}

func (p *process) makeConsole(context.Context) (err error) {
	p.denials = newDenials(p.conn, p.namespace, p.log)
	o := console.Options{
		Conn: p.conn, Namespace: p.namespace, Worker: p.worker, Tally: p.tally, Tokens: p.tokens,
		Hosts:         strings.Split(p.consoleHosts, ","),
		RulesVerifier: p.rules.Verifier, RulesKey: p.rules.Key, EntriesVerifier: p.blocks.Verifier, EntriesKey: p.blocks.Key,
		Heard: p.denials.heard, Log: p.log,
	}
	if p.rulesFrom == fromNATS {
		o.SetRules = p.worker.SetRules
	}
	p.board, err = console.New(o)
	return err
}

// parts are in the order in which they depend on each other: the last one is stopped first.
func (p *process) parts() []daemon.Part {
	ledger := newLedgerGauge(p.store.Ledger, p.log)
	registry := admin.NewRegistry(version.Get(), p.namespace)
	p.applies.register(registry)
	registry.MustRegister(ledger, &metrics{p.worker, p.conn.IsConnected, p.conn.Stats, p.store.Remembered},
		admin.FileMetrics(p.files.States),
		signing.Metrics{Rules: p.rules.Verifier, Entries: p.blocks.Verifier})
	handler := p.board.Handler(p.origins.Guard(admin.Handler(registry, p.readiness)))
	handler = admin.NewRequests(registry).HTTP("admin", handler)
	parts := []daemon.Part{
		{Name: "files", Run: p.files.Run},
		{Name: "NATS", Run: func(ctx context.Context) error { return natsclient.Run(ctx, p.conn) }},
		daemon.HTTP("admin", p.listener, handler, p.log),
		{Name: "ledger", Run: ledger.poll},
		{Name: "decision log", Run: p.denials.run},
	}
	if p.tracer != nil {
		parts = append(parts, daemon.Part{Name: "traces", Run: p.tracer.Run})
	}
	return append(parts,
		daemon.Part{Name: "worker", Run: p.worker.Run}, daemon.Part{Name: "console", Run: p.board.Run},
		p.leaving.Part(p.log))
}

func printBanner(w io.Writer, c config, adminURL string) error {
	_, err := fmt.Fprintf(w, "offpath aggregator %s\n\n"+
		"  console    %s/\n  admin      %s/metrics, /healthz, /readyz\n  NATS       %s\n  Redis      %s\n  namespace  %s\n\n",
		version.Get().Version, adminURL, adminURL, redact.URLs(c.nats), redact.URLs(c.redis), c.namespace)
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
func (p *process) readiness() (bool, any) {
	s := state{NATS: natsclient.State(p.conn), Leaving: p.leaving.Begun(), WaitingFor: []string{}}
	if !p.conn.IsConnected() {
		s.WaitingFor = append(s.WaitingFor, "NATS")
	}
	if err := p.worker.Ready(); err != nil {
		s.WaitingFor = append(s.WaitingFor, "Redis: "+err.Error())
	}
	s.Ready = len(s.WaitingFor) == 0 && !s.Leaving
	return s.Ready, s
}
