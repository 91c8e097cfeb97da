package envoylimit

import (
	"math"
	"strings"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
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

// A configuration of envoyproxy/ratelimit is answered as that answers it.
func TestTheirConfiguration(t *testing.T) {
	c := client(t, New(newChecker(t, shop), Options{}))
	for _, s := range []step{
		{"the first hit", request("shop", 0, newDescriptor("user=ann")), ok, 3, 2},
		{"two at once", request("shop", 2, newDescriptor("user=ann")), ok, 3, 0},
		{"one too many", request("shop", 1, newDescriptor("user=ann")), over, 3, 0},
		{"another user", request("shop", 0, newDescriptor("user=bob")), ok, 3, 2},
		{"more than is left: nothing is charged", request("shop", 3, newDescriptor("user=bob")), over, 3, 2},
		{"a descriptor's own hits come before the request's", request("shop", 3, withHits(newDescriptor("user=bob"), 1)), ok, 3, 1},
		{"two entries are another limit", request("shop", 0, newDescriptor("user=ann", "path=/checkout")), ok, 2, 1},
		{"a value without a limit of its own", request("shop", 0, newDescriptor("user=ann", "path=/")), ok, 0, 0},
		{"unlimited", request("shop", 1000, newDescriptor("user=admin")), ok, 0, math.MaxUint32},
		{"a key without a limit", request("shop", 0, newDescriptor("color=red")), ok, 0, 0},
		{"no entries", request("shop", 0, newDescriptor()), ok, 0, 0},
		{"an unknown domain", request("elsewhere", 0, newDescriptor("user=ann")), ok, 0, 0},
		{"in shadow", request("shop", 1, newDescriptor("try=x")), ok, 1, 0},
		{"in shadow, over", request("shop", 1, newDescriptor("try=x")), ok, 1, 0},
	} {
		s.run(t, c)
	}
	banned := ask(t, c, request("shop", 0, newDescriptor("user=banned")))
	if s := banned.Statuses[0]; banned.OverallCode != over || s.CurrentLimit == nil || s.CurrentLimit.RequestsPerUnit != 0 {
		t.Errorf("a limit of 0: %v", banned)
	}
}

// Statuses stand in the order of the descriptors, and one denial charges none of them, and is
// counted as one by its rule.
func TestSeveralDescriptors(t *testing.T) {
	checker := newChecker(t, shop)
	c := client(t, New(checker, Options{}))
	three := request("shop", 1, newDescriptor("plan=a"), newDescriptor("user=ann"), newDescriptor("color=red"))
	for i := range uint32(3) {
		answer := ask(t, c, three)
		if answer.OverallCode != ok || answer.Statuses[0].LimitRemaining != 6-i || answer.Statuses[1].LimitRemaining != 2-i ||
			answer.Statuses[2].CurrentLimit != nil {
			t.Fatalf("hit %d: %v", i+1, answer)
		}
	}
	for range 3 {
		answer := ask(t, c, three)
		if answer.OverallCode != over || answer.Statuses[0].Code != ok || answer.Statuses[1].Code != over || answer.Statuses[2].Code != ok {
			t.Fatalf("over: %v", answer)
		}
		if left := answer.Statuses[0].LimitRemaining; left != 4 {
			t.Fatalf("the other descriptor was charged: %d left", left)
		}
	}
	if answer := ask(t, c, request("shop", 1, newDescriptor("plan=a"))); answer.Statuses[0].LimitRemaining != 3 {
		t.Errorf("afterwards: %v", answer)
	}
	denied := make(map[string]int64)
	for _, s := range checker.Stats().Rules {
		denied[s.Rule] = s.Denied
	}
	if denied["shop|user"] != 3 || denied["shop|plan"] != 0 {
		t.Errorf("denials are counted as %v", denied)
	}
}

// What is only looked at is charged nothing, and is over when no further hit would pass.
func TestLook(t *testing.T) {
	c := client(t, New(newChecker(t, shop), Options{}))
	look := func() *ratelimit.RateLimitDescriptor { return withHits(newDescriptor("user=ann"), 0) }
	for _, s := range []step{
		{"before any hit", request("shop", 1, look()), ok, 3, 3},
		{"again", request("shop", 5, look()), ok, 3, 3},
		{"two hits", request("shop", 2, newDescriptor("user=ann")), ok, 3, 1},
		{"one is left", request("shop", 1, look()), ok, 3, 1},
		{"beside another that is charged", request("shop", 1, look(), newDescriptor("plan=a")), ok, 3, 1},
		{"the last hit", request("shop", 1, newDescriptor("user=ann")), ok, 3, 0},
		{"none is left", request("shop", 1, look()), over, 3, 0},
		{"so nothing beside it is charged", request("shop", 1, look(), newDescriptor("plan=a")), over, 3, 0},
	} {
		s.run(t, c)
	}
	if s := ask(t, c, request("shop", 1, withHits(newDescriptor("plan=a"), 0))).Statuses[0]; s.LimitRemaining != 6 {
		t.Errorf("the other descriptor: %v", s)
	}
}

// A limit replaces another one that another descriptor of the request meets, unless it is in
// shadow: that never denies.
func TestReplacedByAnotherDescriptor(t *testing.T) {
	inShadow := strings.Replace(shop, "- key: gold", "- key: gold\n    shadow_mode: true", 1)
	for text, replaced := range map[string]bool{shop: true, inShadow: false} {
		c := client(t, New(newChecker(t, text), Options{}))
		plan, gold := newDescriptor("plan=a"), newDescriptor("gold=a")
		one := ask(t, c, request("shop", 1, plan, gold)).Statuses
		other := ask(t, c, request("shop", 1, gold, plan)).Statuses
		if (one[0].CurrentLimit == nil) != replaced || (other[1].CurrentLimit == nil) != replaced {
			t.Errorf("replaced %v: %v and %v", replaced, one, other)
		}
		if replaced && (one[1].CurrentLimit == nil || other[0].CurrentLimit == nil) {
			t.Errorf("it does not hold itself: %v and %v", one, other)
		}
		if full := ask(t, c, request("shop", 6, plan, gold)); (full.OverallCode == ok) != replaced {
			t.Errorf("replaced %v: %v", replaced, full)
		}
		left := uint32(4) // of 7, charged with two hits and one now
		if replaced {
			left = 6
		}
		if s := ask(t, c, request("shop", 1, plan)).Statuses[0]; s.LimitRemaining != left {
			t.Errorf("replaced %v: %v, want %d left", replaced, s, left)
		}
	}
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

// Hits that are known only afterwards count if the rule counts all, so that the next look finds no
// room.
func TestChargedAfterwards(t *testing.T) {
	for count, want := range map[string]ratelimitv3.RateLimitResponse_Code{"all": over, "admitted": ok} {
		c := client(t, New(newChecker(t, "rules: [{name: tokens, match: {domain: llm}, key: [user], limit: 10/day, count: "+count+"}]"), Options{}))
		for range 3 {
			ask(t, c, request("llm", 1, withHits(newDescriptor("user=ann"), 4)))
		}
		if answer := ask(t, c, request("llm", 1, withHits(newDescriptor("user=ann"), 0))); answer.OverallCode != want {
			t.Errorf("count: %s: %v", count, answer)
		}
	}
}
