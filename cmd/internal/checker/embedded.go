package checker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath/cmd/internal/console"
	"github.com/offpath-io/offpath/cmd/internal/daemon"
	"github.com/offpath-io/offpath/cmd/internal/signing"
	"github.com/offpath-io/offpath/deploy"
	"github.com/offpath-io/offpath/internal/natsclient"
	"github.com/offpath-io/offpath/internal/natssource"
	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/events/natsbus"
)

// embedded is the rest of a fleet in this process: a NATS server, and an aggregator that keeps its
// counters in memory.
type embedded struct {
	server *server.Server
	dir    string     // JetStream's files, "" without them
	conn   *nats.Conn // the worker's own
	worker daemon.Part
	board  *console.Console

	rules, entries signing.Opened // keys of its own
	keyFile        string         // the signing key of rules, "" without JetStream
}

// serverTimeout is how long the NATS server may take to start.
const serverTimeout = 10 * time.Second

func startEmbedded(c config, log *slog.Logger) (*embedded, error) {
	e := &embedded{}
	if err := e.makeKeys(log); err != nil {
		return nil, fmt.Errorf("make up signing keys: %w", err)
	}
	if err := e.startServer(c.rulesFromBucket(), log); err != nil {
		e.close()
		return nil, fmt.Errorf("start the embedded NATS server: %w", err)
	}
	if err := e.startWorker(c, log.With("in", "embedded aggregator")); err != nil {
		e.close()
		return nil, fmt.Errorf("start the embedded aggregator: %w", err)
	}
	if c.rulesFromBucket() {
		if err := e.seed(c.namespace); err != nil {
			e.close()
			return nil, fmt.Errorf("start with the demo's rules: %w", err)
		}
	}
	return e, nil
}

// makeKeys draws the keys that sign rules and blocks.
func (e *embedded) makeKeys(log *slog.Logger) (err error) {
	if e.rules, err = signing.Generate(log); err == nil {
		e.entries, err = signing.Generate(log)
	}
	return err
}

// trust returns the verifiers of rules and blocks.
func (e *embedded) trust() signing.Metrics {
	return signing.Metrics{Rules: e.rules.Verifier, Entries: e.entries.Verifier}
}

// seed puts the demo's rules into the bucket, and the key that signs others beside the server's
// files, for users of the demo.
func (e *embedded) seed(namespace string) error {
	secret, err := e.rules.Key().Seed()
	if err != nil {
		return err
	}
	path := filepath.Join(e.dir, "rules.key")
	if err := os.WriteFile(path, []byte(secret+"\n"), 0o600); err != nil {
		return err
	}
	e.keyFile = path
	o := natssource.Options{Verifier: e.rules.Verifier, Key: e.rules.Key()}
	bucket, err := natssource.New(e.conn, namespace, o)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), serverTimeout)
	defer cancel()
	_, err = bucket.Put(ctx, deploy.Rules, 0)
	return err
}

// startServer starts the NATS server. JetStream, which holds the bucket of rules, keeps its files
// in a directory that is removed when the process ends.
func (e *embedded) startServer(jetStream bool, log *slog.Logger) (err error) {
	if jetStream {
		if e.dir, err = os.MkdirTemp("", "offpath-embedded-"); err != nil {
			return err
		}
	}
	e.server, err = runServer(&server.Options{
		ServerName: "offpath-embedded",
		Host:       "127.0.0.1",
		Port:       server.RANDOM_PORT,
		NoSigs:     true,
		JetStream:  jetStream,
		StoreDir:   e.dir,
	}, log)
	return err
}

// runServer starts a NATS server.
func runServer(options *server.Options, log *slog.Logger) (*server.Server, error) {
	s, err := server.NewServer(options)
	if err != nil {
		return nil, err
	}
	errs := &serverLog{log: log.With("in", "embedded NATS")}
	s.SetLogger(errs, false, false)
	s.Start()
	if !s.ReadyForConnections(serverTimeout) {
		s.Shutdown()
		return nil, errors.Join(errors.New("it accepts no connections"), errs.failure())
	}
	return s, nil
}

func (e *embedded) startWorker(c config, log *slog.Logger) error {
	tokens, err := console.OpenTokens(nil, "", c.consoleToken)
	if err != nil {
		return fmt.Errorf("console: %w", err)
	}
	conn, err := natsclient.Open(e.server.ClientURL(), "offpath-aggregator-embedded", log)
	if err != nil {
		return err
	}
	e.conn = conn
	bus, err := natsbus.NewWorker(conn, c.namespace)
	if err != nil {
		return err
	}
	tally := console.NewTally()
	worker, err := aggregate.New(aggregate.Options{
		Store: memstore.New(), Bus: bus, OnApply: tally.Observe, Log: log,
	})
	if err != nil {
		return err
	}
	e.worker = daemon.Part{Name: "embedded aggregator", Run: worker.Run}
	var setRules func([]storage.Rule)
	if c.rulesFromBucket() {
		setRules = worker.SetRules
	}
	e.board, err = console.New(console.Options{
		Conn: conn, Namespace: c.namespace, Worker: worker, Tally: tally, Tokens: tokens, Log: log,
		SetRules: setRules, RulesVerifier: e.rules.Verifier, RulesKey: e.rules.Key,
		EntriesVerifier: e.entries.Verifier, EntriesKey: e.entries.Key,
	})
	return err
}

// close ends the connection and the server; the worker has ended before.
func (e *embedded) close() {
	if e.conn != nil {
		natsclient.Close(e.conn)
	}
	if e.server != nil {
		e.server.Shutdown()
		e.server.WaitForShutdown()
	}
	if e.dir != "" {
		_ = os.RemoveAll(e.dir) // files that stay are small and harmless
	}
}

// serverLog is the NATS server's logger. It logs notices as debug messages. It keeps the last fatal
// error, which the server reports nowhere else.
type serverLog struct {
	log   *slog.Logger
	fatal atomic.Pointer[string]
}

func (l *serverLog) failure() error {
	if text := l.fatal.Load(); text != nil {
		return errors.New(*text)
	}
	return nil
}

func (l *serverLog) Noticef(format string, v ...any) { l.log.Debug(fmt.Sprintf(format, v...)) }
func (l *serverLog) Debugf(format string, v ...any)  { l.log.Debug(fmt.Sprintf(format, v...)) }
func (l *serverLog) Tracef(format string, v ...any)  { l.log.Debug(fmt.Sprintf(format, v...)) }
func (l *serverLog) Warnf(format string, v ...any)   { l.log.Warn(fmt.Sprintf(format, v...)) }
func (l *serverLog) Errorf(format string, v ...any)  { l.log.Error(fmt.Sprintf(format, v...)) }

// Fatalf does not end the process, as it would in a server of its own.
func (l *serverLog) Fatalf(format string, v ...any) { l.fatal.Store(new(fmt.Sprintf(format, v...))) }
