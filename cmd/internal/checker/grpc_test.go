package checker

import (
	"context"
	"fmt"
	"strings"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	quotapb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/grpctest"
	"github.com/offpath-io/offpath/pkg/envoylimit"
)

// theirs is a configuration as envoyproxy/ratelimit has it.
const theirs = `
domain: mail
descriptors:
  - key: kind
    value: letter
    descriptors:
      - key: to
        rate_limit: {unit: day, requests_per_unit: 5}
`

func grpcOf(t *testing.T, d *daemontest.Daemon) *grpc.ClientConn {
	t.Helper()
	return grpctest.Dial(t, d.Find(`gRPC API +([^ ,]+),`))
}

// letter asks for letters to somebody, with a limit of their own if that is above 0.
func letter(to string, hits, limit uint32) *ratelimitv3.RateLimitRequest {
	d := &ratelimit.RateLimitDescriptor{
		Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: "kind", Value: "letter"}, {Key: "to", Value: to}},
	}
	if limit > 0 {
		d.Limit = &ratelimit.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: limit, Unit: typev3.RateLimitUnit_DAY}
	}
	return &ratelimitv3.RateLimitRequest{Domain: "mail", HitsAddend: hits, Descriptors: []*ratelimit.RateLimitDescriptor{d}}
}

func askEnvoy(t *testing.T, conn *grpc.ClientConn, r *ratelimitv3.RateLimitRequest) *ratelimitv3.RateLimitResponse {
	t.Helper()
	answer, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), r)
	must(t, err)
	return answer
}

func healthOf(ctx context.Context, conn *grpc.ClientConn, service string) string {
	answer, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: service})
	if err != nil {
		return err.Error()
	}
	return answer.Status.String()
}

// TestGRPCDoor starts a checker with a configuration of envoyproxy/ratelimit, and asks it as Envoy
// would.
func TestGRPCDoor(t *testing.T) {
	d := startChecker(t, "--rules", writeFile(t, theirs), "--envoy-headers", "ratelimit")
	conn := grpcOf(t, d)
	for i := range uint32(5) {
		answer := askEnvoy(t, conn, letter("ann", 0, 0))
		if answer.OverallCode != ratelimitv3.RateLimitResponse_OK || answer.Statuses[0].LimitRemaining != 4-i {
			t.Fatalf("hit %d: %v", i+1, answer)
		}
	}
	answer := askEnvoy(t, conn, letter("ann", 0, 0))
	if answer.OverallCode != ratelimitv3.RateLimitResponse_OVER_LIMIT ||
		answer.Statuses[0].CurrentLimit.GetUnit() != ratelimitv3.RateLimitResponse_RateLimit_DAY {
		t.Errorf("the sixth: %v", answer)
	}
	h := answer.ResponseHeadersToAdd
	if len(h) != 4 || h[0].Key != "RateLimit-Limit" || h[0].Value != "5" || h[3].Key != "Retry-After" {
		t.Errorf("headers: %v", h)
	}
	awaitAnswered(d, "mail|kind=letter|to", 5)
	for _, service := range healthNames {
		equal(t, "health of "+service, healthOf(t.Context(), conn, service), "SERVING")
	}
	if got := reflected(t, conn); !strings.Contains(got, `"`+envoylimit.Name+`"`) {
		t.Errorf("reflection: %s", got)
	}
	d.MustStop()
	if len(complaints(d.Stderr())) > 0 {
		t.Errorf("complaints about nothing:\n%s", d.Stderr())
	}
}

// reflected is what reflection says when it is asked for services.
func reflected(t *testing.T, conn *grpc.ClientConn) string {
	t.Helper()
	stream, err := grpc_reflection_v1.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	must(t, err)
	list := &grpc_reflection_v1.ServerReflectionRequest_ListServices{}
	must(t, stream.Send(&grpc_reflection_v1.ServerReflectionRequest{MessageRequest: list}))
	answer, err := stream.Recv()
	must(t, err)
	must(t, stream.CloseSend())
	return fmt.Sprint(answer.GetListServicesResponse().GetService())
}

// TestOwnLimitOverTheFleet: a second checker joins the first one's NATS, as the first says that
// others may; and a limit that requests bring along holds over both, as any other does.
func TestOwnLimitOverTheFleet(t *testing.T) {
	rules := writeFile(t, theirs)
	first := startChecker(t, "--rules", rules)
	second := startChecker(t, "--rules", rules, "--nats", first.Find(`NATS +(nats://\S+)`))
	for _, d := range []*daemontest.Daemon{first, second} {
		d.AwaitMetric("offpath_fleet_checkers", "2")
	}
	const ok, over = ratelimitv3.RateLimitResponse_OK, ratelimitv3.RateLimitResponse_OVER_LIMIT
	answers := func(d *daemontest.Daemon, want ratelimitv3.RateLimitResponse_Code, to string, hits, limit uint32) {
		t.Helper()
		if answer := askEnvoy(t, grpcOf(t, d), letter(to, hits, limit)); answer.OverallCode != want {
			t.Errorf("%d to %s of %d: %v", hits, to, limit, answer)
		}
	}
	answers(second, ok, "bob", 1, 9)
	answers(first, ok, "ann", 9, 9)
	second.AwaitMetric("offpath_live_keys", "2") // the alarm tells it of ann, whom it has never seen
	answers(second, over, "ann", 1, 9)
	answers(second, ok, "ann", 1, 10)
	awaitAnswered(first, "own mail|kind|to|day", 9)
	second.MustStop() // with two hits that it has to deliver
}

// TestQuotaDoor reports usage as an Envoy that decides by quotas, and is told what is left; when
// the checker stops it ends the stream.
func TestQuotaDoor(t *testing.T) {
	d := startChecker(t, "--rules", writeFile(t, "rules: [{name: per-user, key: [user], limit: 100/day}]"))
	stream, err := quotapb.NewRateLimitQuotaServiceClient(grpcOf(t, d)).StreamRateLimitQuotas(t.Context())
	must(t, err)
	usage := &quotapb.RateLimitQuotaUsageReports_BucketQuotaUsage{
		BucketId: &quotapb.BucketId{Bucket: map[string]string{"user": "kristie"}}, NumRequestsAllowed: 100,
	}
	must(t, stream.Send(&quotapb.RateLimitQuotaUsageReports{
		Domain: "shop", BucketQuotaUsages: []*quotapb.RateLimitQuotaUsageReports_BucketQuotaUsage{usage},
	}))
	answer, err := stream.Recv()
	must(t, err)
	strategy := answer.BucketAction[0].GetQuotaAssignmentAction().GetRateLimitStrategy()
	equal(t, "100 of 100 are used", strategy.GetBlanketRule(), typev3.RateLimitStrategy_DENY_ALL)
	d.Stop()
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the stream ended with %v", err)
	}
}
