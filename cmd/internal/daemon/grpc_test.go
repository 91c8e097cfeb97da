package daemon

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/offpath-io/offpath/internal/testing/grpctest"
)

// slow is a service that answers when it is told to.
type slow struct {
	grpc_health_v1.UnimplementedHealthServer
	asked, release chan struct{}
}

func (s *slow) Check(ctx context.Context, _ *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	close(s.asked)
	select {
	case <-s.release:
	case <-ctx.Done():
	}
	return new(grpc_health_v1.HealthCheckResponse), ctx.Err()
}

// TestGRPCFinishesRequests: a stop first says that it leaves, and then waits for a request in hand
// until the grace is over.
func TestGRPCFinishesRequests(t *testing.T) {
	for grace, finishes := range map[time.Duration]bool{time.Minute: true, time.Millisecond: false} {
		listener, err := Listen("127.0.0.1:0")
		must(t, err)
		s := &slow{asked: make(chan struct{}), release: make(chan struct{})}
		server := grpc.NewServer()
		grpc_health_v1.RegisterHealthServer(server, s)
		client := grpc_health_v1.NewHealthClient(grpctest.Dial(t, listener.Addr().String()))
		answered := make(chan error, 1)
		go func() {
			_, err := client.Check(t.Context(), new(grpc_health_v1.HealthCheckRequest))
			answered <- err
		}()
		ctx, stop := context.WithCancel(t.Context())
		go func() { <-s.asked; stop() }()
		finished, err := serveGRPC(ctx, server, listener, func() {
			if finishes { // the request is in hand
				close(s.release)
			}
		}, grace)
		code := status.Code(<-answered)
		cutOff := code == codes.Unavailable || code == codes.Canceled
		if err != nil || finished != finishes || cutOff == finishes || finishes && code != codes.OK {
			t.Errorf("within %v: finished: %v, %v; answered: %v", grace, finished, err, code)
		}
	}
}

// TestGRPCStopsBeforeItBegins: who is told to stop while it starts has nothing to complain of.
func TestGRPCStopsBeforeItBegins(t *testing.T) {
	for range 200 {
		listener, err := Listen("127.0.0.1:0")
		must(t, err)
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if finished, err := serveGRPC(ctx, grpc.NewServer(), listener, func() {}, time.Minute); !finished || err != nil {
			t.Fatalf("finished %v, error %v", finished, err)
		}
	}
}
