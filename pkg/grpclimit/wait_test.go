package grpclimit_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/check/checktest"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/grpclimit"
	"github.com/offpath-io/offpath/pkg/identity"
)

// running lets a checker run in a bubble of its own time.
func running(t *testing.T, link check.Link, yaml string, f func(t *testing.T, i grpc.UnaryServerInterceptor)) {
	synctest.Test(t, func(t *testing.T) {
		c, err := check.New(check.Options{Rules: parse(t, yaml), Link: link, DrainTimeout: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		synctest.Wait()
		f(t, newLimit(t, c, grpclimit.Options{User: byMetadata}).Unary())
		stop()
		<-done // an error is that nobody has answered
	})
}

// deaf is a link to nobody.
type deaf struct{}

func (deaf) Report(uint32, []byte) error { return nil }
func (deaf) Lease(uint32, []byte) error  { return nil }
func (deaf) Hello([]byte) error          { return nil }

func (deaf) Listen(ctx context.Context, _ func(events.Kind, []byte)) error {
	<-ctx.Done()
	return nil
}

const queueing = "rules: [{name: r, key: [user], algorithm: leaky_bucket, limit: 1/second, burst: 3, on_limit: queue, max_wait: 5s}]"

func kristie() context.Context { return incoming(tcp("192.0.2.1"), "x-user", "kristie") }

// A call waits its turn, and passes then; one that would have to wait for too long is denied at once.
func TestQueue(t *testing.T) {
	running(t, nil, queueing, func(t *testing.T, i grpc.UnaryServerInterceptor) {
		begun := time.Now()
		ended := make(chan codes.Code, 3)
		for range 3 {
			go func() { ended <- call(kristie(), i) }()
			synctest.Wait()
		}
		if got := call(kristie(), i); got != codes.ResourceExhausted || time.Since(begun) != 0 {
			t.Errorf("the one too many: %v after %v", got, time.Since(begun))
		}
		for place := range 3 {
			if got := <-ended; got != codes.OK {
				t.Errorf("place %d: %v", place, got)
			}
		}
		if took := time.Since(begun); took < 1900*time.Millisecond || took > 2100*time.Millisecond {
			t.Errorf("three took %v", took)
		}
	})
}

// When the client gives up, so does the call, and its place is free. One whose time is too short is told at once.
func TestQueueEndsWithTheClient(t *testing.T) {
	running(t, nil, queueing, func(t *testing.T, i grpc.UnaryServerInterceptor) {
		call(kristie(), i)
		ctx, leave := context.WithCancel(kristie())
		ended := make(chan codes.Code)
		go func() { ended <- call(ctx, i) }()
		synctest.Wait()
		begun := time.Now()
		leave()
		if got := <-ended; got != codes.Canceled || time.Since(begun) != 0 {
			t.Errorf("%v after %v", got, time.Since(begun))
		}
		hasty, done := context.WithTimeout(kristie(), 500*time.Millisecond)
		defer done()
		if got := call(hasty, i); got != codes.ResourceExhausted || time.Since(begun) != 0 {
			t.Errorf("the hasty one: %v after %v", got, time.Since(begun))
		}
		if got := call(kristie(), i); got != codes.OK || time.Since(begun) > 1100*time.Millisecond {
			t.Errorf("the next in line: %v after %v", got, time.Since(begun))
		}
	})
}

// Without an aggregator there are no permits, and nobody waits for longer than he may.
func TestStrictWithoutAnAggregator(t *testing.T) {
	const yaml = "rules: [{name: r, key: [user], enforcement: strict, limit: 1/second, on_limit: queue, max_wait: 100ms}]"
	running(t, deaf{}, yaml, func(t *testing.T, i grpc.UnaryServerInterceptor) {
		begun := time.Now()
		if got := call(kristie(), i); got != codes.ResourceExhausted {
			t.Errorf("%v", got)
		}
		if took := time.Since(begun); took > 140*time.Millisecond {
			t.Errorf("took %v", took)
		}
	})
}

// Where nobody waits, a denial is one whatever has become of the client.
func TestDeniedAfterTheEnd(t *testing.T) {
	ctx, end := context.WithCancel(kristie())
	end()
	if got := call(ctx, newLimit(t, checktest.Deny(time.Second), grpclimit.Options{}).Unary()); got != codes.ResourceExhausted {
		t.Errorf("%v", got)
	}
}

// A client that cancels does not wait any more: that ends the call's context on the server, and so the wait.
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

// By which method the checker is asked, and for how long it may take.
func TestHowItAsks(t *testing.T) {
	const queue, strict = ", on_limit: queue, max_wait: 300ms", ", enforcement: strict"
	later := checktest.Denied(time.Second)
	later.Queue, later.MaxWait = true, 300*time.Millisecond
	for _, tt := range []struct {
		why    string
		clause string
		o      grpclimit.Options
		answer check.Decision
		want   []string
	}{
		{"at once", "", grpclimit.Options{}, later, []string{"Check forever"}},
		{"where callers may wait", queue, grpclimit.Options{}, later, []string{"Wait forever"}},
		{"where permits are needed", strict, grpclimit.Options{}, later, []string{"Acquire 20ms", "Wait 320ms"}},
		{"for longer", strict, grpclimit.Options{Acquire: time.Second}, later, []string{"Acquire 1s", "Wait 1.3s"}},
		{"not at all", strict, grpclimit.Options{Acquire: -1}, later, []string{"Check forever", "Wait 300ms"}},
		{"with a permit", strict, grpclimit.Options{}, checktest.Allowed(1), []string{"Acquire 20ms"}},
		{"with a denial that stays", strict, grpclimit.Options{}, checktest.Denied(1), []string{"Acquire 20ms"}},
	} {
		c := &timed{Checker: checktest.Script(tt.answer).WithRules(parse(t, "rules: [{name: r, key: [user], limit: 1/hour"+tt.clause+"}]"))}
		synctest.Test(t, func(t *testing.T) { newLimit(t, c, tt.o).Decide(context.Background(), unaryMethod) })
		if !slices.Equal(c.calls, tt.want) {
			t.Errorf("%s: %q, want %q", tt.why, c.calls, tt.want)
		}
	}
}

// timed notes how long its callers' contexts last, to the nanosecond where time stands still.
type timed struct {
	*checktest.Checker
	calls []string
}

func (c *timed) note(method string, ctx context.Context) {
	left := "forever"
	if deadline, ok := ctx.Deadline(); ok {
		left = time.Until(deadline).String()
	}
	c.calls = append(c.calls, method+" "+left)
}

func (c *timed) Check(attrs identity.Attributes, cost int64) check.Decision {
	c.note("Check", context.Background())
	return c.Checker.Check(attrs, cost)
}

func (c *timed) Acquire(ctx context.Context, attrs identity.Attributes, cost int64) (check.Decision, error) {
	c.note("Acquire", ctx)
	return c.Checker.Acquire(ctx, attrs, cost)
}

func (c *timed) Wait(ctx context.Context, attrs identity.Attributes, cost int64) (check.Decision, error) {
	c.note("Wait", ctx)
	return c.Checker.Wait(ctx, attrs, cost)
}
