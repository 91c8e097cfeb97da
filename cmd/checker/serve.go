package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/offpath-io/offpath/cmd/checker/upstream"
	"github.com/offpath-io/offpath/cmd/internal/admin"
	"github.com/offpath-io/offpath/cmd/internal/console"
	"github.com/offpath-io/offpath/cmd/internal/daemon"
	"github.com/offpath-io/offpath/cmd/internal/signing"
	"github.com/offpath-io/offpath/internal/blocks"
	"github.com/offpath-io/offpath/internal/natsconn"
	"github.com/offpath-io/offpath/internal/natssource"
	"github.com/offpath-io/offpath/internal/tlsfiles"
	"github.com/offpath-io/offpath/internal/topkeys"
	"github.com/offpath-io/offpath/internal/version"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

// serve runs the daemon until ctx is done. It listens before anything else, so that a port that is
// taken is an error before there is anything to clean up.
//
// It stops in the order in which hits travel: it is not ready any more, and the doors stay open for --stop-delay; they answer
// their last requests; the checker delivers its last report, the worker applies it, and only then do the connections and the
// server go.
func serve(ctx context.Context, c config, stdout, stderr io.Writer, log *slog.Logger) error {
	var from source
	if !c.rulesFromBucket() {
		var err error
		if from, err = openFile(c.rulesFrom); err != nil {
			return err
		}
	}
	files := tlsfiles.New(log)
	at, err := listen(c, files)
	if err != nil {
		return err
	}
	defer at.close()

	var parts []daemon.Part
	var board *console.Console // of the embedded aggregator; others have their own
	url := c.nats
	var trust signing.Metrics
	if url == "" {
		all, err := startEmbedded(c, log)
		if err != nil {
			return err
		}
		defer all.close()
		url, c.demoKey = all.server.ClientURL(), all.keyFile
		parts, board, trust = append(parts, all.worker), all.board, all.trust()
	} else if trust, err = c.trust(files, log); err != nil {
		return err
	}
	return serveOn(ctx, c, url, trust, from, at, files, parts, board, stdout, stderr, log)
}

// serveOn runs the checker and its doors on the NATS at url, and the parts that have to end after them.
func serveOn(
	ctx context.Context, c config, url string, trust signing.Metrics, from source, at listeners, files *tlsfiles.Files,
	parts []daemon.Part, board *console.Console, stdout, stderr io.Writer, log *slog.Logger,
) error {
	hasher, err := c.hasher(log)
	if err != nil {
		return err
	}
	receiptKeys, err := c.receiptKeys(files)
	if err != nil {
		return err
	}
	epoch, name := c.identify()
	open, err := c.access.Opener(files, url, "offpath-checker-"+name, log, c.natsOptions()...)
	if err != nil {
		return err
	}
	lifeline, err := newLifeline(open, c.namespace, name, log)
	if err != nil {
		return err
	}
	defer lifeline.close()
	var keptRules *cached
	if c.rulesFromBucket() {
		keptRules = newCached(c.cacheDir, natssource.Name(c.namespace), "rules", log)
		from = fromBucket(lifeline, trust.Rules, keptRules)
	}
	keptBlocks := newCached(c.cacheDir, blocks.Name(c.namespace), "entries", log)
	for _, kept := range []*cached{keptRules, keptBlocks} {
		saving := kept.start(ctx)
		defer saving.close() // after what is kept has ended
	}
	service, err := c.serviceTLS(files)
	if err != nil {
		return err
	}
	denied := topkeys.New(time.Now)
	var living *living
	denials := openDecisionLog(c, name, lifeline.conn, stderr, func(rule string) int64 { return living.limit(rule) }, log)
	tracer, err := openTracer(ctx, c, name, log)
	if err != nil {
		return err
	}
	living = newLiving(log,
		func(set *rules.Set, revision uint64) (*check.Checker, error) {
			o := check.Options{Rules: set, Revision: revision, Link: lifeline, Epoch: epoch, KeyHash: hasher, ReceiptKeys: receiptKeys}
			o.OnDenied = tellBoth(denied.AddSome, denials)
			if tracer != nil {
				o.Trace = tracer.Report
			}
			return newChecker(c, o)
		},
		func(checker *check.Checker) (doors, error) { return newDoors(c, checker, service, log) })
	watching, err := from.start(ctx, living)
	if err != nil {
		return err
	}
	defer watching.close()
	blocking := newBlocking(lifeline, living, trust.Entries, keptBlocks, log)
	watchingBlocks := blocking.start(ctx)
	defer watchingBlocks.close()
	from.awaitFirst(ctx, living)

	leaving := daemon.NewLeaving(c.stopDelay)
	registry, metrics := admin.NewRegistry(version.Get()), newMetrics(living.stats, func() bool { return lifeline.conn().IsConnected() }, c.maxLiveKeys)
	registry.MustRegister(append(blocking.metrics(),
		metrics, rulesMetrics{living.keeper.State}, cacheMetrics{keptRules, keptBlocks}, trust, admin.FileMetrics(files.States))...)
	speaker := newSpeaker(c, name, living, metrics, denied, func() int { return int(blocking.count.Load()) })
	err = printBanner(stdout, banner{
		config: c, rules: living.first(), nats: url, version: version.Get(),
		door: daemon.URL(at.door), grpc: at.grpcTarget(), admin: daemon.URL(at.admin), proxy: at.proxyURL(),
	})
	if err != nil {
		return fmt.Errorf("print what is running: %w", err)
	}
	parts = append(parts,
		daemon.Part{Name: "files", Run: files.Run},
		lifeline.part(),
		daemon.HTTP("admin", at.admin,
			withConsole(board, c.origins.Guard(admin.Handler(registry, readiness(living, lifeline, leaving)))), log, c.wait),
	)
	if denials != nil {
		registry.MustRegister(logMetrics{denials})
		parts = append(parts, decisionLogPart(denials))
	}
	if tracer != nil {
		parts = append(parts, daemon.Part{Name: "traces", Run: tracer.Run})
	}
	parts = append(parts,
		speaker.run(lifeline),
		living.reporter(),
		watching.part(),
		leaving.HTTP("HTTP door", at.door, living, log, c.wait, func(s *http.Server) { s.MaxHeaderBytes = maxDoorHeader }),
	)
	if at.grpc != nil {
		parts = append(parts, grpcDoor(c, at.grpc, living, registry, leaving, log)...)
	}
	if at.proxy != nil {
		parts = append(parts, leaving.HTTP("proxy", at.proxy, http.HandlerFunc(living.proxy), log, c.wait, upstream.Tune))
	}
	if board != nil { // it is stopped first, since its pages keep the admin door open
		parts = append(parts, daemon.Part{Name: "console", Run: board.Run})
	}
	return daemon.Run(ctx, log, append(parts, leaving.Part(log))...)
}

