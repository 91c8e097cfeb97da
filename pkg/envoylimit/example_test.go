package envoylimit_test

import (
	"context"
	"fmt"
	"log"
	"net"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/envoylimit"
	"github.com/offpath-io/offpath/pkg/rules/envoyrules"
)

// A rate limit service for Envoy in five lines, with a file of envoyproxy/ratelimit. The command
// checker does this with --grpc.
func Example() {
	set, err := envoyrules.Import([]byte(`
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: day, requests_per_unit: 1}
`))
	if err != nil {
		log.Fatal(err)
	}
	checker, err := check.New(check.Options{Rules: set})
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}

	server := grpc.NewServer(envoylimit.ServerOptions()...)
	envoylimit.Register(server, envoylimit.New(checker, envoylimit.Options{}))
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()

	// What Envoy does:
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	envoy := ratelimitv3.NewRateLimitServiceClient(conn)
	for range 2 {
		answer, err := envoy.ShouldRateLimit(context.Background(), &ratelimitv3.RateLimitRequest{
			Domain:      "shop",
			Descriptors: []*ratelimit.RateLimitDescriptor{{Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: "user", Value: "kristie"}}}},
		})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(answer.OverallCode)
	}
	// Output:
	// OK
	// OVER_LIMIT
}
