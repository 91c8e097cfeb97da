// Package envoylimit is Envoy's rate limit service v3, envoy.service.ratelimit.v3.RateLimitService,
// in front of a checker. It replaces envoyproxy/ratelimit without a change of its clients.
//
// A request has a *domain* and *descriptors*, each a list of *entries*. Each descriptor becomes the
// attributes of one check, in this order: the domain as the attribute "domain", and each entry's
// key and value. So rules that package envoyrules has imported apply as they did, and any rule may
// match a domain. An entry whose key occurred before is another attribute, see
// envoyrules.Attribute.
//
// A descriptor costs its own hits_addend, or else the request's, or else 1. With a hits_addend of 0
// of its own it is only peeked at: it is over its limit if no further hit would pass, and is
// charged nothing. A descriptor may have an inline limit, which takes the place of the rules in
// domains that the rules know. Then hits with the same domain, list of keys, values and unit share
// a counter, whatever their limits.
//
// The answer is OVER_LIMIT if a descriptor is over its limit (of those with quota_mode, if all
// are), and then none is charged: several descriptors are all peeked at first. Those that share a
// key may fit one by one and not together; then the charges are refunded. Between peek and charge
// another request may use up the rest; of descriptors that share no key, those before the denied
// one stay charged then.
//
// The files: envoylimit.go (the service), request.go (reads a request), decide.go (charges all
// descriptors or none), inline.go (inline limits), shared.go (descriptors that share a key),
// plan.go (what is prepared for a rule set), status.go and headers.go (the answer), stats.go (hits
// by descriptor), server.go (gRPC), json.go (HTTP).
package envoylimit

import (
	"context"
	"sync"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/internal/adapter"
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
	// Headers that answers tell Envoy to add to its response. Default: none. Envoy can make them
	// from the statuses itself.
	Headers Headers
	// Acquire is how long a request waits for permits at most, under rules of strict enforcement;
	// and never for more than three quarters of the time that its caller gives it, which is 20 ms
	// unless Envoy is told otherwise. Default 0: not at all.
	Acquire time.Duration
	// Shadow lets every request pass, also one whose own limit is used up. What rules would have
	// denied is for the rules in shadow to say.
	Shadow bool
	// MaxDescriptors bounds the descriptors of a request. Default 64.
	MaxDescriptors int
}

const (
	// defaultDescriptors is the default of Options.MaxDescriptors.
	defaultDescriptors = 64
	// MaxEntries bounds the entries of a descriptor: no rule can ask for more attributes.
	MaxEntries = 64
)

// Service answers requests. Its methods are safe for concurrent use.
type Service struct {
	ratelimitv3.UnimplementedRateLimitServiceServer

	checker Checker
	options Options
	plans   *adapter.Prepared[plan]
	calls   sync.Pool // *call
	stats   stats
}

// New returns a service that asks this checker, which must have rules. It starts nothing; see
// [Register].
func New(checker Checker, o Options) *Service {
	if o.MaxDescriptors <= 0 {
		o.MaxDescriptors = defaultDescriptors
	}
	s := &Service{checker: checker, options: o}
	s.calls.New = func() any { return new(call) }
	s.plans = adapter.Prepare(checker.Rules, func(set *rules.Set) *plan {
		p := newPlan(set)
		p.hits = s.stats.of(set)
		return p
	})
	return s
}

// ShouldRateLimit answers one request. Its errors are gRPC's: InvalidArgument for an invalid
// request, with the place and the reason; ResourceExhausted for an inline limit where there are too
// many. Nothing is charged then. A domain that no rule matches is not limited.
func (s *Service) ShouldRateLimit(
	ctx context.Context, r *ratelimitv3.RateLimitRequest,
) (*ratelimitv3.RateLimitResponse, error) {
	c := s.calls.Get().(*call)
	defer s.release(c)
	c.service, c.plan = s, s.plans.Get()
	if err := c.read(r); err != nil {
		return nil, err
	}
	if err := c.decide(ctx); err != nil {
		return nil, err
	}
	return c.answer(), nil
}

// maxKept bounds the memory of a call that is kept for the next one, maxTextKept that of its keys.
const maxKept, maxTextKept = 256, 4096

// release keeps the memory of a call, and nothing of its request.
func (s *Service) release(c *call) {
	if cap(c.attrs) > maxKept || cap(c.descriptors) > maxKept ||
		cap(c.text) > maxTextKept || cap(c.counters) > maxKept {
		return
	}
	clear(c.attrs)
	clear(c.descriptors)
	clear(c.text)
	c.attrs, c.descriptors, c.plan, c.shared = c.attrs[:0], c.descriptors[:0], nil, false
	s.calls.Put(c)
}
