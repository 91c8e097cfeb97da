package servers

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/nats-io/nats-server/v2/server"
)

// NATSOptions says what to start. The zero value starts a silent server for core NATS on a free port.
type NATSOptions struct {
	// Port of 127.0.0.1 to listen on; 0 picks a free one.
	Port int
	// JetStream turns it on. Its files are in a temporary directory that Stop removes.
	JetStream bool
	// Configure, if it is set, may change anything else of the server whenever that starts: TLS, accounts, users.
	Configure func(*server.Options)
	// Logger gets what the server says, without its debugging; nil: nobody does.
	Logger *slog.Logger

	tune   func(*server.Options) // nil: nothing else
	routes []*port               // those of its cluster, which are held as long as it is
}

// NATS is a real nats-server that runs within this process. It handles no signals. Its methods may be called from any
// goroutine.
type NATS struct {
	options NATSOptions
	port    *port // that of the options; nil if it is the caller's

	mu     sync.Mutex
	dir    string // JetStream's, "" if there is none
	server *server.Server
	set    *server.Options // the server's, as it was started or reloaded
}

// StartNATS starts a nats-server and returns once it accepts connections.
func StartNATS(options NATSOptions) (*NATS, error) {
	if options.Port != 0 {
		n := &NATS{options: options}
		if err := n.start(); err != nil {
			return nil, fmt.Errorf("start nats: %w", errors.Join(err, n.removeDir()))
		}
		return n, nil
	}
	for attempt := 1; ; attempt++ {
		port, err := freePort()
		if err != nil {
			return nil, fmt.Errorf("start nats: %w", err)
		}
		options.Port = port.number
		n, err := StartNATS(options)
		if err == nil {
			n.port = port
			return n, nil
		}
		port.release()
		if !errors.Is(err, errPortTaken) || attempt == portAttempts {
			return nil, err
		}
	}
}

// URL returns the server's address as a nats:// URL. It stays the same over restarts.
func (n *NATS) URL() string { return "nats://" + address(n.options.Port) }

// Stop closes all connections, ends the server and removes its files. To stop a stopped server is no error. Restart
// may start it again, with nothing.
func (n *NATS) Stop() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.end()
	return n.removeDir()
}

// Restart closes all connections, ends the server, if it runs, and starts it again on the same port. JetStream keeps
// what it has stored.
func (n *NATS) Restart() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.end()
	if err := n.start(); err != nil {
		return fmt.Errorf("restart nats: %w", err)
	}
	return nil
}

// Reload gives the running server other settings, as "nats-server --signal reload" does, until it is restarted.
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

func (n *NATS) removeDir() error {
	if n.dir == "" {
		return nil
	}
	if err := os.RemoveAll(n.dir); err != nil {
		return fmt.Errorf("remove data of nats: %w", err)
	}
	n.dir = ""
	return nil
}

// start launches the server. The caller holds n.mu; no server is running.
func (n *NATS) start() error {
	if n.options.JetStream && n.dir == "" {
		dir, err := os.MkdirTemp("", "offpath-nats-")
		if err != nil {
			return fmt.Errorf("make directory: %w", err)
		}
		n.dir = dir
	}
	options := &server.Options{
		Host:      host,
		Port:      n.options.Port,
		JetStream: n.options.JetStream,
		StoreDir:  n.dir,
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
