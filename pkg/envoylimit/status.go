package envoylimit

import (
	"math"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/rules"
)

const day = 24 * time.Hour

// lengths are how long units are; a month and a year are as long as envoyproxy/ratelimit has them.
var lengths = map[ratelimitv3.RateLimitResponse_RateLimit_Unit]time.Duration{
	ratelimitv3.RateLimitResponse_RateLimit_SECOND: time.Second,
	ratelimitv3.RateLimitResponse_RateLimit_MINUTE: time.Minute,
	ratelimitv3.RateLimitResponse_RateLimit_HOUR:   time.Hour,
	ratelimitv3.RateLimitResponse_RateLimit_DAY:    day,
	ratelimitv3.RateLimitResponse_RateLimit_WEEK:   7 * day,
	ratelimitv3.RateLimitResponse_RateLimit_MONTH:  30 * day,
	ratelimitv3.RateLimitResponse_RateLimit_YEAR:   365 * day,
}

// reply is an answer with the memory for what it usually holds, so that it is made in one piece.
type reply struct {
	response ratelimitv3.RateLimitResponse
	pointer  [1]*ratelimitv3.RateLimitResponse_DescriptorStatus
	status   [1]said
}

// said is what is said of one descriptor.
type said struct {
	status ratelimitv3.RateLimitResponse_DescriptorStatus
	reset  durationpb.Duration
}

// answer says what has been decided.
func (a *asking) answer() *ratelimitv3.RateLimitResponse {
	out := new(reply)
	all, pointers := out.status[:], out.pointer[:]
	if n := len(a.asked); n > 1 {
		all, pointers = make([]said, n), make([]*ratelimitv3.RateLimitResponse_DescriptorStatus, n)
	}
	r := &out.response
	r.OverallCode, r.Statuses = ratelimitv3.RateLimitResponse_OK, pointers
	for i := range a.asked {
		a.say(&all[i], &a.asked[i])
		pointers[i] = &all[i].status
		if !a.asked[i].decision.Allowed {
			r.OverallCode = ratelimitv3.RateLimitResponse_OVER_LIMIT
		}
	}
	a.addHeaders(r)
	return r
}

// say writes the status of one descriptor.
func (a *asking) say(s *said, q *question) {
	d := &q.decision
	s.status.Code = ratelimitv3.RateLimitResponse_OK
	if !d.Allowed {
		s.status.Code = ratelimitv3.RateLimitResponse_OVER_LIMIT
	}
	limit := a.limit(q)
	if limit == nil {
		if a.isUnlimited(q) {
			s.status.LimitRemaining = math.MaxUint32
		}
		return
	}
	s.status.CurrentLimit, s.status.LimitRemaining = limit, clamp(d.Remaining)
	// Whole seconds, as Envoy tells nothing else, and never 0 for what is not over yet.
	s.reset.Seconds = seconds(d.Reset)
	s.status.DurationUntilReset = &s.reset
}

// limit is the one that decided, nil if none did.
func (a *asking) limit(q *question) *ratelimitv3.RateLimitResponse_RateLimit {
	d := &q.decision
	name := d.Rule
	switch {
	case q.own != nil:
		return q.own.shown
	case name == "":
		name = d.Observed // which nobody is denied by
	}
	shown := a.prepared.limits[name]
	if shown == nil { // none, or one of rules that came into force just now
		return a.newer(name, d)
	}
	if rule, ok := a.prepared.set.Lookup(name); ok && len(rule.Overrides) > 0 {
		return a.overridden(shown, rule, q)
	}
	return shown
}

// newer is the limit of a rule that is not in the prepared set.
func (a *asking) newer(name string, d *check.Decision) *ratelimitv3.RateLimitResponse_RateLimit {
	if name == "" {
		return nil
	}
	if rule, ok := a.service.checker.Rules().Lookup(name); ok {
		return limitOf(name, d.Limit, rule.Window.Length)
	}
	return nil
}

// overridden is the limit of a rule for a caller who may have an override.
func (a *asking) overridden(shown *ratelimitv3.RateLimitResponse_RateLimit, rule *rules.Rule, q *question) *ratelimitv3.RateLimitResponse_RateLimit {
	i := rule.Override(a.attributes(q), time.Now())
	switch {
	case i < 0:
		return shown
	case rule.Overrides[i].Action == rules.Blocked:
		return limitOf(rule.Name, 0, rule.Window.Length)
	}
	return limitOf(rule.Name, q.decision.Limit, rule.Terms(i).Window.Length)
}

// isUnlimited says whether a descriptor that nothing has limited has a rule that says so.
func (a *asking) isUnlimited(q *question) bool {
	if !a.prepared.silent {
		return false
	}
	a.found = a.prepared.set.Find(a.found[:0], a.attributes(q))
	for _, r := range a.found {
		if r.Unlimited {
			return true
		}
	}
	return false
}

// limitOf puts a limit into the words of Envoy: so many hits per as large a unit as the window is made of. A
// window that is not made of whole seconds has no unit.
func limitOf(name string, hits int64, length time.Duration) *ratelimitv3.RateLimitResponse_RateLimit {
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

// clamp is a count as Envoy can have it.
func clamp(n int64) uint32 { return uint32(min(max(n, 0), math.MaxUint32)) }

// seconds are whole ones, rounded up.
func seconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/time.Second) + 1
}
