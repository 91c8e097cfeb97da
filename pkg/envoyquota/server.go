package envoyquota

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	quotapb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// perMessage bounds the buckets of a message to an Envoy.
const perMessage = 1000

// MaxMessage is the largest report that a gRPC server should accept, in bytes: about 60,000 buckets
// with a user's name each. It is gRPC's default.
const MaxMessage = 4 << 20

// Server is the service. Its methods are safe for concurrent use.
type Server struct {
	quotapb.UnimplementedRateLimitQuotaServiceServer
	distributor *distributor
	now         func() int64

	closed    chan struct{}
	closeOnce sync.Once
}

// New returns a Server. It starts nothing.
func New(c Checker, o Options) *Server {
	o = o.withDefaults()
	return &Server{
		distributor: newDistributor(c, o),
		now:         func() int64 { return o.Now().UnixNano() },
		closed:      make(chan struct{}),
	}
}

// Register adds the service to a gRPC server.
func (s *Server) Register(g grpc.ServiceRegistrar) {
	quotapb.RegisterRateLimitQuotaServiceServer(g, s)
}

// Close ends all streams, and new ones, with Unavailable, so that a gRPC server can stop
// gracefully. Envoys keep their assignments until these end, and reconnect.
func (s *Server) Close() { s.closeOnce.Do(func() { close(s.closed) }) }

type stream = grpc.BidiStreamingServer[
	quotapb.RateLimitQuotaUsageReports, quotapb.RateLimitQuotaResponse,
]

// StreamRateLimitQuotas serves one Envoy, until it ends the stream. Otherwise it ends with an error
// that says why.
func (s *Server) StreamRateLimitQuotas(g stream) error {
	c, err := s.distributor.join(hostOf(g.Context()))
	if err != nil {
		return err
	}
	t := &session{server: s, client: c, stream: g, ended: make(chan error, 2)}
	t.receivedAt.Store(s.now())
	ctx, cancel := context.WithCancel(g.Context())
	defer cancel()
	// Both end at the latest when this function returns, which ends the stream.
	go t.receive()
	go t.send(ctx)
	err = t.maintain(ctx)
	t.close()
	s.distributor.countEnd(g.Context(), err)
	return err
}

// hostOf returns the host of a stream. The port changes with each connection.
func hostOf(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return ""
	}
	host, _, err := net.SplitHostPort(p.Addr.String())
	if err != nil {
		return p.Addr.String()
	}
	return host
}

// session is one stream.
type session struct {
	server       *Server
	client       *client
	stream       stream
	ended        chan error
	receivedAt   atomic.Int64 // when a message last came
	sendingSince atomic.Int64 // when the message that is being sent began; 0 for none

	mu   sync.Mutex // held while a message is taken in
	over bool
}

// close removes the Envoy, between two messages.
func (t *session) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	d := t.server.distributor
	d.leave(t.server.now(), t.client)
	time.AfterFunc(d.o.TTL+2*grace, func() { d.sweep(t.server.now()) })
}

func (t *session) receive() {
	for {
		m := new(emptypb.Empty) // keeps all fields as unknown
		err := t.stream.RecvMsg(m)
		if errors.Is(err, io.EOF) {
			err = nil // the Envoy ends it
		} else if err == nil {
			if err = t.take(m.ProtoReflect().GetUnknown()); err == nil {
				continue
			}
		}
		t.ended <- err
		return
	}
}

func (t *session) take(message []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return context.Canceled
	}
	now := t.server.now()
	t.receivedAt.Store(now)
	return t.server.distributor.report(now, t.client, message)
}

func (t *session) send(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.client.wake:
		}
		list := t.server.distributor.actions(t.server.now(), t.client, perMessage)
		if len(list) == 0 {
			continue
		}
		t.sendingSince.Store(t.server.now())
		err := t.stream.Send(&quotapb.RateLimitQuotaResponse{BucketAction: list})
		t.sendingSince.Store(0)
		if err != nil {
			t.ended <- err
			return
		}
	}
}

// maintain maintains the Envoy's buckets and checks the stream's time-outs, until the stream ends.
func (t *session) maintain(ctx context.Context) error {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case err := <-t.ended:
			return err
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-t.server.closed:
			return status.Error(codes.Unavailable, "the server stops")
		case <-ticker.C:
		}
		now, o := t.server.now(), &t.server.distributor.o
		if now-t.receivedAt.Load() > int64(o.SilenceAfter) {
			return status.Errorf(codes.DeadlineExceeded, "no whole message for %v", o.SilenceAfter)
		}
		since := t.sendingSince.Load()
		if since != 0 && now-since > int64(o.SendTimeout) {
			return status.Errorf(codes.DeadlineExceeded,
				"a message was not received for %v", o.SendTimeout)
		}
		t.server.distributor.maintain(now, t.client)
	}
}
