package envoyquota

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	quotapb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// fakeStream is a stream without a network under it, for tests in virtual time. There, a goroutine
// that is left is a failure.
type fakeStream struct {
	quotapb.RateLimitQuotaService_StreamRateLimitQuotasServer
	ctx context.Context
	in  chan *quotapb.RateLimitQuotaUsageReports
	out chan *quotapb.RateLimitQuotaResponse
}

// openStream makes a server serve a stream; ended gets its error.
func openStream(ctx context.Context, s *Server, outRoom int) (f *fakeStream, ended chan error) {
	ctx, cancel := context.WithCancel(ctx)
	f = &fakeStream{nil, ctx, make(chan *quotapb.RateLimitQuotaUsageReports), make(chan *quotapb.RateLimitQuotaResponse, outRoom)}
	ended = make(chan error, 1)
	go func() {
		defer cancel() // as gRPC does when a handler returns
		ended <- s.StreamRateLimitQuotas(f)
	}()
	return f, ended
}

func (f *fakeStream) RecvMsg(into any) error {
	select {
	case m, ok := <-f.in:
		if !ok {
			return io.EOF
		}
		data, err := proto.Marshal(m)
		if err != nil {
			return err
		}
		return proto.Unmarshal(data, into.(proto.Message))
	case <-f.ctx.Done():
		return status.FromContextError(f.ctx.Err()).Err()
	}
}

func (f *fakeStream) Send(m *quotapb.RateLimitQuotaResponse) error {
	select {
	case f.out <- m:
		return nil
	case <-f.ctx.Done():
		return status.FromContextError(f.ctx.Err()).Err()
	}
}

func (f *fakeStream) Context() context.Context { return f.ctx }

func (d *distributor) size() (clients, ledgers int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.clients), len(d.ledgers)
}

func TestStreamsEnd(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		name string
		end  func(s *Server, f *fakeStream)
		room int
		want codes.Code
	}{
		{"when the Envoy ends it", func(_ *Server, f *fakeStream) { close(f.in) }, 9, codes.OK},
		{"after a minute of silence", func(*Server, *fakeStream) { time.Sleep(62 * time.Second) }, 9, codes.DeadlineExceeded},
		{"when the server closes", func(s *Server, _ *fakeStream) { s.Close(); s.Close() }, 9, codes.Unavailable},
		{"when the Envoy does not receive", func(_ *Server, f *fakeStream) { time.Sleep(12 * time.Second) }, 0, codes.DeadlineExceeded},
		{"when it says nonsense", func(_ *Server, f *fakeStream) { f.in <- reportOf(1, 0, -time.Second, "user", "x") }, 9, codes.InvalidArgument},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := New(newChecker(t, perSecond), Options{})
				f, ended := openStream(ctx, s, c.room)
				f.in <- reportOf(1, 0, 0, "user", "kristie")
				synctest.Wait()
				c.end(s, f)
				synctest.Wait()
				select {
				case err := <-ended:
					if status.Code(err) != c.want {
						t.Errorf("it ended with %v, want %v", err, c.want)
					}
				default:
					t.Fatal("it has not ended")
				}
				time.Sleep(time.Minute)
				want := Stats{Opened: 1, Allowed: 1}
				if c.want == codes.DeadlineExceeded || c.want == codes.InvalidArgument {
					want.Failed = 1
				}
				if got := s.Stats(); got != want {
					t.Errorf("told as %+v, want %+v", got, want)
				}
				if clients, ledgers := s.distributor.size(); clients != 0 || ledgers != 0 {
					t.Errorf("after a minute %d clients and %d ledgers are left", clients, ledgers)
				}
			})
		})
	}
}

func TestAssignmentsReachTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(newChecker(t, perSecond), Options{Now: time.Now})
		ctx, cancel := context.WithCancel(context.Background())
		f, ended := openStream(ctx, s, 9)
		f.in <- reportOf(1, 0, 0, "user", "kristie")
		only(t, (<-f.out).BucketAction, "bucket")
		for range 2 { // renewed, when half of 20 s is over
			before := time.Now()
			only(t, (<-f.out).BucketAction, "bucket")
			if waited := time.Since(before); waited < 9*time.Second || waited > 11*time.Second {
				t.Errorf("renewed after %v", waited)
			}
		}
		cancel()
		<-ended
	})
}

func TestStreamsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(newChecker(t, perSecond), Options{MaxStreams: 1})
		ctx, cancel := context.WithCancel(context.Background())
		_, first := openStream(ctx, s, 9)
		synctest.Wait()
		_, second := openStream(ctx, s, 9)
		if err := <-second; status.Code(err) != codes.ResourceExhausted {
			t.Errorf("the second stream of at most one: %v", err)
		}
		if got, want := s.Stats(), (Stats{Streams: 1, Opened: 1, Refused: 1}); got != want {
			t.Errorf("told as %+v, want %+v", got, want)
		}
		cancel()
		<-first
		third, ended := openStream(context.Background(), s, 9)
		third.in <- reportOf(1, 0, 0, "user", "kristie")
		only(t, (<-third.out).BucketAction, "bucket")
		close(third.in)
		<-ended
	})
}
