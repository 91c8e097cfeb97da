package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"

	quotapb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
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

// healthNames are whose health is told: that of all, of the service, and of what envoyproxy/ratelimit calls itself.
var healthNames = []string{"", envoylimit.Name, "ratelimit"}

// grpcDoor returns the parts of the gRPC door on listener: Envoy's rate limit service and its quota service, health, which follows the
// checker's readiness, and reflection. What the quota service does is registered.
func grpcDoor(c config, listener net.Listener, l *living, registry prometheus.Registerer, leaving *daemon.Leaving, log *slog.Logger) []daemon.Part {
	options := append(envoylimit.ServerOptions(), grpc.MaxRecvMsgSize(envoyquota.MaxMessage))
	server, state := grpc.NewServer(append(options, daemon.Credentials(listener)...)...), health.NewServer()
	quotas := &quotaDoor{living: l}
	registry.MustRegister(quotaMetrics{quotas.stats})
	quotapb.RegisterRateLimitQuotaServiceServer(server, quotas)
	envoylimit.Register(server, &envoyDoor{living: l, options: envoylimit.Options{Headers: c.envoyHeaders, Acquire: c.acquire}})
	grpc_health_v1.RegisterHealthServer(server, state)
	reflection.Register(server)
	leaving.Announce(state.Shutdown)
	for _, name := range healthNames {
		state.SetServingStatus(name, grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	}
	ready := daemon.Part{Name: "gRPC health", Run: func(ctx context.Context) error {
		select {
		case <-l.made: // rules that are in force never go again
			state.Resume()
		case <-ctx.Done():
		}
		<-ctx.Done()
		return nil
	}}
	return []daemon.Part{ready, daemon.GRPC("gRPC door", listener, server, func() {
		state.Shutdown()
		quotas.leave()
	}, log)}
}

// envoyDoor answers Envoy as soon as there is a checker.
type envoyDoor struct {
	living  *living
	options envoylimit.Options
	once    sync.Once
	service *envoylimit.Service
}

// ShouldRateLimit answers one request.
func (e *envoyDoor) ShouldRateLimit(ctx context.Context, r *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
	at := e.living.at.Load()
	if at == nil {
		return nil, status.Error(codes.Unavailable, "there are no rules yet")
	}
	e.once.Do(func() { e.service = envoylimit.New(at.checker, e.options) })
	return e.service.ShouldRateLimit(ctx, r)
}

// quotaDoor serves Envoys that decide by quotas as soon as there is a checker.
type quotaDoor struct {
	quotapb.UnimplementedRateLimitQuotaServiceServer
	living  *living
	once    sync.Once
	service atomic.Pointer[envoyquota.Server] // nil also when the door is left before anybody has come
}

// StreamRateLimitQuotas serves one Envoy.
func (q *quotaDoor) StreamRateLimitQuotas(stream quotapb.RateLimitQuotaService_StreamRateLimitQuotasServer) error {
	at := q.living.at.Load()
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
func (q *quotaDoor) leave() {
	q.once.Do(func() {})
	if service := q.service.Load(); service != nil {
		service.Close()
	}
}

// stats are the service's, empty while there is none.
func (q *quotaDoor) stats() envoyquota.Stats {
	if service := q.service.Load(); service != nil {
		return service.Stats()
	}
	return envoyquota.Stats{}
}

// noGRPC is what --grpc says for none.
const noGRPC = "none"

func readEnvoyHeaders(text string) (envoylimit.Headers, error) {
	for _, kind := range []envoylimit.Headers{envoylimit.NoHeaders, envoylimit.RateLimitHeaders, envoylimit.XRateLimitHeaders} {
		if kind.String() == text {
			return kind, nil
		}
	}
	return 0, fmt.Errorf("%q: want none, ratelimit or x-ratelimit", text)
}
