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

// perMessage is how many buckets an Envoy is told about in one message.
const perMessage = 1000

// MaxMessage is the largest report that a gRPC server should take, in bytes: about 60,000 buckets of a user's name each. It is gRPC's default.
const MaxMessage = 4 << 20

// Server is the service. Its methods are safe for concurrent use.
type Server struct {
	quotapb.UnimplementedRateLimitQuotaServiceServer
	desk *desk
	now  func() int64

	closed    chan struct{}
	closeOnce sync.Once
}

// New makes a Server, which starts nothing.
func New(c Checker, o Options) *Server {
	o = o.withDefaults()
	return &Server{
		desk:   newDesk(c, o),
		now:    func() int64 { return o.Now().UnixNano() },
		closed: make(chan struct{}),
	}
}

// Register adds the service to a gRPC server.
func (s *Server) Register(g grpc.ServiceRegistrar) { quotapb.RegisterRateLimitQuotaServiceServer(g, s) }

// Close ends all streams, and those that come, with Unavailable, so that a gRPC server can stop gracefully. Envoys keep their assignments until these
// end, and connect again.
func (s *Server) Close() { s.closeOnce.Do(func() { close(s.closed) }) }

type stream = grpc.BidiStreamingServer[quotapb.RateLimitQuotaUsageReports, quotapb.RateLimitQuotaResponse]

// StreamRateLimitQuotas serves one Envoy. It ends when the Envoy ends it, and otherwise with an error that says why.
func (s *Server) StreamRateLimitQuotas(g stream) error {
	c, err := s.desk.join(hostOf(g.Context()))
	if err != nil {
		return err
	}
	t := &talk{server: s, client: c, stream: g, ended: make(chan error, 2)}
	t.heard.Store(s.now())
	ctx, cancel := context.WithCancel(g.Context())
	defer cancel()
	// Both end when this function returns, if not before: that ends the stream under them.
	go t.receive()
	go t.send(ctx)
	err = t.lookAfter(ctx)
	t.close()
	s.desk.noteEnd(g.Context(), err)
	return err
}

// hostOf is where a stream comes from, without its port, which is another with each connection.
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

// talk is one stream.
type talk struct {
	server *Server
	client *client
	stream stream
	ended  chan error
	heard  atomic.Int64 // when a message last came
	since  atomic.Int64 // when the message that is being sent began; 0 for none

	mu   sync.Mutex // held while a message is taken in
	over bool
}

// close takes the Envoy out of the desk, between two messages.
func (t *talk) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	d := t.server.desk
	d.leave(t.server.now(), t.client)
	time.AfterFunc(d.o.TTL+2*heldOn, func() { d.sweep(t.server.now()) })
}

func (t *talk) receive() {
	for {
		m := new(emptypb.Empty) // keeps all it does not know
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

func (t *talk) take(message []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return context.Canceled
	}
	now := t.server.now()
	t.heard.Store(now)
	return t.server.desk.report(now, t.client, message)
}

func (t *talk) send(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.client.wake:
		}
		list := t.server.desk.actions(t.server.now(), t.client, perMessage)
		if len(list) == 0 {
			continue
		}
		t.since.Store(t.server.now())
		err := t.stream.Send(&quotapb.RateLimitQuotaResponse{BucketAction: list})
		t.since.Store(0)
		if err != nil {
			t.ended <- err
			return
		}
	}
}

// lookAfter looks after the Envoy's buckets, and after the stream, until it ends.
func (t *talk) lookAfter(ctx context.Context) error {
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
		now, o := t.server.now(), &t.server.desk.o
		if now-t.heard.Load() > int64(o.SilenceAfter) {
			return status.Errorf(codes.DeadlineExceeded, "no whole message for %v", o.SilenceAfter)
		}
		if since := t.since.Load(); since != 0 && now-since > int64(o.SendTimeout) {
			return status.Errorf(codes.DeadlineExceeded, "a message was not received for %v", o.SendTimeout)
		}
		t.server.desk.look(now, t.client)
	}
}
