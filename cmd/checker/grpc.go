package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

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

// healthNames are what health is told of: everything, the service, and what envoyproxy/ratelimit
// calls itself.
var healthNames = []string{"", envoylimit.Name, "ratelimit"}

// grpcParts serve gRPC: Envoy's rate limit service and its quota service, health, which follows the
// checker's readiness, and reflection.
func (p *process) grpcParts() []daemon.Part {
	listener := p.listeners.grpc
	options := append(envoylimit.ServerOptions(), grpc.MaxRecvMsgSize(envoyquota.MaxMessage))
	options = append(options, daemon.Credentials(listener)...)
	server, state := grpc.NewServer(options...), health.NewServer()
	quotas := &quotaAdapter{adapters: &p.adapters}
	p.registry.MustRegister(quotaMetrics{quotas.stats})
	quotapb.RegisterRateLimitQuotaServiceServer(server, quotas)
	envoylimit.Register(server, &envoyAdapter{
		adapters: &p.adapters,
		options:  envoylimit.Options{Headers: p.envoyHeaders, Acquire: p.acquire},
	})
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
		quotas.leave()
	}, p.log)}
}

// envoyAdapter answers Envoy as soon as there is a checker.
type envoyAdapter struct {
	adapters *adapters
	options  envoylimit.Options
	once     sync.Once
	service  *envoylimit.Service
}

// ShouldRateLimit answers one request.
func (e *envoyAdapter) ShouldRateLimit(
	ctx context.Context, r *ratelimitv3.RateLimitRequest,
) (*ratelimitv3.RateLimitResponse, error) {
	at := e.adapters.serving.Load()
	if at == nil {
		return nil, status.Error(codes.Unavailable, "there are no rules yet")
	}
	e.once.Do(func() { e.service = envoylimit.New(at.checker, e.options) })
	return e.service.ShouldRateLimit(ctx, r)
}

// quotaAdapter serves Envoys that decide by quotas as soon as there is a checker.
type quotaAdapter struct {
	quotapb.UnimplementedRateLimitQuotaServiceServer
	adapters *adapters
	once     sync.Once
	service  atomic.Pointer[envoyquota.Server] // nil too if it is left before anybody has come
}

// StreamRateLimitQuotas serves one Envoy.
func (q *quotaAdapter) StreamRateLimitQuotas(
	stream quotapb.RateLimitQuotaService_StreamRateLimitQuotasServer,
) error {
	at := q.adapters.serving.Load()
	if at == nil {
		return status.Error(codes.Unavailable, "there are no rules yet")
	}
	q.once.Do(func() { q.service.Store(envoyquota.New(at.checker, envoyquota.Options{})) })
	service := q.service.Load()
	if service == nil {
		return status.Error(codes.Unavailable, "the server stops")
	}
	return service.StreamRateLimitQuotas(stream)
}

// leave ends the streams, which would last otherwise. After it, none comes to last.
func (q *quotaAdapter) leave() {
	q.once.Do(func() {})
	if service := q.service.Load(); service != nil {
		service.Close()
	}
}

// stats are the service's, empty while there is none.
func (q *quotaAdapter) stats() envoyquota.Stats {
	if service := q.service.Load(); service != nil {
		return service.Stats()
	}
	return envoyquota.Stats{}
}

// noGRPC is what --grpc says for none.
const noGRPC = "none"

func readEnvoyHeaders(text string) (envoylimit.Headers, error) {
	for _, kind := range []envoylimit.Headers{
		envoylimit.NoHeaders, envoylimit.RateLimitHeaders, envoylimit.XRateLimitHeaders,
	} {
		if kind.String() == text {
			return kind, nil
		}
	}
	return 0, fmt.Errorf("%q: want none, ratelimit or x-ratelimit", text)
}
