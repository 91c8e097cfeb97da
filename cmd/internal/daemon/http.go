package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Bounds on what one client may hold of a server.
const (
	headerTimeout = 5 * time.Second
	readTimeout   = 10 * time.Second
	writeTimeout  = 30 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 16 << 10
	// stopTimeout is how long requests in hand have when a server stops.
	stopTimeout = 5 * time.Second
)

// HTTP returns the part that serves handler on listener. When it is told to stop it accepts nothing
// more, finishes what has been asked within 5 s, and cuts off the rest.
func HTTP(name string, listener net.Listener, handler http.Handler, log *slog.Logger) Part {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug), // what clients do wrong
	}
	return Part{Name: name, Run: func(ctx context.Context) error {
		finished, err := serve(ctx, server, listener, stopTimeout)
		if !finished {
			log.Warn("cut off connections that were still open", "part", name)
		}
		return err
	}}
}

// serve returns whether all connections had come to an end in time. One that a client keeps open
// without asking anything is no reason for an error.
func serve(ctx context.Context, server *http.Server, listener net.Listener, grace time.Duration) (finished bool, err error) {
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return true, err
	case <-ctx.Done():
	}
	// Not ctx: it is done already.
	deadline, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	err = server.Shutdown(deadline)
	finished = !errors.Is(err, context.DeadlineExceeded)
	if !finished {
		err = server.Close()
	}
	<-served // http.ErrServerClosed
	return finished, err
}

// Listen opens a TCP listener.
func Listen(address string) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	return listener, nil
}

// URL returns the URL at which a client on this machine reaches the listener.
func URL(listener net.Listener) string {
	address := listener.Addr().String()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "http://" + address
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port)
}
