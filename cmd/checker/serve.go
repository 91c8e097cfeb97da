package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"

	"github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath/cmd/checker/door"
	"github.com/offpath-io/offpath/cmd/internal/admin"
	"github.com/offpath-io/offpath/cmd/internal/daemon"
	"github.com/offpath-io/offpath/internal/natsconn"
	"github.com/offpath-io/offpath/internal/version"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/events/natsbus"
	"github.com/offpath-io/offpath/pkg/rules"
)

// serve runs the daemon until ctx is done. It listens before anything else, so that a port that is
// taken is an error before there is anything to clean up.
//
// It stops in the order in which hits travel: the door answers its last request, the checker delivers
// its last report, the worker applies it, and only then do the connections and the server go.
func serve(ctx context.Context, c config, stdout io.Writer, log *slog.Logger) error {
	set, err := c.loadRules()
	if err != nil {
		return err
	}
	at, err := listen(c)
	if err != nil {
		return err
	}
	defer at.close()

	var parts []daemon.Part
	url := c.nats
	if url == "" {
		all, err := startEmbedded(c.namespace, log)
		if err != nil {
			return err
		}
		defer all.close()
		url = all.server.ClientURL()
		parts = append(parts, all.worker)
	}
	checker, conn, err := newChecker(c, set, url, log)
	if err != nil {
		return err
	}
	defer natsconn.Close(conn)

	registry := admin.NewRegistry(version.Get())
	registry.MustRegister(newMetrics(checker.Stats, conn.IsConnected))
	err = printBanner(stdout, banner{
		config: c, rules: set, nats: url, version: version.Get(),
		door: daemon.URL(at.door), admin: daemon.URL(at.admin),
	})
	if err != nil {
		return fmt.Errorf("print what is running: %w", err)
	}
	parts = append(parts,
		daemon.HTTP("admin", at.admin, admin.Handler(registry, readiness(checker, conn)), log),
		daemon.Part{Name: "reporter", Run: checker.Run},
		daemon.HTTP("HTTP door", at.door, door.New(checker, c.acquire), log),
	)
	return daemon.Run(ctx, log, parts...)
}

// listeners are the open ports.
type listeners struct{ door, admin net.Listener }

func listen(c config) (l listeners, err error) {
	if l.door, err = daemon.Listen(c.listen); err != nil {
		return l, fmt.Errorf("HTTP door: %w", err)
	}
	if l.admin, err = daemon.Listen(c.admin); err != nil {
		_ = l.door.Close()
		return l, fmt.Errorf("admin: %w", err)
	}
	return l, nil
}

// close closes what no server has closed; the errors of the others mean nothing.
func (l listeners) close() {
	_ = l.door.Close()
	_ = l.admin.Close()
}

// newChecker returns a checker and its connection. Its name on NATS is its epoch, which is unique
// without anybody having to choose.
func newChecker(c config, set *rules.Set, url string, log *slog.Logger) (*check.Checker, *nats.Conn, error) {
	epoch := check.NewEpoch()
	name := fmt.Sprintf("%x", epoch)
	conn, err := natsconn.Open(url, "offpath-checker-"+name, log)
	if err != nil {
		return nil, nil, err
	}
	link, err := natsbus.NewChecker(conn, c.namespace, name)
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	idle := c.maxIdleKeys
	if idle == 0 {
		idle = -1 // which is what check calls none
	}
	checker, err := check.New(check.Options{
		Rules: set, Link: link, Epoch: epoch,
		FlushEvery: c.flush, MaxLiveKeys: c.maxLiveKeys, MaxIdleKeys: idle, ExpectCheckers: c.expectCheckers,
		StaleAfter: c.staleAfter, ShareAfter: c.shareAfter, OutageAfter: c.outageAfter,
	})
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	return checker, conn, nil
}

// state is what /readyz tells. A checker is ready as soon as it runs: it decides whether or not
// anybody is behind it.
type state struct {
	Ready     bool   `json:"ready"`
	NATS      string `json:"nats"`
	Freshness string `json:"freshness"`
	// Problem is why the last report or message went wrong, "" if all is well.
	Problem string `json:"problem"`
}

func readiness(checker *check.Checker, conn *nats.Conn) admin.Readiness {
	return func() (bool, any) {
		s := checker.Stats()
		return true, state{
			Ready: true, NATS: natsconn.State(conn), Freshness: s.Freshness.String(), Problem: s.Problem,
		}
	}
}
