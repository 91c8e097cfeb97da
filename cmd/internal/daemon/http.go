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
	// stopTimeout is how long open requests have when a server stops.
	stopTimeout = 5 * time.Second
)

// HTTP returns the part that serves handler on listener, with TLS if the listener has it. Told to
// stop, it accepts no more connections, finishes open requests within 5 s, and cuts off the rest.
// Each of tune may change the server's own bounds.
func HTTP(
	name string, listener net.Listener, handler http.Handler, log *slog.Logger,
	tune ...func(*http.Server),
) Part {
	return httpPart(name, listener, handler, log, nil, tune)
}

// lingering closes the listener and keeps answering on open connections for a while, until ctx is
// done at most.
type lingering func(ctx context.Context, listener net.Listener)

// httpPart is HTTP that calls linger, if it is not nil, before the server stops.
func httpPart(
	name string, listener net.Listener, handler http.Handler, log *slog.Logger, linger lingering,
	tune []func(*http.Server),
) Part {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug), // errors of clients
	}
	server.TLSConfig = configOf(listener)
	for _, change := range tune {
		change(server)
	}
	return Part{Name: name, Run: func(ctx context.Context) error {
		finished, err := serve(ctx, server, listener, linger, stopTimeout)
		if !finished {
			log.Warn("cut off connections that were still open", "part", name)
		}
		return err
	}}
}

// serve returns whether all connections ended in time; grace includes the time for lingering. A
// connection that a client keeps open without a request is no error.
func serve(
	ctx context.Context, server *http.Server, listener net.Listener, linger lingering,
	grace time.Duration,
) (finished bool, err error) {
	served := make(chan error, 1)
	go func() {
		if server.TLSConfig != nil {
			served <- server.ServeTLS(listener, "", "")
			return
		}
		served <- server.Serve(listener)
	}()
	select {
	case err := <-served:
		return true, err
	case <-ctx.Done():
	}
	// Not ctx: it is done already.
	deadline, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if linger != nil {
		linger(deadline, listener)
	}
	err = server.Shutdown(deadline)
	finished = !errors.Is(err, context.DeadlineExceeded)
	if !finished {
		err = server.Close()
	}
	if errors.Is(err, net.ErrClosed) { // linger closed the listener, and Serve may not have noticed yet
		err = nil
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
	scheme := "http://"
	if configOf(listener) != nil {
		scheme = "https://"
	}
	address := listener.Addr().String()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return scheme + address
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return scheme + net.JoinHostPort(host, port)
}
