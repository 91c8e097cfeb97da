package envoylimit

import (
	"math"
	"slices"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/offpath-io/offpath/pkg/rules"
)

const day = 24 * time.Hour

// lengths are the lengths of units. Those of a month and a year are envoyproxy/ratelimit's.
var lengths = map[ratelimitv3.RateLimitResponse_RateLimit_Unit]time.Duration{
	ratelimitv3.RateLimitResponse_RateLimit_SECOND: time.Second,
	ratelimitv3.RateLimitResponse_RateLimit_MINUTE: time.Minute,
	ratelimitv3.RateLimitResponse_RateLimit_HOUR:   time.Hour,
	ratelimitv3.RateLimitResponse_RateLimit_DAY:    day,
	ratelimitv3.RateLimitResponse_RateLimit_WEEK:   7 * day,
	ratelimitv3.RateLimitResponse_RateLimit_MONTH:  30 * day,
	ratelimitv3.RateLimitResponse_RateLimit_YEAR:   365 * day,
}

// reply is an answer with the memory for one descriptor, so that most take one allocation.
type reply struct {
	response ratelimitv3.RateLimitResponse
	pointer  [1]*ratelimitv3.RateLimitResponse_DescriptorStatus
	status   [1]descriptorStatus
}

// descriptorStatus is the status of one descriptor.
type descriptorStatus struct {
	status ratelimitv3.RateLimitResponse_DescriptorStatus
	reset  durationpb.Duration
}

// answer returns the answer for the decisions.
func (c *call) answer() *ratelimitv3.RateLimitResponse {
	out := new(reply)
	all, pointers := out.status[:], out.pointer[:]
	if n := len(c.descriptors); n > 1 {
		all = make([]descriptorStatus, n)
		pointers = make([]*ratelimitv3.RateLimitResponse_DescriptorStatus, n)
	}
	r := &out.response
	r.OverallCode, r.Statuses = ratelimitv3.RateLimitResponse_OK, pointers
	if c.quotasUsedUp() {
		r.OverallCode = ratelimitv3.RateLimitResponse_OVER_LIMIT
	}
	for i := range c.descriptors {
		c.setStatus(&all[i], &c.descriptors[i])
		pointers[i] = &all[i].status
		c.countHits(&c.descriptors[i])
		if c.denies(&c.descriptors[i]) {
			r.OverallCode = ratelimitv3.RateLimitResponse_OVER_LIMIT
		}
		if d := &c.descriptors[i].decision; d.Unmatched && !d.Allowed {
			r.RawBody = unmatchedBody
		}
	}
	c.addHeaders(r)
	return r
}

// unmatchedBody is what Envoy answers its client if no rule matches a request, and such requests
// are denied.
var unmatchedBody = []byte("no rule matches the request, and only requests that a rule matches are served\n")

// setStatus sets the status of one descriptor.
func (c *call) setStatus(s *descriptorStatus, q *descriptor) {
	d := &q.decision
	s.status.Code = ratelimitv3.RateLimitResponse_OK
	if !d.Allowed {
		s.status.Code = ratelimitv3.RateLimitResponse_OVER_LIMIT
	}
	limit := c.limit(q)
	if limit == nil {
		if c.isUnlimited(q) {
			s.status.LimitRemaining = math.MaxUint32
		}
		return
	}
	s.status.CurrentLimit, s.status.LimitRemaining = limit, clamp(d.Remaining)
	// Whole seconds, since Envoy reads no others, and not 0 before the end.
	s.reset.Seconds = seconds(d.Reset)
	s.status.DurationUntilReset = &s.reset
}

// limit returns the limit that decided, nil if none did.
func (c *call) limit(q *descriptor) *ratelimitv3.RateLimitResponse_RateLimit {
	d := &q.decision
	name := d.Rule
	switch {
	case q.inline != nil:
		return q.inline.shown
	case name == "":
		name = d.Observed // this rule denies nobody
	}
	if c.plan.limits[name] == nil { // none, or a rule that has just come into force
		c.plan = c.service.plans.Get()
	}
	shown := c.plan.limits[name]
	if rule, ok := c.plan.set.Lookup(name); ok && len(rule.Overrides) > 0 {
		return c.overridden(shown, rule, q)
	}
	return shown
}

// overridden returns the limit of a rule for a caller that may have an override.
func (c *call) overridden(
	shown *ratelimitv3.RateLimitResponse_RateLimit, rule *rules.Rule, q *descriptor,
) *ratelimitv3.RateLimitResponse_RateLimit {
	i := rule.Override(c.attributes(q), time.Now())
	switch {
	case i < 0:
		return shown
	case rule.Overrides[i].Action == rules.Blocked:
		return limitOf(rule.Name, 0, rule.Window.Length)
	}
	return limitOf(rule.Name, q.decision.Limit, rule.Terms(i).Window.Length)
}

// isUnlimited reports whether a descriptor without a limit matches an unlimited rule.
func (c *call) isUnlimited(q *descriptor) bool {
	if !c.plan.unlimited || q.to-q.from < 2 { // a descriptor without entries matches nothing
		return false
	}
	c.found = c.plan.set.Find(c.found[:0], c.attributes(q))
	return slices.ContainsFunc(c.found, func(r *rules.Rule) bool { return r.Unlimited })
}

// limitOf returns a limit in Envoy's type: hits per the largest unit of which the window is a
// multiple. A window that is not a multiple of a second has no unit.
func limitOf(
	name string, hits int64, length time.Duration,
) *ratelimitv3.RateLimitResponse_RateLimit {
	limit := &ratelimitv3.RateLimitResponse_RateLimit{Name: name, RequestsPerUnit: clamp(hits)}
	var longest time.Duration
	for unit, of := range lengths {
		if length%of == 0 && of > longest {
			limit.Unit, longest = unit, of
		}
	}
	if longest > 0 && longest < length {
		limit.UnitMultiplier = wrapperspb.UInt32(uint32(length / longest))
	}
	return limit
}

// clamp returns a count in the range of Envoy's type.
func clamp(n int64) uint32 { return uint32(min(max(n, 0), math.MaxUint32)) }

// seconds returns whole seconds, rounded up.
func seconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/time.Second) + 1
}
