// Package envoylimit answers Envoy's rate limit service v3, envoy.service.ratelimit.v3.RateLimitService, by a checker: what
// calls envoyproxy/ratelimit today can call this instead.
//
// A request has a *domain* and *descriptors*, each a list of *entries*. Each descriptor becomes the attributes of one
// check: the domain as the attribute "domain", and each entry's key and value. So rules that package envoyrules has
// imported apply as they did, and any rule may match a domain. An entry whose key is "domain", or that of an
// earlier entry, does not count.
//
// A descriptor costs its own hits_addend, or else the request's, or else 1. With one of its own of 0 it is only looked at: it
// is over its limit if no further hit would pass, and is charged nothing. A descriptor may bring a limit of its own, which takes the
// place of the rules in domains that the rules know. Hits of one domain, list of keys, values and unit share a
// count then, whatever their limits.
//
// The answer is OVER_LIMIT if a descriptor is, and then none is charged: of several, all are looked at first. Those that count
// against one key may fit one by one and not together; what was charged is given back then. Between the
// look and the charge another request may take what was left; of descriptors that have no key in common, those before the
// one that is denied then stay charged.
//
// The files: envoylimit.go (the service), request.go (what is asked), decide.go (charge all or none), own.go (limits of descriptors' own),
// together.go (descriptors with a key in common),
// prepared.go (what is known of a rule set beforehand), status.go and headers.go (the answer), server.go (gRPC).
package envoylimit

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

// Checker decides: a *check.Checker, or in tests another.
type Checker interface {
	Check(attrs identity.Attributes, cost int64) check.Decision
	Do(r check.Request) check.Result
	Wait(ctx context.Context, r check.Request) (check.Result, error)
	Settle(receipt string, cost int64) error
	Rules() *rules.Set
}

// Options of a Service. The zero value works.
type Options struct {
	// Headers that answers ask Envoy to add to its response. Default none: Envoy can make them itself from the statuses.
	Headers Headers
	// Acquire is how long a request waits for permits at most, under rules of strict enforcement; and
	// never for more than three quarters of the time that its caller gives it, which is 20 ms unless
	// Envoy is told otherwise. Default 0: not at all.
	Acquire time.Duration
	// MaxDescriptors bounds the descriptors of a request. Default 64.
	MaxDescriptors int
}

const (
	// defaultDescriptors is Options.MaxDescriptors unless it is given.
	defaultDescriptors = 64
	// MaxEntries is the most entries of a descriptor: more attributes no rule can ask for.
	MaxEntries = 64
)

// Service answers requests. It is safe for concurrent use. It keeps nothing of a request.
type Service struct {
	ratelimitv3.UnimplementedRateLimitServiceServer

	checker  Checker
	options  Options
	prepared atomic.Pointer[prepared]
	scratch  sync.Pool // *asking
}

// New returns a service that decides by this checker. It starts nothing; see [Register].
func New(checker Checker, o Options) *Service {
	if o.MaxDescriptors <= 0 {
		o.MaxDescriptors = defaultDescriptors
	}
	s := &Service{checker: checker, options: o}
	s.scratch.New = func() any { return new(asking) }
	return s
}

// ShouldRateLimit answers one request. Errors are of gRPC: InvalidArgument for what makes no sense, with the place and the
// reason; ResourceExhausted for an inline limit where there are too many. Nothing is charged then. A
// domain that no rule speaks of is not limited.
func (s *Service) ShouldRateLimit(ctx context.Context, r *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
	a := s.scratch.Get().(*asking)
	defer s.release(a)
	a.service, a.prepared = s, s.prepare()
	if err := a.read(r); err != nil {
		return nil, err
	}
	if err := a.decide(ctx); err != nil {
		return nil, err
	}
	return a.answer(), nil
}

// mostKept is how much memory of a request is kept for the next, mostTextKept how much of its keys.
const mostKept, mostTextKept = 256, 4096

// release keeps the memory of a request, but nothing of what it said.
func (s *Service) release(a *asking) {
	if cap(a.attrs) > mostKept || cap(a.asked) > mostKept || cap(a.text) > mostTextKept || cap(a.counters) > mostKept {
		return
	}
	clear(a.attrs)
	clear(a.asked)
	clear(a.text)
	a.attrs, a.asked, a.prepared, a.together = a.attrs[:0], a.asked[:0], nil, false
	s.scratch.Put(a)
}
