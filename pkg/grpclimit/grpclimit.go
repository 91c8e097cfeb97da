// Package grpclimit limits the calls of a gRPC server.
//
//	limit, err := grpclimit.New(checker, grpclimit.Options{User: userOf})
//	if err != nil {
//		log.Fatal(err)
//	}
//	server := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(limit.Unary()), grpc.ChainStreamInterceptor(limit.Stream()))
//
// A [Limit] reads the attributes that the rules in force ask for from a call, and no others, asks
// the checker, and lets the call pass or answers it. It decides nothing itself.
//
//	attribute     meaning
//	method        the full name, "/package.Service/Method"
//	service       its middle part, "package.Service"
//	ip            the client's address; IPv6 by its first 64 bits, unless set otherwise
//	address       the client's whole address: for lists of addresses
//	header:NAME   the first value of this name in the metadata, in any case;
//	              header:Host is the :authority
//	user          the result of Options.User
//	any other     by Options.Sources
//
// The client writes the metadata: a key from it limits only clients that do not change it.
//
// A denial is an error of code ResourceExhausted, or Unavailable under rules of status 503, with
// details; see [Status]. Where a rule has on_limit: queue, the call waits for its turn until its
// context ends.
//
// A stream is one call, however many messages it has, unless [Options.Messages] is set.
// [Limit.ChargeOn] charges calls by the code that they end with, for example failed logins.
package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/identity/httpidentity"
	"github.com/offpath-io/offpath/pkg/internal/adapter"
	"github.com/offpath-io/offpath/pkg/limitheaders"
	"github.com/offpath-io/offpath/pkg/rules"
)

// Checker decides: a [check.Checker], or in tests one of package checktest.
type Checker interface {
	Check(attrs identity.Attributes, cost int64) check.Decision
	Do(r check.Request) check.Result
	Wait(ctx context.Context, r check.Request) (check.Result, error)
	Rules() *rules.Set
}

// Options of a Limit. The zero value works: it trusts no proxy, knows no users, and sends no
// headers.
type Options struct {
	// Identity says how to find the address of a call's client: trusted proxies, the header that
	// they write, which is metadata here, and address prefixes. It must have no Sources, which are
	// for HTTP.
	Identity httpidentity.Options
	// User returns the user who makes a call, for the attribute user; "" for a call without one. It
	// is called only if a rule asks for users, once per call, and again for a stream when the rules
	// change; and concurrently. It must return verified users only: a client that can choose its
	// user can evade its limit. Chain the interceptor that verifies users before the Limit.
	User func(ctx context.Context) string
	// Sources are further attributes, by name. They take precedence over built-in ones. They must
	// not have ip and address.
	Sources map[string]Source
	// Messages makes each message that a client sends on a stream count as a call. The stream
	// itself is the first one.
	Messages bool
	// Headers of answers, as metadata, about the decision on the call. Default: limitheaders.None.
	Headers limitheaders.Format
	// Denied returns the error of a denied call. Default: [Error], which also replaces nil.
	Denied func(ctx context.Context, d check.Decision) error
	// Acquire is how long a call waits for permits under rules of strict enforcement, at most. If
	// it is negative, calls do not wait, and the first hit of a new key is denied. Default 20 ms.
	Acquire time.Duration
}

// Limit limits calls. Its methods are safe for concurrent use.
type Limit struct {
	checker Checker
	builder *httpidentity.Builder
	options Options
	plans   *adapter.Prepared[plan]

	forwarding string // the name of the header that trusted proxies write, in metadata's spelling
}

// New returns a Limit that asks this checker. It starts nothing. It fails on an invalid option, and
// if no call can have an attribute that the rules in force ask for.
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
	o, err := o.checked()
	if err != nil {
		return nil, err
	}
	builder, err := httpidentity.NewBuilder(o.Identity)
	if err != nil {
		return nil, err
	}
	set := checker.Rules()
	if set == nil {
		return nil, errors.New("the checker has no rules")
	}
	l := &Limit{
		checker: checker, builder: builder, options: o,
		forwarding: strings.ToLower(o.Identity.Forwarding.String()),
	}
	for _, name := range set.Attributes() {
		if _, err := l.source(name); err != nil {
			return nil, err
		}
	}
	l.plans = adapter.Prepare(checker.Rules, l.newPlan)
	return l, nil
}

// Unary limits unary calls.
func (l *Limit) Unary() grpc.UnaryServerInterceptor {
	return func(
		ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
	) (any, error) {
		p := l.plans.Get()
		d := l.decide(ctx, p, info.FullMethod)
		if l.options.Headers != limitheaders.None {
			_ = grpc.SetHeader(ctx, p.metadata(d)) // an error means that they have been sent
		}
		if !d.Allowed {
			return nil, l.deny(ctx, p, d)
		}
		return handler(ctx, req)
	}
}

// Decide decides about a call to this method as the interceptors do, charges it if it may pass, and
// sends nothing. Where its rule has on_limit: queue, it waits. It is for servers that write answers
// of their own.
func (l *Limit) Decide(ctx context.Context, method string) check.Decision {
	return l.decide(ctx, l.plans.Get(), method)
}

// Unknown returns the attributes that the rules in force ask for and nothing provides, sorted. A
// rule with a key of them applies to no call, unless its on_missing says otherwise: log them at
// start. The slice is the caller's.
func (l *Limit) Unknown() []string { return slices.Clone(l.plans.Get().unknown) }

func (l *Limit) decide(ctx context.Context, p *plan, method string) check.Decision {
	attrs := adapter.Borrow()
	defer adapter.Return(attrs)
	*attrs = p.attributes(*attrs, ctx, method)
	return p.decide(ctx, *attrs)
}

func (p *plan) decide(ctx context.Context, attrs identity.Attributes) check.Decision {
	return p.waiting.Decide(ctx, p.limit.checker, attrs, p.limit.options.Acquire)
}
