package checker

import (
	"fmt"
	"testing"

	quotapb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestRequestsOfEachAPI are counted by status, and timed, and no API's are counted as another's.
func TestRequestsOfEachAPI(t *testing.T) {
	d, _ := startProxy(t)
	status200 := map[string]int{"http": 2, "forward_auth": 1, "proxy": 2}
	for range status200["http"] {
		ask(t, d, kristie)
	}
	get(t, 200, "GET", authOf(d))
	for range status200["proxy"] {
		get(t, 200, "GET", proxyOf(d))
	}
	conn := grpcOf(t, d)
	askEnvoy(t, conn, letter("ann", 0, 0))
	healthOf(t.Context(), conn, "")
	reflected(t, conn)
	stream, err := quotapb.NewRateLimitQuotaServiceClient(conn).StreamRateLimitQuotas(t.Context())
	must(t, err)
	must(t, stream.Send(new(quotapb.RateLimitQuotaUsageReports))) // names no domain
	if _, err := stream.Recv(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a report without a domain: %v", err)
	}
	counted := func(api, code, n string) {
		t.Helper()
		d.AwaitMetric(fmt.Sprintf(`offpath_api_requests_total{api=%q,code=%q}`, api, code), n)
	}
	for api, n := range status200 {
		counted(api, "200", fmt.Sprint(n))
		d.AwaitMetric(fmt.Sprintf(`offpath_api_request_seconds_count{api=%q}`, api), fmt.Sprint(n))
	}
	counted("envoy_rls", "OK", "1")
	d.AwaitMetric(`offpath_api_request_seconds_count{api="envoy_rls"}`, "1")
	counted("envoy_quota", "InvalidArgument", "1")
	if d.Metric(`offpath_api_requests_total{api="admin",code="200"}`) == "" {
		t.Error("requests for metrics are not counted")
	}
}
