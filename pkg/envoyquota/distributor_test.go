package envoyquota

import (
	"math"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/testing/rulestest"
	"github.com/offpath-io/offpath/pkg/check"
)

func TestFirstReportGetsItsShareAtOnce(t *testing.T) {
	s := newScript(t, perSecond)
	a, b := s.envoy(), s.envoy()
	first := only(t, s.report(a, 1, 0), "bucket")
	if got := rateOf(first); got != 100 {
		t.Errorf("the only Envoy gets %v per second of 100", got)
	}
	if ttl := first.GetQuotaAssignmentAction().AssignmentTimeToLive.AsDuration(); ttl != 20*time.Second {
		t.Errorf("for %v", ttl)
	}
	s.now += int64(tick)
	if got := rateOf(only(t, s.report(b, 1, 0), "bucket")); got != 50 {
		t.Errorf("the second Envoy gets %v per second", got)
	}
	if got := rateOf(only(t, s.told(a), "bucket")); got != 50 {
		t.Errorf("the first Envoy keeps %v per second, and was to be told of less without having asked", got)
	}
}

func TestIdleBucketsAreAbandoned(t *testing.T) {
	s := newScript(t, "rules: [{name: r, key: [user], limit: 100/hour}]")
	a, b := s.envoy(), s.envoy()
	only(t, s.report(a, 1, 0), "bucket")
	for range 11 { // reports without requests do not keep it
		s.report(a, 0, 0)
		s.pass(5*time.Second, a)
	}
	only(t, s.pass(7*time.Second, a), "bucket", "abandon")
	if len(s.distributor.ledgers) != 0 || len(a.buckets) != 0 {
		t.Errorf("%d ledgers and %d buckets are left", len(s.distributor.ledgers), len(a.buckets))
	}
	only(t, s.report(b, 10, 0), "bucket") // and what it held is free
	if held := s.distributor.ledgers[b.buckets[bucketName(bucketID("user", "kristie").Bucket)].shares[0].ledger.key].Held(); held < 40 {
		t.Errorf("b gets %v of 89", held)
	}
}

func TestUsageOfShortWindowsIsSpread(t *testing.T) {
	s := newScript(t, perSecond)
	a := s.envoy()
	s.report(a, 1, 0)
	s.pass(5*time.Second, a)
	s.report(a, 400, 0) // in 5 s: 80 per second
	for range 18 {
		s.pass(tick, a)
		if got := s.count(); got > 100 {
			t.Fatalf("400 hits of 5 s are counted as %v in 1 s", got)
		}
	}
	s.report(a, 40, 0)
	s.distributor.leave(s.now, a) // and what was still to come is counted when the stream ends
	if got := charged(s.checker); got != 441 {
		t.Errorf("charged %d of 441", got)
	}
}

func TestWhatStrategiesBucketsGet(t *testing.T) {
	for _, c := range []struct {
		name, rules string
		allowed     uint64
		want        []string
	}{
		{"no rule matches", "rules: [{name: r, match: {api: x}, key: [], limit: 1/hour}]", 1, []string{"ALLOW_ALL"}},
		{"only a shadow rule", "rules: [{name: r, shadow: true, key: [], limit: 1/hour}]", 5, []string{"ALLOW_ALL"}},
		{"on an allow list", "rules: [{name: r, key: [user], limit: 1/hour, allow: {user: [kristie]}}]", 1, []string{"ALLOW_ALL"}},
		{"on a deny list", "rules: [{name: r, key: [user], limit: 9/hour, deny: {user: [kristie]}}]", 1, []string{"DENY_ALL"}},
		{"used up", "rules: [{name: r, key: [user], limit: 5/hour}]", 5, []string{"DENY_ALL"}},
		{"the domain is an attribute", "rules: [{name: r, match: {domain: shop}, key: [], limit: 5/hour}]", 5, []string{"DENY_ALL"}},
		{"the strictest decides", "rules: [{name: a, key: [], limit: 900/hour}, {name: b, key: [user], limit: 5/hour}]", 5, []string{"DENY_ALL"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t, c.rules)
			only(t, s.report(s.envoy(), c.allowed, 0), c.want...)
		})
	}
}