// wait has a server wait for its clients as long as the options say.
func (o options) wait(s *http.Server) {
	if o.clientTime > 0 {
		s.ReadHeaderTimeout, s.ReadTimeout, s.WriteTimeout = o.clientTime, o.clientTime, o.clientTime
	}
}

// trust returns what tells which rules and blocks of the fleet count.
func (c config) trust(files *tlsfiles.Files, log *slog.Logger) (trust signing.Metrics, err error) {
	rules, err := c.rulesKeys.Open(signing.Rules, files, log)
	if err != nil {
		return trust, err
	}
	entries, err := c.entriesKeys.Open(signing.Entries, files, log)
	signing.Warn(log, rules.Verifier, entries.Verifier, c.rulesFromBucket())
	return signing.Metrics{Rules: rules.Verifier, Entries: entries.Verifier}, err
}

// withConsole is the admin door, with the console if there is one.
func withConsole(board *console.Console, door http.Handler) http.Handler {
	if board == nil {
		return door
	}
	return board.Handler(door)
}

// maxDoorHeader is the most bytes of a request's header at the HTTP door. A proxy that asks there sends its client's headers
// along, and takes more of them than a program would send.
const maxDoorHeader = 64 << 10

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

// newChecker adds what the flags say to the options.
func newChecker(c config, o check.Options) (*check.Checker, error) {
	o.MaxIdleKeys = c.maxIdleKeys
	if o.MaxIdleKeys == 0 {
		o.MaxIdleKeys = -1 // which is what check calls none
	}
	o.FlushEvery, o.QuietFor, o.MaxLiveKeys, o.ExpectCheckers = c.flush, c.quietFor, c.maxLiveKeys, c.expectCheckers
	o.StaleAfter, o.ShareAfter, o.OutageAfter = c.staleAfter, c.shareAfter, c.outageAfter
	return check.New(o)
}

// state is what /readyz tells. A checker is ready as soon as it has rules: it decides whether or not
// anybody is behind it.
type state struct {
	Ready bool `json:"ready"`
	// Leaving says that it has been told to stop.
	Leaving   bool   `json:"leaving,omitempty"`
	NATS      string `json:"nats"`
	Freshness string `json:"freshness"`
	// Rules says which are in force, and why others are not.
	Rules string `json:"rules"`
	// Problem is why the last report or message went wrong, "" if all is well.
	Problem string `json:"problem"`
}

func readiness(l *living, link *lifeline, leaving *daemon.Leaving) admin.Readiness {
	return func() (bool, any) {
		s, rules := l.stats(), l.keeper.State()
		ready := rules.InForce() && !leaving.Begun()
		return ready, state{
			Ready: ready, Leaving: leaving.Begun(), NATS: natsconn.State(link.conn()), Freshness: s.Freshness.String(), Rules: rules.String(),
			Problem: s.Problem,
		}
	}
}
