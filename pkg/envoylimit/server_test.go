package envoylimit

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/offpath-io/offpath/internal/testing/grpctest"
)

// Half a request, and then silence, from a client that is alive: the request has a deadline all the
// same, whatever the client says of its own.
func TestHalfARequest(t *testing.T) {
	p := patience{request: 50 * time.Millisecond, silence: time.Minute}
	conn := grpctest.Dial(t, serve(t, New(newChecker(t, shop), Options{}), p.options()...))
	for _, own := range []time.Duration{10 * time.Millisecond, 0, time.Minute} {
		ctx := t.Context()
		if own > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, own)
			defer cancel()
		}
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, fullMethod) // sends no message
		if err == nil {
			// Else the client's own deadline was over before there was a connection.
			err = stream.RecvMsg(new(received))
		}
		if status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("own deadline %v: %v", own, err)
		}
	}
}

// A client that does not even answer whether it is there is hung up on.
func TestSilence(t *testing.T) {
	p := patience{request: time.Minute, silence: time.Second} // gRPC knows no less
	address := serve(t, New(newChecker(t, shop), Options{}), p.options()...)
	const preface, settings, half = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x00\x00\x00\x04\x00\x00\x00\x00\x00", "\x00\x00\x40\x01\x04"
	var all sync.WaitGroup
	for why, opening := range map[string]string{"no request": preface + settings, "half of its headers": preface + settings + half} {
		all.Go(func() {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Error(err)
			}
			if _, err := io.WriteString(conn, opening); err != nil {
				t.Error(err)
			}
			if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: it is not hung up on", why)
			}
		})
	}
	all.Wait()
}

// Headers have a bound, and who exceeds it may go on.
func TestLargeHeaders(t *testing.T) {
	c := client(t, New(newChecker(t, shop), Options{}))
	r := request("shop", 1, newDescriptor("user=ann"))
	large := metadata.AppendToOutgoingContext(t.Context(), "x-large", strings.Repeat("x", 2*maxHeader))
	if _, err := c.ShouldRateLimit(large, r); status.Code(err) == codes.OK {
		t.Error("it was answered")
	}
	if answer := ask(t, c, r); answer.Statuses[0].LimitRemaining != 2 {
		t.Errorf("afterwards: %v", answer)
	}
}
