package envoylimit

import (
	"strings"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/offpath-io/offpath/internal/testing/grpctest"
	"github.com/offpath-io/offpath/internal/testing/rulestest"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/check/checktest"
)

// Who can be asked.
var (
	_ Checker = (*check.Checker)(nil)
	_ Checker = (*checktest.Checker)(nil)
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
var newChecker = rulestest.Checker

// serve runs a service on a port of its own, and returns its address.
func serve(t testing.TB, service ratelimitv3.RateLimitServiceServer, options ...grpc.ServerOption) string {
	t.Helper()
	server := grpc.NewServer(options...)
	Register(server, service)
	address, _ := grpctest.Serve(t, server, "127.0.0.1:0")
	return address
}

// client asks a service over a socket.
func client(t testing.TB, service *Service) ratelimitv3.RateLimitServiceClient {
	t.Helper()
	return ratelimitv3.NewRateLimitServiceClient(grpctest.Dial(t, serve(t, service, ServerOptions()...)))
}

// newDescriptor is one of entries, written key=value.
func newDescriptor(entries ...string) *ratelimit.RateLimitDescriptor {
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
