package checker

import (
	"context"
	"time"

	quotapb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/offpath-io/offpath/cmd/internal/admin"
	"github.com/offpath-io/offpath/pkg/envoylimit"
)

// Values of the label api. Health and reflection are not counted.
const (
	rlsAPI   = "envoy_rls"
	quotaAPI = "envoy_quota"
)

// countGRPC returns the options of a server whose requests are counted.
func countGRPC(requests *admin.Requests) []grpc.ServerOption {
	const rls = "/" + envoylimit.Name + "/ShouldRateLimit"
	unary := func(
		ctx context.Context, r any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler,
	) (any, error) {
		begun := time.Now()
		answer, err := next(ctx, r)
		if info.FullMethod == rls {
			requests.Observe(rlsAPI, status.Code(err).String(), time.Since(begun))
		}
		return answer, err
	}
	stream := func(
		server any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler,
	) error {
		if info.FullMethod != quotapb.RateLimitQuotaService_StreamRateLimitQuotas_FullMethodName {
			return next(server, s)
		}
		err := next(server, &reports{ServerStream: s, requests: requests})
		if code := status.Code(err); code != codes.OK {
			requests.Count(quotaAPI, code.String())
		}
		return err
	}
	return []grpc.ServerOption{grpc.UnaryInterceptor(unary), grpc.StreamInterceptor(stream)}
}

// reports counts the reports of one Envoy. A stream lasts for hours, so how long it lasts says
// nothing: what is timed is from a report's arrival until the service is ready for the next one.
type reports struct {
	grpc.ServerStream
	requests *admin.Requests
	since    time.Time // when the last report came; RecvMsg's alone, which has one caller
}

// RecvMsg receives one report.
func (s *reports) RecvMsg(m any) error {
	if !s.since.IsZero() {
		s.requests.Observe(quotaAPI, codes.OK.String(), time.Since(s.since))
	}
	err := s.ServerStream.RecvMsg(m)
	s.since = time.Now()
	return err
}