// A checker that denies what no rule matches has Envoys deny it, but not callers that a rule
// exempts.
func TestUnmatchedBucketsAreDenied(t *testing.T) {
	for text, want := range map[string]string{
		"rules: [{name: r, match: {api: x}, key: [], limit: 1/hour}]":                   "DENY_ALL",
		"rules: [{name: r, key: [user], limit: 1/hour, allow: {user: [kristie]}}]":      "ALLOW_ALL",
		"rules: [{name: r, key: [user], unlimited: true}]":                              "ALLOW_ALL",
		"rules: [{name: r, key: [user], limit: 1/hour, shadow: true}]":                  "ALLOW_ALL",
		"rules: [{name: r, key: [session], limit: 1/hour, exclude: {user: [x, y, z]}}]": "DENY_ALL",
	} {
		s := &script{t: t, now: simStart}
		checker, err := check.New(check.Options{Rules: rulestest.Parse(t, text), DenyUnmatched: true})
		must(t, err)
		s.checker, s.distributor = checker, newDistributor(checker, Options{}.withDefaults())
		only(t, s.report(s.envoy(), 1, 0), want)
	}
}

func TestTheStrictestRuleDecides(t *testing.T) {
	s := newScript(t, "rules: [{name: a, key: [user], limit: 20/second}, {name: b, key: [], limit: 1000/second}]")
	a := only(t, s.report(s.envoy(), 1, 0), "bucket")
	if got := rateOf(a); got != 20 {
		t.Errorf("20/second and 1000/second give %v", got)
	}
	for key, l := range s.distributor.ledgers {
		if math.Abs(l.Held()-20) > 1e-6 {
			t.Errorf("%s holds %v, and 20 are used", key.counter, l.Held())
		}
	}
}

// Of a limit that all have in common, nobody is reckoned with for more than they may use by their
// own.
func TestWhoMayUseLittleTakesLittle(t *testing.T) {
	s := newScript(t, "rules: [{name: own, match: {user: mallory}, key: [user], limit: 20/second}, {name: all, key: [], limit: 100/second}]")
	a := s.envoy()
	for range 4 {
		for user, asked := range map[string]uint64{"kristie": 350, "mallory": 50_000} {
			must(t, s.distributor.report(s.now, a, bytesOf(t, reportOf(0, asked, 0, "user", user))))
		}
		s.pass(5*time.Second, a)
	}
	kristie := a.buckets[bucketName(map[string]string{"user": "kristie"})]
	if got := kristie.granted(nil).Rate; got < 70 {
		t.Errorf("kristie wants 70 of 100 and gets %v, mallory may have 20", got)
	}
}

func TestARuleChangeIsTold(t *testing.T) {
	s := newScript(t, perSecond)
	a := s.envoy()
	s.report(a, 1, 0)
	must(t, s.checker.SetRules(parse(t, "rules: [{name: r, key: [user], limit: 10/second}]"), 1))
	if got := rateOf(only(t, s.pass(tick, a), "bucket")); got != 10 {
		t.Errorf("the limit is 10 now, and the Envoy is told %v", got)
	}
	must(t, s.checker.SetRules(parse(t, "rules: [{name: r, key: [user], limit: 10/hour}]"), 2))
	only(t, s.pass(tick, a), "DENY_ALL", "bucket")
	if n := len(s.distributor.ledgers); n != 2 { // the old one's share ends with its time to live
		t.Errorf("%d ledgers", n)
	}
	if s.distributor.sweep(s.now + int64(time.Minute)); len(s.distributor.ledgers) != 1 {
		t.Errorf("%d ledgers after a minute", len(s.distributor.ledgers))
	}
}

// Whoever connects again is a newcomer, and what it was assigned before is not given out twice.
func TestAReconnectGetsNoMoreThanTheLimit(t *testing.T) {
	s := newScript(t, "rules: [{name: r, key: [user], limit: 100/hour}]")
	a := s.envoy()
	first := only(t, s.report(a, 1, 0), "bucket").GetQuotaAssignmentAction().RateLimitStrategy.GetTokenBucket().MaxTokens
	s.distributor.leave(s.now, a)
	s.now += int64(19 * time.Second)
	s.distributor.sweep(s.now) // the Envoy may still go by its assignments
	again := s.report(s.envoy(), 0, 0)
	if second := again[len(again)-1].GetQuotaAssignmentAction().RateLimitStrategy.GetTokenBucket().GetMaxTokens(); first+second > 99 {
		t.Errorf("%d and %d of 99 that are left", first, second)
	}
}
