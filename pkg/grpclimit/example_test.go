package grpclimit_test

import (
	"context"
	"fmt"
	"log"
	"net"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/offpath-io/offpath"
	"github.com/offpath-io/offpath/pkg/grpclimit"
)

// userOf stands for what your service knows of a call when it has checked who makes it.
func userOf(ctx context.Context) string {
	user, _ := xUser(ctx)
	return user
}

// Two an hour for each user, and three for each address.
func Example() {
	participant, err := offpath.Start(context.Background(), offpath.Options{
		NATS: "none", // or a URL, to share the limits
		Rules: `
rules:
  - {name: per-user, key: [user], limit: 2/hour}
  - {name: per-ip, key: [ip], limit: 3/hour}`,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer participant.Close()

	limit, err := grpclimit.New(participant.Checker(), grpclimit.Options{User: userOf})
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(limit.Unary()), grpc.ChainStreamInterceptor(limit.Stream()))

	client, end := startHealth(server) // a service that gRPC has ready
	defer end()
	for _, user := range []string{"kristie", "kristie", "kristie", "leo", "eve"} {
		ctx := metadata.AppendToOutgoingContext(context.Background(), "x-user", user)
		_, err := client.Check(ctx, new(grpc_health_v1.HealthCheckRequest))
		s := status.Convert(err)
		fmt.Println(user, s.Code())
		for _, detail := range s.Details() {
			if info, ok := detail.(*errdetails.ErrorInfo); ok {
				fmt.Println(info.Reason, info.Metadata["rule"], info.Metadata["limit"])
			}
		}
	}
	// Output:
	// kristie OK
	// kristie OK
	// kristie ResourceExhausted
	// QUOTA_EXCEEDED per-user 2
	// leo OK
	// eve ResourceExhausted
	// QUOTA_EXCEEDED per-ip 3
}

// startHealth serves gRPC's health service, and returns a client of it.
func startHealth(server *grpc.Server) (client grpc_health_v1.HealthClient, end func()) {
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	return grpc_health_v1.NewHealthClient(conn), func() {
		_ = conn.Close()
		server.Stop()
	}
}
