package grpclimit_test

import (
	"context"
	"io"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/check/checktest"
	"github.com/offpath-io/offpath/pkg/grpclimit"
)

type (
	duplex  = grpc.BidiStreamingClient[grpc_testing.StreamingOutputCallRequest, grpc_testing.StreamingOutputCallResponse]
	message = grpc_testing.StreamingOutputCallRequest
)

func stream(t *testing.T, client grpc_testing.TestServiceClient, pairs ...string) duplex {
	t.Helper()
	s, err := client.FullDuplexCall(as(t.Context(), pairs...))
	must(t, err)
	return s
}

// echo sends a message and gets one back, or the code that the stream has ended with.
func echo(s duplex) codes.Code {
	if err := s.Send(&message{}); err != nil && err != io.EOF { // that is: the server has ended it, and Recv says how
		return status.Code(err)
	}
	_, err := s.Recv()
	return status.Code(err)
}

const three = "rules: [{name: per-user, key: [user], limit: 3/hour}]"

// A stream is one call, however many messages go over it.
func TestStreamOnce(t *testing.T) {
	client := behind(t, newLimit(t, checker(t, three), grpclimit.Options{User: byMetadata}))
	for i := range 4 {
		want := codes.OK
		if i == 3 {
			want = codes.ResourceExhausted
		}
		s := stream(t, client, "x-user", "kristie")
		for range 10 {
			if got := echo(s); got != want {
				t.Fatalf("stream %d: %v, want %v", i, got, want)
			}
		}
	}
	if _, err := client.UnaryCall(as(t.Context(), "x-user", "kristie"), &grpc_testing.SimpleRequest{}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("calls share the limit: %v", err)
	}
}

// With Messages each one counts, the first with its stream; and who is denied may not go on.
func TestMessages(t *testing.T) {
	c := checker(t, three)
	client := behind(t, newLimit(t, c, grpclimit.Options{User: byMetadata, Messages: true}))
	s := stream(t, client, "x-user", "kristie")
	for i, want := range []codes.Code{codes.OK, codes.OK, codes.OK, codes.ResourceExhausted, codes.ResourceExhausted} {
		if got := echo(s); got != want {
			t.Errorf("message %d: %v, want %v", i, got, want)
		}
	}
	if got := echo(stream(t, client, "x-user", "kristie")); got != codes.ResourceExhausted {
		t.Errorf("another stream: %v", got)
	}

	// A stream that is over has asked for nothing more.
	s = stream(t, client, "x-user", "bob")
	for range 2 {
		if got := echo(s); got != codes.OK {
			t.Errorf("bob: %v", got)
		}
	}
	if err := s.CloseSend(); err != nil {
		t.Error(err)
	}
	if _, err := s.Recv(); err != io.EOF {
		t.Errorf("the end: %v", err)
	}
	l, _ := c.Limiter("per-user")
	if d := c.Do(check.Request{Limiter: l, Key: "bob", Mode: check.Peek}); d.Remaining != 1 {
		t.Errorf("bob has %d left, want 1", d.Remaining)
	}
}

// silent is a stream whose client sends for ever.
type silent struct {
	grpc.ServerStream
	received int
}

func (s *silent) RecvMsg(any) error { s.received++; return nil }

// A handler that does not mind what it is told gets no further messages.
func TestDenialsOfMessagesStay(t *testing.T) {
	c := checktest.Script(checktest.Allowed(1), checktest.Allowed(0), checktest.Denied(time.Second), checktest.Allowed(9))
	s := &silent{ServerStream: serverStream{ctx: incoming(tcp("192.0.2.1"))}}
	limit := newLimit(t, c, grpclimit.Options{Messages: true})
	err := limit.Stream()(nil, s, &grpc.StreamServerInfo{FullMethod: duplexMethod, IsClientStream: true}, func(_ any, s grpc.ServerStream) error {
		for i := range 6 {
			want := codes.OK
			if i >= 2 {
				want = codes.ResourceExhausted
			}
			if got := status.Code(s.RecvMsg(nil)); got != want {
				t.Errorf("message %d: %v, want %v", i, got, want)
			}
		}
		return nil
	})
	if err != nil || s.received != 3 || len(c.Asked()) != 3 {
		t.Errorf("%v, received %d, asked %d times", err, s.received, len(c.Asked()))
	}
}

// What was read for the rules before is not asked again, and what was read for these is kept.
func TestAttributesOfAStream(t *testing.T) {
	c := checktest.Allow().For("user")
	looked := 0
	limit := newLimit(t, c, grpclimit.Options{Messages: true, User: func(ctx context.Context) string { looked++; return byMetadata(ctx) }})
	s := &silent{ServerStream: serverStream{ctx: kristie()}}
	err := limit.Stream()(nil, s, &grpc.StreamServerInfo{FullMethod: duplexMethod, IsClientStream: true}, func(_ any, s grpc.ServerStream) error {
		for i := range 5 {
			if i == 3 {
				c.WithRules(parse(t, "rules: [{name: r, key: [ip], limit: 1/hour}]"))
			}
			if err := s.RecvMsg(nil); err != nil {
				t.Error(err)
			}
		}
		return nil
	})
	want := []string{"check [{user kristie}]", "check [{user kristie}]", "check [{user kristie}]", "check [{ip 192.0.2.1}]", "check [{ip 192.0.2.1}]"}
	if got := asked(c); err != nil || !slices.Equal(got, want) || looked != 1 {
		t.Errorf("%v, looked %d times, asked %q, want %q", err, looked, got, want)
	}
}
