package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/identity"
)

// Outcomes charges calls by how they end. It is never changed, and may be used by many goroutines at once.
type Outcomes struct {
	limit     *Limit
	attribute identity.Attribute
	codes     []codes.Code
}

// ChargeOn makes interceptors that charge calls by the code that they end with, such as logins that have failed:
//
//	failures, err := limit.ChargeOn(identity.Attribute{Name: "api", Value: "login"}, codes.Unauthenticated)
//	grpc.ChainUnaryInterceptor(limit.Unary(), failures.Unary())
//
// They look whether the call may pass, and charge it once it has ended with one of these codes. For both, the call has this
// attribute beside its others; rules that match it, and the method, count outcomes, and no others should ask for it. Unary and Stream of the
// Limit ask without it, so that both can be around the same call. A rule that does not match the attribute, and yet applies, is charged by
// both; let rules of outcomes have those in replaces.
//
// Put them after the Limit's own, whose denials would be outcomes otherwise. Calls that are under way at the same time have all been let pass before the
// first of them is charged. A handler that panics counts as Internal. Denials have no headers: those of the Limit have been set, and gRPC would send
// both. The error says why there can be no such charging.
func (l *Limit) ChargeOn(attribute identity.Attribute, on ...codes.Code) (*Outcomes, error) {
	if err := l.checkCharge(attribute.Name, on); err != nil {
		return nil, fmt.Errorf("grpclimit: charge by outcome: %w", err)
	}
	return &Outcomes{limit: l, attribute: attribute, codes: slices.Clone(on)}, nil
}

func (l *Limit) checkCharge(name string, on []codes.Code) error {
	if len(on) == 0 {
		return errors.New("no code")
	}
	for _, c := range on {
		if c > codes.Unauthenticated {
			return fmt.Errorf("code %d: want one of gRPC's, 0 to %d", c, codes.Unauthenticated)
		}
	}
	p := &plan{limit: l}
	p.read(name)
	_, err := l.source(name)
	switch {
	case err != nil:
		return err
	case len(p.unknown) == 0:
		return fmt.Errorf("attribute %.40q: calls have it anyway", name)
	}
	return nil
}

// Unary charges calls of one message each way.
func (o *Outcomes) Unary() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (res any, err error) {
		err = o.around(ctx, info.FullMethod, func() error {
			res, err = handler(ctx, req)
			return err
		})
		return res, err
	}
}

// Stream charges calls with a stream of messages, when they end.
func (o *Outcomes) Stream() grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		return o.around(stream.Context(), info.FullMethod, func() error { return handler(srv, stream) })
	}
}

func (o *Outcomes) around(ctx context.Context, method string, call func() error) error {
	l := o.limit
	p := l.plans.InForce()
	if !slices.Contains(p.names, o.attribute.Name) { // no rule asks for it
		return call()
	}
	attrs := l.scratch.Get().(*identity.Attributes)
	defer l.free(attrs)
	*attrs = p.attributes(append((*attrs)[:0], o.attribute), ctx, method)
	if d := l.checker.Do(check.Request{Attributes: *attrs, Mode: check.Peek}).Decision; !d.Allowed {
		return l.deny(ctx, p, d)
	}
	code := codes.Internal // of a panic
	defer func() {
		if slices.Contains(o.codes, code) {
			l.checker.Do(check.Request{Attributes: *attrs, Mode: check.Record})
		}
	}()
	err := call()
	code = codeOf(err)
	return err
}

// codeOf is the code that grpc.Server makes of a handler's error.
func codeOf(err error) codes.Code {
	s, ok := status.FromError(err)
	if !ok {
		s = status.FromContextError(err)
	}
	return s.Code()
}
