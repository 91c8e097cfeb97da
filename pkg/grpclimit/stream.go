package grpclimit

import (
	"google.golang.org/grpc"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/identity"
)

// Stream limits calls with a stream of messages either way, or both: each when it begins, and with Options.Messages at each further message of
// the client's. When a message may not pass, receiving it fails with the error of the denial, and so does receiving from then
// on; what the handler then returns is the call's end. A message that waits for its turn keeps the client from
// sending many more.
func (l *Limit) Stream() grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		s := &limited{ServerStream: stream, limit: l, method: info.FullMethod}
		d := s.decide()
		if l.headers != nil {
			_ = stream.SetHeader(l.metadata(d)) // an error would be that they have been sent
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

// limited is a stream whose messages are limited. As for any stream, one goroutine at a time may receive.
type limited struct {
	grpc.ServerStream
	limit  *Limit
	method string

	plan   *plan
	attrs  identity.Attributes // that the plan asks for
	begun  bool                // the first message has come
	denied error
}

// decide asks about the stream as the rules in force want.
func (s *limited) decide() check.Decision {
	ctx := s.Context()
	if p := s.limit.plans.InForce(); p != s.plan {
		clear(s.attrs)
		s.attrs = p.attributes(s.attrs[:0], ctx, s.method)
		s.plan = p
	}
	return s.plan.ask(ctx, s.attrs)
}

// RecvMsg receives a message, and then asks whether it may pass: before, nobody knows whether another will come.
func (s *limited) RecvMsg(m any) error {
	if s.denied != nil {
		return s.denied
	}
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	if !s.begun { // it came with the call
		s.begun = true
		return nil
	}
	if d := s.decide(); !d.Allowed {
		s.denied = s.limit.deny(s.Context(), s.plan, d)
	}
	return s.denied
}
