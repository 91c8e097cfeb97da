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
	"github.com/offpath-io/offpath/pkg/internal/adapter"
)

// Outcomes charges calls by the code that they end with. Its methods are safe for concurrent use.
type Outcomes struct {
	limit     *Limit
	attribute identity.Attribute
	codes     []codes.Code
}

// ChargeOn returns interceptors that charge calls by the code that they end with, for example
// failed logins:
//
//	login := identity.Attribute{Name: "api", Value: "login"}
//	failures, err := limit.ChargeOn(login, codes.Unauthenticated)
//	grpc.ChainUnaryInterceptor(limit.Unary(), failures.Unary())
//
// The interceptors peek whether the call may pass. When the call ends with one of these codes, it
// is charged. For both, the call has this attribute besides its own. Rules that match the
// attribute, and the method, count outcomes, and no other rules should ask for it. Unary and Stream
// of the Limit decide without it, so that both can be around the same call. A rule that does not
// match the attribute and applies all the same is charged by both; rules that count outcomes should
// name it in replaces.
//
// Chain them after the Limit's own, whose denials would be outcomes otherwise. Calls in progress at
// the same time have all passed before the first of them is charged. A handler that panics counts
// as Internal. Denials have no headers: the Limit's are set already, and gRPC would send both.
//
// ChargeOn fails without a valid code, and on an attribute that calls cannot have or have anyway.
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
	read, err := l.source(name)
	if err == nil && read != nil {
		return fmt.Errorf("attribute %.40q: calls have it anyway", name)
	}
	return err
}

// Unary charges unary calls.
func (o *Outcomes) Unary() grpc.UnaryServerInterceptor {
	return func(
		ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
	) (res any, err error) {
		err = o.around(ctx, info.FullMethod, func() error {
			res, err = handler(ctx, req)
			return err
		})
		return res, err
	}
}

// Stream charges streams when they end.
func (o *Outcomes) Stream() grpc.StreamServerInterceptor {
	return func(
		srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler,
	) error {
		return o.around(stream.Context(), info.FullMethod, func() error {
			return handler(srv, stream)
		})
	}
}

func (o *Outcomes) around(ctx context.Context, method string, call func() error) error {
	l := o.limit
	p := l.plans.Get()
	if !slices.Contains(p.names, o.attribute.Name) { // no rule asks for it
		return call()
	}
	attrs := adapter.Borrow()
	defer adapter.Return(attrs)
	*attrs = p.attributes(append(*attrs, o.attribute), ctx, method)
	peek := check.Request{Attributes: *attrs, Mode: check.Peek}
	if d := l.checker.Do(peek).Decision; !d.Allowed {
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

// codeOf returns the code that grpc.Server sends for a handler's error.
func codeOf(err error) codes.Code {
	s, ok := status.FromError(err)
	if !ok {
		s = status.FromContextError(err)
	}
	return s.Code()
}
