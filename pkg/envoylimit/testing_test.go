package envoylimit

import (
	"net"
	"strings"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/check/checktest"
	"github.com/offpath-io/offpath/pkg/rules/envoyrules"
)

// Who can be asked.
var (
	_ interface {
		Checker
		Acquirer
		OwnChecker
	} = (*check.Checker)(nil)
	_ interface {
		Checker
		Acquirer
	} = (*checktest.Checker)(nil)
)

const (
	ok   = ratelimitv3.RateLimitResponse_OK
	over = ratelimitv3.RateLimitResponse_OVER_LIMIT
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newChecker decides by rules in either format.
func newChecker(t testing.TB, text string) *check.Checker {
	t.Helper()
	set, err := envoyrules.Read([]byte(text))
	must(t, err)
	c, err := check.New(check.Options{Rules: set})
	must(t, err)
	return c
}

// serve runs a service on a port of its own, and returns its address.
func serve(t testing.TB, service ratelimitv3.RateLimitServiceServer, options ...grpc.ServerOption) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	server := grpc.NewServer(options...)
	Register(server, service)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

func dial(t testing.TB, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// client asks a service over a socket.
func client(t testing.TB, service *Service) ratelimitv3.RateLimitServiceClient {
	t.Helper()
	return ratelimitv3.NewRateLimitServiceClient(dial(t, serve(t, service, ServerOptions()...)))
}

// descriptor is one of entries, written key=value.
func descriptor(entries ...string) *ratelimit.RateLimitDescriptor {
	d := new(ratelimit.RateLimitDescriptor)
	for _, e := range entries {
		key, value, _ := strings.Cut(e, "=")
		d.Entries = append(d.Entries, &ratelimit.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return d
}

func withHits(d *ratelimit.RateLimitDescriptor, hits uint64) *ratelimit.RateLimitDescriptor {
	d.HitsAddend = wrapperspb.UInt64(hits)
	return d
}

func request(domain string, hits uint32, all ...*ratelimit.RateLimitDescriptor) *ratelimitv3.RateLimitRequest {
	return &ratelimitv3.RateLimitRequest{Domain: domain, HitsAddend: hits, Descriptors: all}
}

func ask(t testing.TB, c ratelimitv3.RateLimitServiceClient, r *ratelimitv3.RateLimitRequest) *ratelimitv3.RateLimitResponse {
	t.Helper()
	answer, err := c.ShouldRateLimit(t.Context(), r)
	must(t, err)
	if len(answer.Statuses) != len(r.Descriptors) {
		t.Fatalf("%d statuses of %d descriptors", len(answer.Statuses), len(r.Descriptors))
	}
	return answer
}
