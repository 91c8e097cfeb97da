package servers

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/nats-io/nats-server/v2/server"
)

// NATSOptions says what to start. The zero value starts a silent server for core NATS on a free
// port.
type NATSOptions struct {
	// Port of 127.0.0.1 to listen on; 0 picks a free one.
	Port int
	// JetStream turns it on. Its files are in a temporary directory that Stop removes.
	JetStream bool
	// Configure, if it is set, may change anything else of the server whenever that starts: TLS,
	// accounts, users.
	Configure func(*server.Options)
	// Logger gets what the server says, without its debugging; nil: nobody does.
	Logger *slog.Logger

	tune func(*server.Options) // nil: nothing else
}

// NATS is a real nats-server that runs within this process. It handles no signals. Its methods may
// be called from any goroutine.
type NATS struct {
	options NATSOptions

	mu     sync.Mutex
	dir    tempDir // JetStream's
	server *server.Server
	set    *server.Options // the server's, as it was started or reloaded
}

// StartNATS starts a nats-server and returns once it accepts connections.
func StartNATS(options NATSOptions) (*NATS, error) {
	start := func(port int) (*NATS, error) {
		n := &NATS{options: options}
		n.options.Port = port
		if err := n.start(); err != nil {
			return nil, fmt.Errorf("start nats: %w", errors.Join(err, n.dir.remove()))
		}
		return n, nil
	}
	if options.Port != 0 {
		return start(options.Port)
	}
	return onFreePort(start)
}

// URL returns the server's address as a nats:// URL. It stays the same over restarts.
func (n *NATS) URL() string { return "nats://" + address(n.options.Port) }

// Stop closes all connections, ends the server and removes its files. To stop a stopped server is
// no error. Restart may start it again, with nothing.
func (n *NATS) Stop() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.end()
	return n.dir.remove()
}

// Restart closes all connections, ends the server, if it runs, and starts it again on the same
// port. JetStream keeps what it has stored.
func (n *NATS) Restart() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.end()
	if err := n.start(); err != nil {
		return fmt.Errorf("restart nats: %w", err)
	}
	return nil
}

// Reload gives the running server other settings, as "nats-server --signal reload" does, until it
// is restarted.
func (n *NATS) Reload(change func(*server.Options)) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.server == nil {
		return errors.New("reload nats: it does not run")
	}
	options := n.set.Clone()
	change(options)
	if err := n.server.ReloadOptions(options); err != nil {
		return fmt.Errorf("reload nats: %w", err)
	}
	n.set = options
	return nil
}

func (n *NATS) end() {
	if n.server == nil {
		return
	}
	n.server.Shutdown()
	n.server.WaitForShutdown()
	n.server = nil
}

// start launches the server. The caller holds n.mu; no server is running.
func (n *NATS) start() error {
	if n.options.JetStream {
		if err := n.dir.make("offpath-nats-"); err != nil {
			return err
		}
	}
	options := &server.Options{
		Host:      host,
		Port:      n.options.Port,
		JetStream: n.options.JetStream,
		StoreDir:  string(n.dir),
		NoSigs:    true,
	}
	for _, change := range []func(*server.Options){n.options.Configure, n.options.tune} {
		if change != nil {
			change(options)
		}
	}
	s, err := server.NewServer(options)
	if err != nil {
		return err
	}
	log := &natsLog{to: n.options.Logger}
	s.SetLogger(log, false, false)
	// Start returns once the server listens, or when it has logged why it cannot.
	s.Start()
	if err := log.failure(); err != nil || !s.ReadyForConnections(readyTimeout) {
		s.Shutdown()
		s.WaitForShutdown()
		return errors.Join(errors.New("nats-server is not ready for connections"), err)
	}
	n.server, n.set = s, options.Clone()
	return nil
}
