package envoylimit

import (
	"context"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

// Name is the name of the service.
const Name = "envoy.service.ratelimit.v3.RateLimitService"

// Bounds of the resources of one client.
const (
	// MaxMessage bounds a request, in bytes.
	MaxMessage = 64 << 10
	maxHeader  = 16 << 10
	maxStreams = 1000
	// handshakeTimeout bounds a handshake.
	handshakeTimeout = 5 * time.Second
	// Clients have few, long connections. After an hour each connection is replaced.
	maxAge, maxAgeGrace = time.Hour, time.Minute
)

// patience is how long a request may take, and how long a connection may be silent. After that a
// client is pinged, and disconnected if it does not answer within the same time.
type patience struct{ request, silence time.Duration }

// RequestTimeout bounds a request, from its first byte to the last one of its answer, including the
// wait for permits.
const RequestTimeout = 10 * time.Second

// ServerOptions bound the resources of a client: the size, the number and the duration of its
// requests. Streams of other services of the server may last any time.
func ServerOptions() []grpc.ServerOption {
	return patience{request: RequestTimeout, silence: 10 * time.Second}.options()
}

func (p patience) options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(codec{encoding.GetCodecV2(proto.Name)}),
		grpc.InTapHandle(p.tap),
		grpc.MaxRecvMsgSize(MaxMessage),
		grpc.MaxHeaderListSize(maxHeader),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: p.silence, Timeout: p.silence,
			MaxConnectionAge: maxAge, MaxConnectionAgeGrace: maxAgeGrace,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime: 5 * time.Second, PermitWithoutStream: true,
		}),
	}
}

// tap sets a request's deadline before its message is read, since the client may never finish it.
// The end of the request ends its context, and so the timer. Envoy sends a shorter deadline itself.
func (p patience) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	if info.FullMethodName != fullMethod {
		return ctx, nil
	}
	if until, ok := ctx.Deadline(); ok && time.Until(until) < p.request {
		return ctx, nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.request)
	_ = cancel
	return ctx, nil
}

const fullMethod = "/" + Name + "/ShouldRateLimit"

// Register adds the service to a server. If that has the ServerOptions, a request that is not a
// message of this protocol is answered with InvalidArgument, and not with gRPC's Internal.
func Register(server grpc.ServiceRegistrar, service ratelimitv3.RateLimitServiceServer) {
	server.RegisterService(&description, service)
}

var description = grpc.ServiceDesc{
	ServiceName: Name,
	HandlerType: (*ratelimitv3.RateLimitServiceServer)(nil),
	Methods:     []grpc.MethodDesc{{MethodName: "ShouldRateLimit", Handler: handle}},
	Metadata:    "envoy/service/ratelimit/v3/rls.proto",
}

func handle(
	service any, ctx context.Context, decode func(any) error,
	interceptor grpc.UnaryServerInterceptor,
) (any, error) {
	r := received{RateLimitRequest: new(ratelimitv3.RateLimitRequest)}
	if err := decode(&r); err != nil {
		return nil, err
	}
	if r.large {
		return nil, status.Errorf(codes.ResourceExhausted,
			"a request of more than %d bytes", MaxMessage)
	}
	if r.err != nil {
		return nil, invalid("not a rate limit request: %v", r.err)
	}
	server := service.(ratelimitv3.RateLimitServiceServer)
	answer := func(ctx context.Context, request any) (any, error) {
		return server.ShouldRateLimit(ctx, request.(*ratelimitv3.RateLimitRequest))
	}
	if interceptor == nil {
		return answer(ctx, r.RateLimitRequest)
	}
	info := &grpc.UnaryServerInfo{Server: service, FullMethod: fullMethod}
	return interceptor(ctx, r.RateLimitRequest, info, answer)
}

// received is a request or the error of reading it. gRPC would answer an error of the codec itself.
type received struct {
	*ratelimitv3.RateLimitRequest
	err   error
	large bool // possible if other services of the server accept larger messages
}

// codec is gRPC's own, except that it keeps the errors of requests.
type codec struct{ encoding.CodecV2 }

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if r, ok := v.(*received); ok {
		if r.large = data.Len() > MaxMessage; r.large {
			return nil
		}
		r.err = c.CodecV2.Unmarshal(data, r.RateLimitRequest)
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}
