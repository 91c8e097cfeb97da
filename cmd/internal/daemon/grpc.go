package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"google.golang.org/grpc"
)

// GRPC returns the part that serves on listener. Told to stop, it calls leaving, accepts no more
// requests, finishes open ones within 5 s, and cuts off the rest.
func GRPC(
	name string, listener net.Listener, server *grpc.Server, leaving func(), log *slog.Logger,
) Part {
	return Part{Name: name, Run: func(ctx context.Context) error {
		finished, err := serveGRPC(ctx, server, listener, leaving, stopTimeout)
		if !finished {
			log.Warn("cut off requests that were still open", "part", name)
		}
		return err
	}}
}

// serveGRPC returns whether all requests had come to an end in time.
func serveGRPC(
	ctx context.Context, server *grpc.Server, listener net.Listener, leaving func(),
	grace time.Duration,
) (finished bool, err error) {
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return true, err
	case <-ctx.Done():
	}
	leaving()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		server.GracefulStop()
	}()
	select {
	case <-stopped:
		finished = true
	case <-time.After(grace):
		server.Stop()
		<-stopped
	}
	err = <-served
	if errors.Is(err, grpc.ErrServerStopped) { // it was told to stop before it had begun
		err = nil
	}
	return finished, err
}
