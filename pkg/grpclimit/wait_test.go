package grpclimit_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/offpath-io/offpath/pkg/check/checktest"
	"github.com/offpath-io/offpath/pkg/grpclimit"
)

func kristie() context.Context { return incoming(tcp("192.0.2.1"), "x-user", "kristie") }

// Where nobody waits, a denial is one whatever has become of the client.
func TestDeniedAfterTheEnd(t *testing.T) {
	ctx, end := context.WithCancel(kristie())
	end()
	if got := call(ctx, newLimit(t, checktest.Deny(time.Second), grpclimit.Options{}).Unary()); got != codes.ResourceExhausted {
		t.Errorf("%v", got)
	}
}

// A client that cancels does not wait any more: that ends the call's context on the server, and so
// the wait.
func TestCancellingEndsTheWait(t *testing.T) {
	c := checker(t, "rules: [{name: r, key: [user], algorithm: leaky_bucket, limit: 1/hour, burst: 2, on_limit: queue, max_wait: 1h}]")
	came, gaveUp := make(chan bool, 2), make(chan error, 2)
	limit := newLimit(t, c, grpclimit.Options{User: func(ctx context.Context) string { came <- true; return byMetadata(ctx) }})
	outer := func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		res, err := handler(ctx, req)
		gaveUp <- err
		return res, err
	}
	client := dial(t, serve(t, grpc.ChainUnaryInterceptor(outer, limit.Unary())))
	ctx, cancel := context.WithCancel(as(t.Context(), "x-user", "kristie"))
	if _, err := client.UnaryCall(ctx, &grpc_testing.SimpleRequest{}); err != nil { // its turn is at once
		t.Fatal(err)
	}
	<-came
	<-gaveUp
	answered := make(chan error)
	go func() {
		_, err := client.UnaryCall(ctx, &grpc_testing.SimpleRequest{})
		answered <- err
	}()
	<-came
	cancel()
	for why, ended := range map[string]chan error{"client": answered, "server": gaveUp} {
		if err := <-ended; status.Code(err) != codes.Canceled {
			t.Errorf("the %s: %v", why, err)
		}
	}
}
