package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath/cmd/internal/admin"
	"github.com/offpath-io/offpath/cmd/internal/daemon"
	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/internal/natsconn"
	"github.com/offpath-io/offpath/internal/version"
	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/redisstore"
	"github.com/offpath-io/offpath/pkg/events/natsbus"
)

// serve runs the daemon until ctx is done. It listens before anything else, so that a port that is
// taken is an error before there is anything to clean up.
func serve(ctx context.Context, c config, stdout io.Writer, log *slog.Logger) error {
	listener, err := daemon.Listen(c.admin)
	if err != nil {
		return fmt.Errorf("admin: %w", err)
	}
	defer listener.Close() // again, if the server has
	store, err := redisstore.Open(redisstore.Options{URL: c.redis, Namespace: c.namespace})
	if err != nil {
		return err
	}
	defer store.Close()
	conn, err := natsconn.Open(c.nats, connectionName(), log)
	if err != nil {
		return err
	}
	defer natsconn.Close(conn)
	bus, err := natsbus.NewWorker(conn, c.namespace)
	if err != nil {
		return err
	}

	applies := newApplies()
	worker, err := aggregate.New(aggregate.Options{
		Store: store, Bus: bus, Shards: c.shards, Gather: c.gather, OnApply: applies.observe, Log: log,
	})
	if err != nil {
		return err
	}
	ledger := newLedgerGauge(store.Ledger, log)
	registry := admin.NewRegistry(version.Get())
	registry.MustRegister(applies.took, applies.hits, ledger, &metrics{worker, conn.IsConnected})
	if err := printBanner(stdout, c, daemon.URL(listener)); err != nil {
		return fmt.Errorf("print what is running: %w", err)
	}
	return daemon.Run(ctx, log,
		daemon.HTTP("admin", listener, admin.Handler(registry, readiness(worker, conn)), log),
		daemon.Part{Name: "ledger", Run: ledger.poll},
		daemon.Part{Name: "worker", Run: worker.Run},
	)
}

func printBanner(w io.Writer, c config, adminURL string) error {
	_, err := fmt.Fprintf(w, "offpath aggregator %s\n\n"+
		"  admin      %s/metrics, /healthz, /readyz\n  NATS       %s\n  Redis      %s\n  namespace  %s\n\n",
		version.Get().Version, adminURL, flags.Redact(c.nats), flags.Redact(c.redis), c.namespace)
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
	Ready bool   `json:"ready"`
	NATS  string `json:"nats"`
	// WaitingFor says what is missing; it is empty when ready.
	WaitingFor []string `json:"waiting_for"`
}

// readiness says whether the worker could apply a report at this moment.
func readiness(worker *aggregate.Worker, conn *nats.Conn) admin.Readiness {
	return func() (bool, any) {
		s := state{NATS: natsconn.State(conn), WaitingFor: []string{}}
		if !conn.IsConnected() {
			s.WaitingFor = append(s.WaitingFor, "NATS")
		}
		if err := worker.Ready(); err != nil {
			s.WaitingFor = append(s.WaitingFor, "Redis: "+err.Error())
		}
		s.Ready = len(s.WaitingFor) == 0
		return s.Ready, s
	}
}
