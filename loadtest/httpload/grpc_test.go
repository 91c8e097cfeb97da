package httpload

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/offpath-io/offpath/internal/testing/grpctest"
)

// serveGRPC starts a real server for the length of a test.
func serveGRPC(t *testing.T, service ratelimitv3.RateLimitServiceServer, options ...grpc.ServerOption) (address string) {
	t.Helper()
	s := grpc.NewServer(options...)
	ratelimitv3.RegisterRateLimitServiceServer(s, service)
	address, _ = grpctest.Serve(t, s, "127.0.0.1:0")
	return address
}

// scripted answers as a function says.
type scripted struct {
	ratelimitv3.UnimplementedRateLimitServiceServer
	answer func(*ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error)
}

func (s scripted) ShouldRateLimit(_ context.Context, r *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
	return s.answer(r)
}

func code(c ratelimitv3.RateLimitResponse_Code) *ratelimitv3.RateLimitResponse {
	return &ratelimitv3.RateLimitResponse{OverallCode: c}
}

// connections counts a server's.
type connections struct{ n atomic.Int64 }

func (c *connections) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (c *connections) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (c *connections) HandleRPC(context.Context, stats.RPCStats)                         {}
func (c *connections) HandleConn(_ context.Context, s stats.ConnStats) {
	if _, begins := s.(*stats.ConnBegin); begins {
		c.n.Add(1)
	}
}

// What is no decision is counted as what it would have been over HTTP, and what is no answer as an
// error. Requests share as many channels as asked for.
func TestCountsOverGRPC(t *testing.T) {
	var requests atomic.Int64
	var opened connections
	address := serveGRPC(t, scripted{answer: func(*ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
		switch n := requests.Add(1); {
		case n == 1 || n%5 == 0: // the first is the probe
			return code(ratelimitv3.RateLimitResponse_OK), nil
		case n%5 == 1:
			return code(ratelimitv3.RateLimitResponse_OVER_LIMIT), nil
		case n%5 == 2:
			return nil, status.Error(codes.InvalidArgument, "no domain")
		case n%5 == 3:
			return code(ratelimitv3.RateLimitResponse_UNKNOWN), nil
		}
		return nil, status.Error(codes.Unavailable, "going away")
	}}, grpc.StatsHandler(&opened))
	isCounted(t, Options{GRPC: address, Channels: 3}, [2]int{400, 500}, `answered 400 Bad Request: "InvalidArgument: no domain"`)
	if n := opened.n.Load(); n != 3 {
		t.Errorf("%d connections, want 3", n)
	}
}

// Without a service there is no load, but advice. One that holds on to requests is given up on.
func TestNoServiceOverGRPC(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer silent.Close()
	for _, test := range []struct {
		address, want string
		timeout       time.Duration
	}{
		{"127.0.0.1:1", "connection refused", time.Minute}, // a port that no other server gets
		{silent.Addr().String(), "DeadlineExceeded", 100 * time.Millisecond},
		{serveGRPC(t, ratelimitv3.UnimplementedRateLimitServiceServer{}), "answered 501 Not Implemented", time.Minute},
	} {
		_, err := Run(t.Context(), Options{GRPC: test.address, Rate: 10, Timeout: test.timeout}, nil)
		if err == nil || !strings.Contains(err.Error(), test.want) ||
			!strings.Contains(err.Error(), "tart one: go run ./cmd/offpath demo") {
			t.Errorf("%v, want %q and what to start", err, test.want)
		}
	}
}
