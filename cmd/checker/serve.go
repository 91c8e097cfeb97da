package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"

	"github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath/cmd/checker/door"
	"github.com/offpath-io/offpath/cmd/internal/admin"
	"github.com/offpath-io/offpath/cmd/internal/daemon"
	"github.com/offpath-io/offpath/internal/natsconn"
	"github.com/offpath-io/offpath/internal/version"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/events/natsbus"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

// serve runs the daemon until ctx is done. It listens before anything else, so that a port that is
// taken is an error before there is anything to clean up.
//
// It stops in the order in which hits travel: the door answers its last request, the checker delivers
// its last report, the worker applies it, and only then do the connections and the server go.
func serve(ctx context.Context, c config, stdout io.Writer, log *slog.Logger) error {
	var from source
	if !c.rulesFromBucket() {
		var err error
		if from, err = openFile(c.rulesFrom); err != nil {
			return err
		}
	}
	at, err := listen(c)
	if err != nil {
		return err
	}
	defer at.close()

	var parts []daemon.Part
	url := c.nats
	if url == "" {
		all, err := startEmbedded(c, log)
		if err != nil {
			return err
		}
		defer all.close()
		url = all.server.ClientURL()
		parts = append(parts, all.worker)
	}
	return serveOn(ctx, c, url, from, at, parts, stdout, log)
}

// serveOn runs the checker and its doors on the NATS at url, and the parts that have to end after them.
func serveOn(ctx context.Context, c config, url string, from source, at listeners, parts []daemon.Part, stdout io.Writer, log *slog.Logger) error {
	hasher, err := c.hasher(log)
	if err != nil {
		return err
	}
	epoch := check.NewEpoch()
	conn, err := natsconn.Open(url, "offpath-checker-"+nameOf(epoch), log)
	if err != nil {
		return err
	}
	defer natsconn.Close(conn)
	if c.rulesFromBucket() {
		if from, err = openBucket(conn, c.namespace); err != nil {
			return err
		}
	}
	link, err := natsbus.NewChecker(conn, c.namespace, nameOf(epoch))
	if err != nil {
		return err
	}
	living := newLiving(log,
		func(set *rules.Set, revision uint64) (*check.Checker, error) {
			return newChecker(c, epoch, link, hasher, set, revision)
		},
		func(checker *check.Checker) http.Handler { return door.New(checker, c.acquire) })
	watching, err := from.start(ctx, living)
	if err != nil {
		return err
	}
	defer watching.close()
	living.awaitFirst(ctx)

	registry := admin.NewRegistry(version.Get())
	registry.MustRegister(newMetrics(living.stats, conn.IsConnected), rulesMetrics{living.keeper.State})
	err = printBanner(stdout, banner{
		config: c, rules: living.first(), nats: url, version: version.Get(),
		door: daemon.URL(at.door), admin: daemon.URL(at.admin),
	})
	if err != nil {
		return fmt.Errorf("print what is running: %w", err)
	}
	return daemon.Run(ctx, log, append(parts,
		daemon.HTTP("admin", at.admin, admin.Handler(registry, readiness(living, conn)), log),
		living.reporter(),
		watching.part(),
		daemon.HTTP("HTTP door", at.door, living, log),
	)...)
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

// nameOf is a checker's name on NATS: its epoch, which is unique without anybody having to choose.
func nameOf(epoch uint64) string { return fmt.Sprintf("%x", epoch) }

// hasher is what replaces keys by their hashes, nil if nothing does.
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

func newChecker(
	c config, epoch uint64, link check.Link, hasher *identity.Hasher, set *rules.Set, revision uint64,
) (*check.Checker, error) {
	idle := c.maxIdleKeys
	if idle == 0 {
		idle = -1 // which is what check calls none
	}
	return check.New(check.Options{
		Rules: set, Revision: revision, Link: link, Epoch: epoch, KeyHash: hasher,
		FlushEvery: c.flush, MaxLiveKeys: c.maxLiveKeys, MaxIdleKeys: idle, ExpectCheckers: c.expectCheckers,
		StaleAfter: c.staleAfter, ShareAfter: c.shareAfter, OutageAfter: c.outageAfter,
	})
}

// state is what /readyz tells. A checker is ready as soon as it has rules: it decides whether or not
// anybody is behind it.
type state struct {
	Ready     bool   `json:"ready"`
	NATS      string `json:"nats"`
	Freshness string `json:"freshness"`
	// Rules says which are in force, and why others are not.
	Rules string `json:"rules"`
	// Problem is why the last report or message went wrong, "" if all is well.
	Problem string `json:"problem"`
}

func readiness(l *living, conn *nats.Conn) admin.Readiness {
	return func() (bool, any) {
		s, rules := l.stats(), l.keeper.State()
		return rules.InForce(), state{
			Ready: rules.InForce(), NATS: natsconn.State(conn), Freshness: s.Freshness.String(), Rules: rules.String(),
			Problem: s.Problem,
		}
	}
}
