package grpclimit

import (
	"google.golang.org/grpc"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/limitheaders"
)

// Stream limits streaming calls: each when it begins, and with Options.Messages at each further
// message that the client sends. When a message is denied, receiving it fails with the error of the
// denial, and so does receiving from then on; the handler's result is how the call ends. A message
// that waits for its turn keeps the client from sending many more.
func (l *Limit) Stream() grpc.StreamServerInterceptor {
	return func(
		srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler,
	) error {
		s := &limitedStream{ServerStream: stream, limit: l, method: info.FullMethod}
		d := s.decide()
		if l.options.Headers != limitheaders.None {
			_ = stream.SetHeader(s.plan.metadata(d)) // an error means that they have been sent
		}
		switch {
		case !d.Allowed:
			return l.deny(stream.Context(), s.plan, d)
		case l.options.Messages && info.IsClientStream:
			return handler(srv, s)
		}
		return handler(srv, stream)
	}
}

// limitedStream limits the messages of a stream. As with any stream, only one goroutine may
// receive.
type limitedStream struct {
	grpc.ServerStream
	limit  *Limit
	method string

	plan   *plan
	attrs  identity.Attributes // that the plan asks for
	begun  bool                // the first message has come
	denied error
}

// decide decides about the stream by the rules in force.
func (s *limitedStream) decide() check.Decision {
	ctx := s.Context()
	if p := s.limit.plans.Get(); p != s.plan {
		clear(s.attrs)
		s.attrs = p.attributes(s.attrs[:0], ctx, s.method)
		s.plan = p
	}
	return s.plan.decide(ctx, s.attrs)
}

// RecvMsg receives a message, and then decides whether it may pass: only then is it known to exist.
func (s *limitedStream) RecvMsg(m any) error {
	if s.denied != nil {
		return s.denied
	}
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	if !s.begun { // the first message is the call's
		s.begun = true
		return nil
	}
	if d := s.decide(); !d.Allowed {
		s.denied = s.limit.deny(s.Context(), s.plan, d)
	}
	return s.denied
}
