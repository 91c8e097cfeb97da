package envoyquota

import (
	"slices"
	"testing"
	"time"

	quotapb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/offpath-io/offpath/internal/testing/rulestest"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/identity"
)

// script is a distributor in virtual time, with Envoys.
type script struct {
	t           testing.TB
	checker     *check.Checker
	distributor *distributor
	now         int64
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var parse, newChecker = rulestest.Parse, rulestest.Checker

// newCheckerAt returns a checker that goes by a time of the test's.
func newCheckerAt(t testing.TB, text string, now *int64) *check.Checker {
	t.Helper()
	c, err := check.New(check.Options{
		Rules: parse(t, text), Now: func() time.Time { return time.Unix(0, *now) },
	})
	must(t, err)
	return c
}

func newScript(t testing.TB, text string) *script {
	s := &script{t: t, now: simStart}
	s.checker = newCheckerAt(t, text, &s.now)
	s.distributor = newDistributor(s.checker, Options{}.withDefaults())
	return s
}

func (s *script) envoy() *client {
	s.t.Helper()
	c, err := s.distributor.join("")
	must(s.t, err)
	return c
}

func bytesOf(t testing.TB, m proto.Message) []byte {
	t.Helper()
	data, err := proto.Marshal(m)
	must(t, err)
	return data
}

func bucketID(pairs ...string) *quotapb.BucketId {
	id := &quotapb.BucketId{Bucket: make(map[string]string)}
	for i := 0; i < len(pairs); i += 2 {
		id.Bucket[pairs[i]] = pairs[i+1]
	}
	return id
}

func reportOf(allowed, denied uint64, elapsed time.Duration, pairs ...string) *quotapb.RateLimitQuotaUsageReports {
	return &quotapb.RateLimitQuotaUsageReports{Domain: "shop", BucketQuotaUsages: []*quotapb.RateLimitQuotaUsageReports_BucketQuotaUsage{{
		BucketId: bucketID(pairs...), NumRequestsAllowed: allowed, NumRequestsDenied: denied, TimeElapsed: durationpb.New(elapsed),
	}}}
}

// report reports kristie's requests, and returns what the Envoy is told at once.
func (s *script) report(c *client, allowed, denied uint64) []*quotapb.RateLimitQuotaResponse_BucketAction {
	s.t.Helper()
	must(s.t, s.distributor.report(s.now, c, bytesOf(s.t, reportOf(allowed, denied, 0, "user", "kristie"))))
	return s.told(c)
}

func (s *script) told(c *client) []*quotapb.RateLimitQuotaResponse_BucketAction {
	return s.distributor.actions(s.now, c, 1000)
}

// pass lets time go by, and returns what Envoys are told in it.
func (s *script) pass(d time.Duration, clients ...*client) (told []*quotapb.RateLimitQuotaResponse_BucketAction) {
	for end := s.now + int64(d); s.now < end; {
		s.now += int64(tick)
		for _, c := range clients {
			s.distributor.maintain(s.now, c)
			told = append(told, s.told(c)...)
		}
	}
	return told
}

func (s *script) count() float64 {
	kristie := identity.Attributes{{Name: "user", Value: "kristie"}}
	return s.checker.Do(check.Request{Attributes: kristie, Mode: check.Explain}).Explanations[0].Count
}

// words says what actions are, one word each.
func words(actions []*quotapb.RateLimitQuotaResponse_BucketAction) (said []string) {
	for _, a := range actions {
		switch q := a.GetQuotaAssignmentAction(); {
		case q == nil:
			said = append(said, "abandon")
		case q.RateLimitStrategy.GetTokenBucket() != nil:
			said = append(said, "bucket")
		default:
			said = append(said, q.RateLimitStrategy.GetBlanketRule().String())
		}
	}
	return said
}

func only(t *testing.T, actions []*quotapb.RateLimitQuotaResponse_BucketAction, want ...string) *quotapb.RateLimitQuotaResponse_BucketAction {
	t.Helper()
	if got := words(actions); !slices.Equal(got, want) {
		t.Fatalf("told %v, want %v", got, want)
	}
	if len(actions) == 0 {
		return nil
	}
	return actions[len(actions)-1]
}

func rateOf(a *quotapb.RateLimitQuotaResponse_BucketAction) float64 {
	b := a.GetQuotaAssignmentAction().GetRateLimitStrategy().GetTokenBucket()
	return float64(b.GetTokensPerFill().GetValue()) / b.GetFillInterval().AsDuration().Seconds()
}

const perSecond = "rules: [{name: r, key: [user], limit: 100/second}]"
