package envoyquota_test

import (
	"context"
	"fmt"
	"log"
	"net"

	quotapb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/envoyquota"
	"github.com/offpath-io/offpath/pkg/rules"
)

// The service on a gRPC server of one's own, and what an Envoy is answered that reports the first
// request of a bucket.
func Example() {
	set, err := rules.Parse([]byte("rules: [{name: per-user, key: [user], limit: 100/second}]"))
	if err != nil {
		log.Fatal(err)
	}
	checker, err := check.New(check.Options{Rules: set})
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	quotas := envoyquota.New(checker, envoyquota.Options{})
	quotas.Register(server)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go server.Serve(listener)
	defer server.GracefulStop()
	defer quotas.Close() // streams last; this ends them

	action := firstReport(listener.Addr().String(), map[string]string{"user": "kristie"})
	bucket := action.GetQuotaAssignmentAction().GetRateLimitStrategy().GetTokenBucket()
	fmt.Println(bucket.GetTokensPerFill().GetValue(), "per", bucket.GetFillInterval().AsDuration())
	// Output: 100 per 1s
}

// firstReport is Envoy's part.
func firstReport(address string, bucket map[string]string) *quotapb.RateLimitQuotaResponse_BucketAction {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	stream, err := quotapb.NewRateLimitQuotaServiceClient(conn).StreamRateLimitQuotas(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	if err := stream.Send(&quotapb.RateLimitQuotaUsageReports{
		Domain: "shop",
		BucketQuotaUsages: []*quotapb.RateLimitQuotaUsageReports_BucketQuotaUsage{{
			BucketId: &quotapb.BucketId{Bucket: bucket}, NumRequestsAllowed: 1,
		}},
	}); err != nil {
		log.Fatal(err)
	}
	answer, err := stream.Recv()
	if err != nil {
		log.Fatal(err)
	}
	return answer.BucketAction[0]
}
