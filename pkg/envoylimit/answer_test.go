package envoylimit

import (
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// shop is a configuration as envoyproxy/ratelimit has it.
const shop = `
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: day, requests_per_unit: 3}
    descriptors:
      - key: path
        value: /checkout
        rate_limit: {unit: hour, requests_per_unit: 2}
  - key: user
    value: admin
    rate_limit: {unlimited: true}
  - key: user
    value: banned
    rate_limit: {unit: second, requests_per_unit: 0}
  - key: try
    shadow_mode: true
    rate_limit: {unit: year, requests_per_unit: 1}
  - key: plan
    rate_limit: {unit: month, requests_per_unit: 7, name: plan}
  - key: gold
    rate_limit: {unit: week, requests_per_unit: 9, replaces: [{name: plan}]}
`

// step is one request of a script, and what is said of its first descriptor.
type step struct {
	why       string
	request   *ratelimitv3.RateLimitRequest
	overall   ratelimitv3.RateLimitResponse_Code
	limit     uint32 // 0: none
	remaining uint32
}

func (s *step) run(t *testing.T, c ratelimitv3.RateLimitServiceClient) *ratelimitv3.RateLimitResponse_DescriptorStatus {
	t.Helper()
	answer := ask(t, c, s.request)
	first := answer.Statuses[0]
	if answer.OverallCode != s.overall || first.GetCurrentLimit().GetRequestsPerUnit() != s.limit || first.LimitRemaining != s.remaining {
		t.Errorf("%s: %v", s.why, answer)
	}
	return first
}

// Rules of our own format apply, with overrides, strictness, and whatever else they say.
func TestOwnFormat(t *testing.T) {
	c := client(t, New(newChecker(t, `
rules:
  - name: api
    match: {domain: api}
    key: [user]
    limit: 3000/10m
    overrides:
      - {match: {user: big}, limit: 9000/hour}
      - {match: {user: bad}, limit: blocked}
  - name: tickets
    match: {domain: tickets}
    key: [event]
    limit: 2/day
    enforcement: strict
`), Options{Acquire: time.Second}))
	for _, s := range []step{
		{"a rule", request("api", 10, newDescriptor("user=ann", "path=/")), ok, 3000, 2990},
		{"an override", request("api", 10, newDescriptor("user=big")), ok, 9000, 8990},
		{"blocked", request("api", 10, newDescriptor("user=bad")), over, 0, 0},
		{"a permit", request("tickets", 0, newDescriptor("event=x")), ok, 2, 1},
		{"another", request("tickets", 0, newDescriptor("event=x")), ok, 2, 0},
		{"no more", request("tickets", 0, newDescriptor("event=x")), over, 2, 0},
	} {
		s.run(t, c)
	}
}
