package httpload

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

// serveGRPC starts a real server for the length of a test.
func serveGRPC(t *testing.T, service ratelimitv3.RateLimitServiceServer, options ...grpc.ServerOption) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	s := grpc.NewServer(options...)
	ratelimitv3.RegisterRateLimitServiceServer(s, service)
	go func() { _ = s.Serve(listener) }()
	t.Cleanup(s.Stop)
	return listener.Addr().String()
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

// Every request is sent once, with what the seed says, over as many channels as asked for.
func TestEveryRequestIsSentOnceOverGRPC(t *testing.T) {
	var mu sync.Mutex
	got := make(map[string]int)
	var opened connections
	address := serveGRPC(t, scripted{answer: func(r *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
		mu.Lock()
		defer mu.Unlock()
		var b strings.Builder
		for _, d := range r.Descriptors {
			for _, e := range d.Entries {
				b.WriteString(e.Key + "=" + e.Value + ",")
			}
		}
		got[r.Domain+" "+b.String()]++
		return code(ratelimitv3.RateLimitResponse_OK), nil
	}}, grpc.StatsHandler(&opened))
	o := Options{
		GRPC: address, Domain: "shop", Descriptor: []Entry{{"user", "u{key}"}, {"path", "/"}}, Channels: 3,
		Rate: 2000, Warmup: 50 * time.Millisecond, Duration: 150 * time.Millisecond, Connections: 8, Keys: 20, Seed: 4,
		Timeout: time.Minute,
	}
	r, err := Run(t.Context(), o, nil)
	must(t, err)
	isSentOnce(t, got, r.Options, func(key int) string { return fmt.Sprintf("shop user=u%d,path=/,", key) })
	if len(got) != 20 || r.Sent != 300 || r.OK200 != 300 || opened.n.Load() != 3 {
		t.Errorf("%d kinds, %d connections, %+v", len(got), opened.n.Load(), r)
	}
}

// What is no decision is counted as what it would have been over HTTP, and what is no answer as an error.
func TestCountsOverGRPC(t *testing.T) {
	var requests atomic.Int64
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
	}})
	isCounted(t, Options{GRPC: address}, [2]int{400, 500}, `answered 400 Bad Request: "InvalidArgument: no domain"`)
}

// A server that holds on to requests is given up on.
func TestTimeoutOverGRPC(t *testing.T) {
	free := make(chan struct{})
	var requests atomic.Int64
	address := serveGRPC(t, scripted{answer: func(*ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
		if requests.Add(1) > 1 {
			<-free
		}
		return code(ratelimitv3.RateLimitResponse_OK), nil
	}})
	defer close(free)
	o := Options{GRPC: address, Rate: 100, Duration: 50 * time.Millisecond, Timeout: 100 * time.Millisecond}
	r, err := Run(t.Context(), o, nil)
	for err != nil && o.Timeout < time.Minute { // too short for the probe, on this machine
		requests.Store(0)
		o.Timeout *= 4
		r, err = Run(t.Context(), o, nil)
	}
	if err != nil || r.Errors != 5 || r.Sent != 5 || !strings.Contains(r.FirstError, "DeadlineExceeded") {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestNoServiceOverGRPC(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	closed := listener.Addr().String()
	listener.Close()
	for address, want := range map[string]string{
		closed: "connection refused",
		serveGRPC(t, ratelimitv3.UnimplementedRateLimitServiceServer{}): "answered 501 Not Implemented",
	} {
		_, err := Run(t.Context(), Options{GRPC: address, Rate: 10}, nil)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "tart one: go run ./cmd/checker") {
			t.Errorf("%v, want %q and what to start", err, want)
		}
	}
}
