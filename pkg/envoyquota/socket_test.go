package envoyquota

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	quotapb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/offpath-io/offpath/internal/testing/grpctest"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/pkg/check"
)

// serve serves until the test ends, or stop is called: then streams end first.
func serve(t testing.TB, c *check.Checker, o Options, address string) (at string, stop func()) {
	t.Helper()
	g, s := grpc.NewServer(), New(c, o)
	s.Register(g)
	at, end := grpctest.Serve(t, g, address)
	stop = func() {
		s.Close()
		g.GracefulStop()
		end()
	}
	t.Cleanup(stop)
	return at, stop
}

type clientStream = grpc.BidiStreamingClient[quotapb.RateLimitQuotaUsageReports, quotapb.RateLimitQuotaResponse]

// patience is after how long a test gives up on a stream.
const patience = 2 * time.Minute

// open opens a stream, which the test gives up on after some time.
func open(t testing.TB, conn *grpc.ClientConn) clientStream {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	stream, err := quotapb.NewRateLimitQuotaServiceClient(conn).StreamRateLimitQuotas(ctx, grpc.WaitForReady(true))
	must(t, err)
	return stream
}

func receive(t testing.TB, stream clientStream) []*quotapb.RateLimitQuotaResponse_BucketAction {
	t.Helper()
	m, err := stream.Recv()
	must(t, err)
	if err := m.ValidateAll(); err != nil {
		t.Errorf("Envoy would not take that: %v", err)
	}
	return m.BucketAction
}

// end is an Envoy that ends its stream in good order.
func end(t testing.TB, stream clientStream) {
	t.Helper()
	must(t, stream.CloseSend())
	if err := ended(stream); err != io.EOF {
		t.Fatalf("the end of the stream: %v", err)
	}
}

// ended is what a stream ends with. An assignment that is renewed may come before.
func ended(stream clientStream) (err error) {
	for err == nil {
		_, err = stream.Recv()
	}
	return err
}

func charged(c *check.Checker) (sum int64) {
	for _, r := range c.Stats().Rules {
		sum += r.Charged
	}
	return sum
}

const perHour = "rules: [{name: r, key: [user], limit: 1000/hour}]"

// Each report is counted once, whatever becomes of streams and servers in between.
func TestReconnects(t *testing.T) {
	c := newChecker(t, perHour)
	address, stop := serve(t, c, Options{}, serverstest.Address(t))
	conn := grpctest.Dial(t, address)

	stream := open(t, conn)
	must(t, stream.Send(reportOf(10, 0, 0, "user", "kristie")))
	only(t, receive(t, stream), "bucket")
	end(t, stream)

	ctx, cancel := context.WithCancel(context.Background()) // it breaks
	broken, err := quotapb.NewRateLimitQuotaServiceClient(conn).StreamRateLimitQuotas(ctx)
	must(t, err)
	must(t, broken.Send(reportOf(20, 0, 0, "user", "kristie")))
	receive(t, broken)
	cancel()

	stream = open(t, conn)
	must(t, stream.Send(reportOf(30, 5, 5*time.Second, "user", "kristie")))
	receive(t, stream)
	stop() // the server restarts
	if err := ended(stream); status.Code(err) != codes.Unavailable {
		t.Fatalf("a server that stops ends streams with %v", err)
	}
	serve(t, c, Options{}, address)
	stream = open(t, conn)
	must(t, stream.Send(reportOf(40, 0, 5*time.Second, "user", "kristie")))
	receive(t, stream)
	if got := charged(c); got != 100 {
		t.Errorf("10, 20, 30 and 40 requests were reported, and %d hits charged", got)
	}
}

// Whoever connects again from the same host has the share that it had: all, here.
func TestAReconnectKeepsItsShare(t *testing.T) {
	address, _ := serve(t, newChecker(t, perSecond), Options{}, "127.0.0.1:0")
	conn := grpctest.Dial(t, address)
	for range 2 {
		stream := open(t, conn)
		must(t, stream.Send(reportOf(100, 0, time.Second, "user", "kristie")))
		if got := rateOf(only(t, receive(t, stream), "bucket")); got != 100 {
			t.Errorf("%v per second of 100", got)
		}
		end(t, stream)
	}
}

// Zero time is what Envoy itself says of a new bucket, and a list without buckets what it says when
// it has been told to forget all.
func TestWhatServersTake(t *testing.T) {
	checker := newChecker(t, perHour)
	address, _ := serve(t, checker, Options{}, "127.0.0.1:0")
	stream := open(t, grpctest.Dial(t, address))
	must(t, stream.Send(&quotapb.RateLimitQuotaUsageReports{Domain: "shop"}))
	bare := reportOf(1, 0, 0, "user", "kristie")
	bare.Domain, bare.BucketQuotaUsages[0].TimeElapsed = "", nil
	must(t, stream.Send(bare))
	only(t, receive(t, stream), "bucket")
	must(t, stream.Send(reportOf(2, 0, 365*24*time.Hour, "user", "mia")))
	receive(t, stream)
	if got := charged(checker); got != 3 {
		t.Errorf("charged %d of 3", got)
	}
}

// A message that stops half-way is silence: its stream ends, and nothing of it is counted.
func TestHalfAMessageThenSilence(t *testing.T) {
	checker := newChecker(t, perHour)
	address, _ := serve(t, checker, Options{SilenceAfter: 50 * time.Millisecond}, "127.0.0.1:0")
	whole := bytesOf(t, reportOf(1, 0, 0, "user", "kristie"))
	half := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(whole))), whole[:len(whole)/2]...)
	body, pen := io.Pipe()
	t.Cleanup(func() { _ = pen.Close() })
	go func() { _, _ = pen.Write(half) }()
	method := quotapb.RateLimitQuotaService_StreamRateLimitQuotas_FullMethodName
	got, err := grpctest.Post(t, address, method, http.Header{}, body)
	if want := fmt.Sprint(int(codes.DeadlineExceeded)); got != want || err != nil {
		t.Errorf("ended with %q, %v, want %s", got, err, want)
	}
	if got := charged(checker); got != 0 {
		t.Errorf("charged %d", got)
	}
}

func TestTenThousandBuckets(t *testing.T) {
	checker := newChecker(t, "rules: [{name: user, key: [user], limit: 1000/hour}, {name: all, key: [], limit: 100000/second}]")
	address, _ := serve(t, checker, Options{}, "127.0.0.1:0")
	stream := open(t, grpctest.Dial(t, address))
	n := 10_000
	if testing.Short() {
		n = 1000
	}
	must(t, stream.Send(manyBuckets(n)))
	told := make(map[string]bool)
	for len(told) < n {
		for _, a := range receive(t, stream) {
			told[a.BucketId.Bucket["user"]] = true
		}
	}
	if got := charged(checker); got < int64(n) { // of the short window's some are counted later
		t.Errorf("charged %d", got)
	}
}
