package httpload

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// overGRPC asks Envoy's rate limit service.
type overGRPC struct {
	address  string
	timeout  time.Duration
	channels []*grpc.ClientConn
	clients  []ratelimitv3.RateLimitServiceClient
	next     atomic.Uint32                   // spreads requests over the channels
	requests []*ratelimitv3.RateLimitRequest // by key; nobody changes them
}

func openGRPC(o Options) (*overGRPC, error) {
	s := &overGRPC{address: o.GRPC, timeout: o.Timeout, requests: make([]*ratelimitv3.RateLimitRequest, o.Keys)}
	for key := range s.requests {
		s.requests[key] = o.request(strconv.Itoa(key))
	}
	for range o.Channels {
		// passthrough: the address is one, and no name for a resolver with ideas of its own.
		channel, err := grpc.NewClient("passthrough:///"+o.GRPC, grpc.WithTransportCredentials(o.credentials()), grpc.WithNoProxy())
		if err != nil {
			s.close()
			return nil, fmt.Errorf("grpc: %w", err)
		}
		s.channels = append(s.channels, channel)
		s.clients = append(s.clients, ratelimitv3.NewRateLimitServiceClient(channel))
	}
	return s, nil
}

func (o Options) credentials() credentials.TransportCredentials {
	if o.TLS == nil {
		return insecure.NewCredentials()
	}
	return credentials.NewTLS(o.TLS)
}

// request is what the service is asked.
func (o Options) request(key string) *ratelimitv3.RateLimitRequest {
	d := new(ratelimit.RateLimitDescriptor)
	for _, e := range o.Descriptor {
		d.Entries = append(d.Entries, &ratelimit.RateLimitDescriptor_Entry{Key: e.Key, Value: strings.ReplaceAll(e.Value, KeyMark, key)})
	}
	return &ratelimitv3.RateLimitRequest{Domain: o.Domain, Descriptors: []*ratelimit.RateLimitDescriptor{d}}
}

func (s *overGRPC) name() string { return s.address }

func (s *overGRPC) close() {
	for _, c := range s.channels {
		_ = c.Close() // an error means that it is closed
	}
}

func (s *overGRPC) ask(ctx context.Context, key int) (int, string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	client := s.clients[0]
	if len(s.clients) > 1 {
		client = s.clients[s.next.Add(1)%uint32(len(s.clients))]
	}
	answer, err := client.ShouldRateLimit(ctx, s.requests[key])
	if err != nil {
		return failed(err)
	}
	switch code := answer.OverallCode; code {
	case ratelimitv3.RateLimitResponse_OK:
		return http.StatusOK, "", nil
	case ratelimitv3.RateLimitResponse_OVER_LIMIT:
		return http.StatusTooManyRequests, "", nil
	default:
		return http.StatusInternalServerError, code.String(), nil
	}
}

// failed says what a call's error would have been over HTTP: an answer that is no decision, or
// none.
func failed(err error) (int, string, error) {
	s := status.Convert(err)
	text := s.Code().String() + ": " + s.Message()
	switch s.Code() {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return 0, "", err
	case codes.InvalidArgument:
		return http.StatusBadRequest, text, nil
	case codes.Unimplemented:
		return http.StatusNotImplemented, text, nil
	case codes.ResourceExhausted: // of the service itself: it is no decision
		return http.StatusServiceUnavailable, text, nil
	}
	return http.StatusInternalServerError, text, nil
}
