package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
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
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/events/natsbus"
)

// serve runs the daemon until ctx is done. It listens before anything else, so that a port that is
// taken is an error before there is anything to clean up.
func serve(ctx context.Context, c config, stdout io.Writer, log *slog.Logger) error {
	files := tlsfiles.New(log)
	tokens, err := console.OpenTokens(files, c.tokenFile, c.tokens)
	if err != nil {
		return fmt.Errorf("console: %w", err)
	}
	rules, err := c.rulesKeys.Open(signing.Rules, files, log)
	if err != nil {
		return err
	}
	blocks, err := c.entriesKeys.Open(signing.Entries, files, log)
	if err != nil {
		return err
	}
	signing.Warn(log, rules.Verifier, blocks.Verifier, c.rulesFrom == fromNATS)
	secure, err := c.adminTLS.Secure(files, "admin")
	if err != nil {
		return err
	}
	listener, err := daemon.Listen(c.admin)
	if err != nil {
		return fmt.Errorf("admin: %w", err)
	}
	listener = secure(listener)
	defer listener.Close() // again, if the server has
	store, err := c.redisIn.Open(files, redisstore.Options{URL: c.redis, Namespace: c.namespace, NewKeys: c.newKeys})
	if err != nil {
		return err
	}
	defer store.Close()
	access, err := c.access.Options(files)
	if err != nil {
		return err
	}
	conn, err := natsclient.Open(c.nats, connectionName(), log, access...)
	if err != nil {
		return err
	}
	defer natsclient.Close(conn)
	bus, err := natsbus.NewWorker(conn, c.namespace)
	if err != nil {
		return err
	}
	memory, err := natsmemory.New(conn, c.namespace)
	if err != nil {
		return err
	}

	applies, tally := newApplies(time.Now), console.NewTally()
	o := aggregate.Options{
		Store: store, Bus: bus, Memory: memory, Shards: c.shards, BatchDelay: c.gather, Log: log, OnUnleased: applies.unleased,
		MaxCheckers: c.maxCheckers, MaxWindow: c.maxWindow, MaxChunks: c.maxChunks, MaxRules: c.maxRules,
		OnApply: func(info aggregate.ApplyInfo) { applies.observe(info); tally.Observe(info) },
	}
	tracer, err := openTracer(ctx, c, log)
	if err != nil {
		return err
	}
	if tracer != nil {
		o.Trace = tracer.Aggregate
	}
	worker, err := aggregate.New(o)
	if err != nil {
		return err
	}
	var setRules func([]storage.Rule)
	if c.rulesFrom == fromNATS {
		setRules = worker.SetRules
	}
	denials := newDenials(conn, c.namespace, log)
	board, err := console.New(console.Options{
		Conn: conn, Namespace: c.namespace, Worker: worker, Tally: tally, Tokens: tokens, Hosts: strings.Split(c.consoleHosts, ","),
		RulesVerifier: rules.Verifier, EntriesVerifier: blocks.Verifier, EntriesKey: blocks.Key,
		SetRules: setRules, Heard: denials.heard, Log: log,
	})
	if err != nil {
		return err
	}
	leaving := daemon.NewLeaving(0)
	ledger := newLedgerGauge(store.Ledger, log)
	registry := admin.NewRegistry(version.Get())
	applies.register(registry)
	registry.MustRegister(ledger, &metrics{worker, conn.IsConnected}, admin.FileMetrics(files.States),
		signing.Metrics{Rules: rules.Verifier, Entries: blocks.Verifier})
	if err := printBanner(stdout, c, daemon.URL(listener)); err != nil {
		return fmt.Errorf("print what is running: %w", err)
	}
	parts := []daemon.Part{
		{Name: "files", Run: files.Run},
		{Name: "NATS", Run: func(ctx context.Context) error { return natsclient.Run(ctx, conn) }},
		daemon.HTTP("admin", listener, board.Handler(c.origins.Guard(admin.Handler(registry, readiness(worker, conn, leaving)))), log),
		{Name: "ledger", Run: ledger.poll},
		{Name: "decision log", Run: denials.run},
	}
	if tracer != nil {
		parts = append(parts, daemon.Part{Name: "traces", Run: tracer.Run})
	}
	return daemon.Run(ctx, log, append(parts,
		daemon.Part{Name: "worker", Run: worker.Run}, daemon.Part{Name: "console", Run: board.Run}, leaving.Part(log))...)
}

// openTracer returns what traces reports, nil if nothing does.
func openTracer(ctx context.Context, c config, log *slog.Logger) (*tracing.Tracer, error) {
	if c.traceTo == "" {
		return nil, nil
	}
	return tracing.Open(ctx, tracing.Options{
		Endpoint: c.traceTo, Service: "offpath-aggregator", Instance: connectionName(), Version: version.Get().Version, Log: log,
	})
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
