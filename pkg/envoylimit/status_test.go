package envoylimit

import (
	"math"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// The unit and the name of a limit, and when it begins anew.
func TestCurrentLimit(t *testing.T) {
	c := client(t, New(newChecker(t, shop), Options{}))
	for _, test := range []struct {
		entries []string
		name    string
		unit    ratelimitv3.RateLimitResponse_RateLimit_Unit
		within  time.Duration
	}{
		{[]string{"user=ann"}, "shop|user", ratelimitv3.RateLimitResponse_RateLimit_DAY, day},
		{[]string{"user=ann", "path=/checkout"}, "shop|user|path=/checkout", ratelimitv3.RateLimitResponse_RateLimit_HOUR, time.Hour},
		{[]string{"plan=a"}, "shop|plan", ratelimitv3.RateLimitResponse_RateLimit_MONTH, 30 * day},
		{[]string{"gold=a"}, "shop|gold", ratelimitv3.RateLimitResponse_RateLimit_WEEK, 7 * day},
	} {
		s := ask(t, c, request("shop", 0, descriptor(test.entries...))).Statuses[0]
		reset := s.DurationUntilReset
		if s.CurrentLimit.GetName() != test.name || s.CurrentLimit.Unit != test.unit || s.CurrentLimit.UnitMultiplier != nil {
			t.Errorf("%v: %v", test.entries, s)
		}
		if reset.GetSeconds() < 1 || reset.AsDuration() > test.within || reset.GetNanos() != 0 {
			t.Errorf("%v: resets in %v", test.entries, reset.AsDuration())
		}
	}
}

func TestUnitOfAnyWindow(t *testing.T) {
	for _, test := range []struct {
		length time.Duration
		unit   ratelimitv3.RateLimitResponse_RateLimit_Unit
		times  uint32 // 0: none
	}{
		{time.Second, ratelimitv3.RateLimitResponse_RateLimit_SECOND, 0},
		{time.Minute, ratelimitv3.RateLimitResponse_RateLimit_MINUTE, 0},
		{90 * time.Second, ratelimitv3.RateLimitResponse_RateLimit_SECOND, 90},
		{10 * time.Minute, ratelimitv3.RateLimitResponse_RateLimit_MINUTE, 10},
		{24 * time.Hour, ratelimitv3.RateLimitResponse_RateLimit_DAY, 0},
		{14 * day, ratelimitv3.RateLimitResponse_RateLimit_WEEK, 2},
		{60 * day, ratelimitv3.RateLimitResponse_RateLimit_MONTH, 2},
		{365 * day, ratelimitv3.RateLimitResponse_RateLimit_YEAR, 0},
		{366 * day, ratelimitv3.RateLimitResponse_RateLimit_DAY, 366},
		{250 * time.Millisecond, ratelimitv3.RateLimitResponse_RateLimit_UNKNOWN, 0},
		{1500 * time.Millisecond, ratelimitv3.RateLimitResponse_RateLimit_UNKNOWN, 0},
	} {
		got := limitOf("r", math.MaxInt64, test.length)
		if got.Unit != test.unit || got.GetUnitMultiplier().GetValue() != test.times || got.RequestsPerUnit != math.MaxUint32 {
			t.Errorf("%v: %v", test.length, got)
		}
	}
}
