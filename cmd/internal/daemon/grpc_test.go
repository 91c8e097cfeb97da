package daemon

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
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

// startSlow runs a slow service with somebody asking; stop ends it, and what was answered and
// whether it finished come from the channels.
func startSlow(t *testing.T, grace time.Duration, leaving func()) (s *slow, stop func(), answered chan error, finished chan bool) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	s = &slow{asked: make(chan struct{}), release: make(chan struct{})}
	server := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, s)
	client := grpc_health_v1.NewHealthClient(daemontest.DialGRPC(t, listener.Addr().String()))
	ctx, stop := context.WithCancel(t.Context())
	finished, answered = make(chan bool, 1), make(chan error, 1)
	go func() {
		done, err := serveGRPC(ctx, server, listener, leaving, grace)
		if err != nil {
			t.Error(err)
		}
		finished <- done
	}()
	go func() {
		_, err := client.Check(context.WithoutCancel(t.Context()), new(grpc_health_v1.HealthCheckRequest))
		answered <- err
	}()
	<-s.asked
	return s, stop, answered, finished
}

func TestGRPCFinishesRequests(t *testing.T) {
	left := make(chan struct{})
	s, stop, answered, finished := startSlow(t, time.Minute, func() { close(left) })
	stop()
	<-left // while the request is in hand
	close(s.release)
	if err := <-answered; err != nil {
		t.Errorf("the request in hand: %v", err)
	}
	if !<-finished {
		t.Error("it was cut off")
	}
}

func TestGRPCCutsOffWhoStays(t *testing.T) {
	_, stop, answered, finished := startSlow(t, time.Millisecond, func() {})
	stop()
	if <-finished {
		t.Error("it finished what nobody answers")
	}
	if err := <-answered; status.Code(err) != codes.Unavailable && status.Code(err) != codes.Canceled {
		t.Errorf("%v", err)
	}
}

// TestGRPCStopsBeforeItBegins: who is told to stop while it starts has nothing to complain of.
func TestGRPCStopsBeforeItBegins(t *testing.T) {
	for range 200 {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if finished, err := serveGRPC(ctx, grpc.NewServer(), listener, func() {}, time.Minute); !finished || err != nil {
			t.Fatalf("finished %v, error %v", finished, err)
		}
	}
}
