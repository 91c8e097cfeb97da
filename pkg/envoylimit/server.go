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

// Bounds on what one client may hold of a server.
const (
	// MaxMessage is the most bytes of a request.
	MaxMessage = 64 << 10
	maxHeader  = 16 << 10
	maxStreams = 1000
	// Nobody has half of a handshake for longer.
	handshakeTimeout = 5 * time.Second
	// Clients come with few connections, and stay. After an hour each has to open another one.
	mostAge, mostAgeGrace = time.Hour, time.Minute
)

// patience is how long a client may leave things open: a request, and a connection on which it has said nothing. Then it is
// asked whether it is there, and hung up on if it does not answer within the same time.
type patience struct{ request, silence time.Duration }

// RequestTimeout is how long a request may take at the most, from its first byte to the last of its answer, and with the time that it waits
// for permits.
const RequestTimeout = 10 * time.Second

// ServerOptions bound what a client may hold of a server: the size of its requests, how many it has at a time, and how
// long it may keep half of one. Other services of the server may have streams for as long as they like.
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
			Time: p.silence, Timeout: p.silence, MaxConnectionAge: mostAge, MaxConnectionAgeGrace: mostAgeGrace,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	}
}

// tap gives a request its deadline before its message is read, so that it need not come to an end by itself. The end of the
// request, which ends its context, ends the timer too. Envoy sends a shorter deadline along, which makes this one needless.
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

// Register adds the service to a server. If that has the ServerOptions, a request that is no message of this protocol is
// answered with InvalidArgument, where gRPC itself would call it an internal error.
func Register(server grpc.ServiceRegistrar, service ratelimitv3.RateLimitServiceServer) {
	server.RegisterService(&description, service)
}

var description = grpc.ServiceDesc{
	ServiceName: Name,
	HandlerType: (*ratelimitv3.RateLimitServiceServer)(nil),
	Methods:     []grpc.MethodDesc{{MethodName: "ShouldRateLimit", Handler: handle}},
	Metadata:    "envoy/service/ratelimit/v3/rls.proto",
}

func handle(service any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
	r := received{RateLimitRequest: new(ratelimitv3.RateLimitRequest)}
	if err := decode(&r); err != nil {
		return nil, err
	}
	if r.large {
		return nil, status.Errorf(codes.ResourceExhausted, "a request of more than %d bytes", MaxMessage)
	}
	if r.err != nil {
		return nil, invalid("not a rate limit request: %v", r.err)
	}
	answer := func(ctx context.Context, request any) (any, error) {
		return service.(ratelimitv3.RateLimitServiceServer).ShouldRateLimit(ctx, request.(*ratelimitv3.RateLimitRequest))
	}
	if interceptor == nil {
		return answer(ctx, r.RateLimitRequest)
	}
	return interceptor(ctx, r.RateLimitRequest, &grpc.UnaryServerInfo{Server: service, FullMethod: fullMethod}, answer)
}

// received is a request, or why there is none: an error of the codec would be answered before anybody hears of it.
type received struct {
	*ratelimitv3.RateLimitRequest
	err   error
	large bool // where other services of the server take larger messages
}

// codec is gRPC's own, but for what it does with requests that it cannot read.
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
