// Package grpclimit limits the calls of a gRPC server.
//
//	limit, err := grpclimit.New(checker, grpclimit.Options{User: userOf})
//	if err != nil {
//		log.Fatal(err)
//	}
//	server := grpc.NewServer(grpc.ChainUnaryInterceptor(limit.Unary()), grpc.ChainStreamInterceptor(limit.Stream()))
//
// A [Limit] reads from a call the attributes that the rules in force ask for, and no others, asks the checker, and lets the call
// pass or answers it. It decides nothing itself.
//
//	attribute     what it is
//	method        the full name, "/package.Service/Method"
//	service       its middle part, "package.Service"
//	ip            the client's address; IPv6 grouped by its first 64 bits, if not set otherwise
//	address       the client's address, not grouped: for lists of addresses
//	header:NAME   the first value of this name in the metadata, in any case; header:Host is the :authority
//	user          what Options.User says
//	any other     as Options.Sources say
//
// Metadata is what the client wrote, whoever that is: a key of it limits only those who do not change it.
//
// A denial is an error of code ResourceExhausted, or Unavailable under rules of status 503, with details; see [Status]. Where a
// rule has on_limit: queue the call waits for its turn, and gives up when its context ends.
//
// A stream is one call, whatever goes over it, unless [Options.Messages] is set. [Limit.ChargeOn] charges calls by how
// they ended, such as logins that have failed.
package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/httplimit"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/identity/httpidentity"
	"github.com/offpath-io/offpath/pkg/internal/doors"
)

// Checker is what a Limit asks: a [check.Checker], or in tests one of package checktest.
type Checker = httplimit.Checker

// Options make a Limit. The zero value is of use: it trusts no proxy, knows no users, and sends no headers.
type Options struct {
	// Identity says whose address a call comes from: trusted proxies, the header they write, which is metadata here, and
	// prefixes of addresses. It must have no Sources, which are for HTTP.
	Identity httpidentity.Options
	// User finds who makes a call, for the attribute user; "" is nobody, and then the call has no such attribute. It is asked
	// once for each call, and of a stream again when the rules change, if a rule asks for users; by many goroutines at once. It must only say what has
	// been checked: whoever can choose his user has as many limits as he likes. Put what checks him before the Limit.
	User func(ctx context.Context) string
	// Sources are further attributes, by name. They beat what is built in, except ip and address.
	Sources map[string]Source
	// Messages makes each message that a client sends on a stream count as a call. The stream itself is the first one.
	Messages bool
	// Headers that answers have, as metadata, about the decision on the call. Default: none; httplimit.NewestDraft is the newest.
	Headers httplimit.Headers
	// Denied makes the error of a call that may not pass. Default: [Error], also in place of nil.
	Denied func(ctx context.Context, d check.Decision) error
	// Acquire is how long a call waits for permits under rules of strict enforcement, at most. Negative: not at all, and then
	// the first hit of a cold key is denied. Default 20 ms.
	Acquire time.Duration
}

// Limit limits calls. It is never changed, and may be used by many goroutines at once.
type Limit struct {
	checker Checker
	builder *httpidentity.Builder
	options Options
	headers *httplimit.Limit // writes them; nil if there are none
	plans   *doors.Plans[plan]
	scratch sync.Pool // *identity.Attributes
}

// New returns a Limit that asks this checker. It starts nothing. The error says which option cannot be, or which
// attribute of the rules in force.
func New(checker Checker, o Options) (*Limit, error) {
	if checker == nil {
		return nil, errors.New("grpclimit: no checker")
	}
	l, err := newLimit(checker, o)
	if err != nil {
		return nil, fmt.Errorf("grpclimit: %w", err)
	}
	return l, nil
}

func newLimit(checker Checker, o Options) (*Limit, error) {
	if err := o.own(); err != nil {
		return nil, err
	}
	builder, err := httpidentity.NewBuilder(o.Identity)
	if err != nil {
		return nil, err
	}
	l := &Limit{checker: checker, builder: builder, options: o}
	l.scratch.New = func() any { return new(identity.Attributes) }
	set := checker.Rules()
	if set == nil {
		return nil, errors.New("the checker has no rules")
	}
	for _, name := range set.Attributes() {
		if _, err := l.source(name); err != nil {
			return nil, err
		}
	}
	if o.Headers != httplimit.NoHeaders {
		if l.headers, err = httplimit.New(checker, httplimit.Options{Headers: o.Headers}); err != nil {
			return nil, err
		}
	}
	l.plans = doors.NewPlans(checker.Rules, l.newPlan)
	return l, nil
}

// Unary limits calls of one message each way.
func (l *Limit) Unary() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		p := l.plans.InForce()
		d := l.decide(ctx, p, info.FullMethod)
		if l.headers != nil {
			_ = grpc.SetHeader(ctx, l.metadata(d)) // an error would be that they have been sent
		}
		if !d.Allowed {
			return nil, l.deny(ctx, p, d)
		}
		return handler(ctx, req)
	}
}

// Decide decides about a call to this method as the interceptors do, charges it if it may pass, and sends nothing. Where its rule has
// on_limit: queue, it waits. It is for those who answer in a way of their own.
func (l *Limit) Decide(ctx context.Context, method string) check.Decision {
	return l.decide(ctx, l.plans.InForce(), method)
}

// Unknown are the attributes that the rules in force ask for and nothing provides, in order: a rule with such a key applies to
// no call, unless its on_missing says otherwise. Say so at start. The slice is the caller's.
func (l *Limit) Unknown() []string { return append([]string(nil), l.plans.InForce().unknown...) }

func (l *Limit) decide(ctx context.Context, p *plan, method string) check.Decision {
	attrs := l.scratch.Get().(*identity.Attributes)
	*attrs = p.attributes((*attrs)[:0], ctx, method)
	d := p.ask(ctx, *attrs)
	l.free(attrs)
	return d
}

// free keeps the room, and nothing of the call.
func (l *Limit) free(attrs *identity.Attributes) {
	clear(*attrs)
	l.scratch.Put(attrs)
}
