package envoyquota

import (
	"testing"
	"time"

	quotapb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"

	"github.com/offpath-io/offpath/pkg/check"
)

// first is what an Envoy is told that reports one bucket, of which so many requests were let
// through.
func (s *script) first(allowed uint64, pairs ...string) *quotapb.RateLimitQuotaResponse_BucketAction {
	s.t.Helper()
	c := s.envoy()
	must(s.t, s.distributor.report(s.now, c, bytesOf(s.t, reportOf(allowed, 0, 0, pairs...))))
	told := s.told(c)
	if len(told) == 0 {
		s.t.Fatal("nothing is told")
	}
	return told[len(told)-1]
}

func TestOverridesAndBurstsMakeTheLimit(t *testing.T) {
	const sliding = "rules: [{name: r, key: [user], limit: 100/second, overrides: [{match: {tier: gold}, limit: 5x}, {match: {tier: free}, limit: 60/minute}]}]"
	const tokens = "rules: [{name: r, algorithm: token_bucket, key: [user], limit: 10/second, burst: 20, overrides: [{match: {tier: gold}, limit: 5x}, {match: {tier: free}, limit: 2/second}]}]"
	for _, c := range []struct {
		name, rules, tier string
		most              uint32
		rate              float64
	}{
		{"a rate", sliding, "other", 25, 100},
		{"a factor", sliding, "gold", 125, 500},
		{"an override with a long window: what is left, at once", sliding, "free", 59, 59. / 3600},
		{"a token bucket", tokens, "other", 20, 10},
		{"a token bucket, a factor", tokens, "gold", 100, 50},
		{"a token bucket, a limit of its own", tokens, "free", 2, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t, c.rules)
			a := s.first(1, "user", "kristie", "tier", c.tier)
			if got := a.GetQuotaAssignmentAction().GetRateLimitStrategy().GetTokenBucket().GetMaxTokens(); got+1 < c.most || got > c.most {
				t.Errorf("%d at once, want %d", got, c.most)
			}
			if got := rateOf(a); got < 0.95*c.rate || got > 1.01*c.rate {
				t.Errorf("%v per second, want %v", got, c.rate)
			}
		})
	}
}

// What is used up in a fixed window is so until its end.
func TestFixedWindowsAreNotLookedBeyond(t *testing.T) {
	s := newScript(t, "rules: [{name: r, algorithm: fixed_window, key: [user], limit: 60/minute}]")
	s.now += int64(59 * time.Second)
	if got := words([]*quotapb.RateLimitQuotaResponse_BucketAction{s.first(60, "user", "kristie")}); got[0] != "DENY_ALL" {
		t.Errorf("a second before the end: %v", got)
	}
	s.now += int64(2 * time.Second)
	if got := words([]*quotapb.RateLimitQuotaResponse_BucketAction{s.first(1, "user", "kristie")}); got[0] != "bucket" {
		t.Errorf("a second after it: %v", got)
	}
}

// A report is of many requests: what one of them would cost by an attribute says nothing of all.
func TestCostAttributesAreLeftOut(t *testing.T) {
	s := newScript(t, "rules: [{name: r, key: [user], limit: 1000/hour, cost: tokens}]")
	s.first(5, "user", "kristie", "tokens", "300")
	if got := s.count(); got != 5 {
		t.Errorf("counted %v of 5", got)
	}
}

// deaf is one of so many checkers that hear of nobody.
type deaf struct{ fleetOf }

func (d deaf) Do(r check.Request) check.Result {
	result := d.Checker.Do(r)
	result.Freshness = check.LocalShare
	return result
}

func TestADeafCheckerKeepsToItsShare(t *testing.T) {
	s := newScript(t, perSecond)
	s.distributor.checker = deaf{fleetOf{s.checker, 4}}
	if got := rateOf(s.first(1, "user", "kristie")); got != 25 {
		t.Errorf("one of four gives %v of 100", got)
	}
}
