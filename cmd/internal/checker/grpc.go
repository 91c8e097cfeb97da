package checker

import (
	"context"

	quotapb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	"github.com/offpath-io/offpath/cmd/internal/daemon"
	"github.com/offpath-io/offpath/pkg/envoylimit"
	"github.com/offpath-io/offpath/pkg/envoyquota"
)

// healthNames are the services that have a health: all, this one, and the name that
// envoyproxy/ratelimit has.
var healthNames = []string{"", envoylimit.Name, "ratelimit"}

// grpcParts serve gRPC: Envoy's rate limit service and its quota service, health, which follows the
// checker's readiness, and reflection.
func (p *process) grpcParts() []daemon.Part {
	listener := p.listeners.grpc
	options := append(envoylimit.ServerOptions(), grpc.MaxRecvMsgSize(envoyquota.MaxMessage))
	options = append(options, daemon.Credentials(listener)...)
	options = append(options, countGRPC(p.requests)...)
	server, state := grpc.NewServer(options...), health.NewServer()
	envoy := envoyAdapter{adapters: &p.adapters}
	p.registry.MustRegister(quotaMetrics{envoy.stats})
	quotapb.RegisterRateLimitQuotaServiceServer(server, envoy)
	envoylimit.Register(server, envoy)
	grpc_health_v1.RegisterHealthServer(server, state)
	reflection.Register(server)
	p.leaving.Announce(state.Shutdown)
	for _, name := range healthNames {
		state.SetServingStatus(name, grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	}
	ready := daemon.Part{Name: "gRPC health", Run: func(ctx context.Context) error {
		select {
		case <-p.adapters.made: // rules that are in force never go again
			state.Resume()
		case <-ctx.Done():
		}
		<-ctx.Done()
		return nil
	}}
	return []daemon.Part{ready, daemon.GRPC("gRPC API", listener, server, func() {
		state.Shutdown()
		envoy.leave()
	}, p.log)}
}

// envoyAdapter serves Envoys as soon as there is a checker.
type envoyAdapter struct {
	quotapb.UnimplementedRateLimitQuotaServiceServer
	*adapters
}

// ShouldRateLimit answers one request.
func (e envoyAdapter) ShouldRateLimit(
	ctx context.Context, r *ratelimitv3.RateLimitRequest,
) (*ratelimitv3.RateLimitResponse, error) {
	at := e.serving.Load()
	if at == nil {
		return nil, status.Error(codes.Unavailable, "there are no rules yet")
	}
	return at.envoy.ShouldRateLimit(ctx, r)
}

// StreamRateLimitQuotas serves one Envoy that decides by quotas.
func (e envoyAdapter) StreamRateLimitQuotas(
	stream quotapb.RateLimitQuotaService_StreamRateLimitQuotasServer,
) error {
	switch at := e.serving.Load(); {
	case at == nil:
		return status.Error(codes.Unavailable, "there are no rules yet")
	case e.leaving.Load():
		return status.Error(codes.Unavailable, "the server stops")
	default:
		return at.quotas.StreamRateLimitQuotas(stream)
	}
}

// leave ends the streams, which would last otherwise. A stream that comes later ends at once: it
// looks at leaving after serving, as leave does the other way round.
func (e envoyAdapter) leave() {
	e.leaving.Store(true)
	if at := e.serving.Load(); at != nil {
		at.quotas.Close()
	}
}

// stats are those of quotas, empty while there is no checker.
func (e envoyAdapter) stats() envoyquota.Stats {
	if at := e.serving.Load(); at != nil {
		return at.quotas.Stats()
	}
	return envoyquota.Stats{}
}

// noGRPC is the value of --grpc for none.
const noGRPC = "none"
