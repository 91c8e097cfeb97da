package envoyquota

import (
	"math"
	"time"

	quotapb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
)

// simEnvoy does with buckets and assignments what Envoy's filter does, as its source says: one
// lazily filled token bucket per bucket, fill intervals cut to seconds, times to live in seconds,
// usage that is reset when it is reported, elapsed time cut to seconds.
type simEnvoy struct {
	// refills is Envoy before 1.33: a token bucket that is replaced is full. Since then it is as
	// full as the one before.
	refills bool
	buckets map[string]*simBucket
}

type simBucket struct {
	id              *quotapb.BucketId
	allowed, denied uint64
	reportedAt      int64

	strategy *typepb.RateLimitStrategy // nil: none was assigned, everything passes
	tokens   *simTokens
	ends     int64
}

// simTokens has as many tokens as came since emptyAt, at most most.
type simTokens struct {
	most, rate float64
	emptyAt    float64 // s
}

func (t *simTokens) left(now float64) float64 { return min(t.most, (now-t.emptyAt)*t.rate) }

func (t *simTokens) take(now float64) bool {
	left := t.left(now)
	if left < 1 {
		return false
	}
	t.emptyAt = now - (left-1)/t.rate
	return true
}

func newSimEnvoy(refills bool) *simEnvoy {
	return &simEnvoy{refills: refills, buckets: make(map[string]*simBucket)}
}

// request decides, and says whether this is the first one of its bucket, which is to be reported at
// once.
func (e *simEnvoy) request(now int64, id *quotapb.BucketId) (passes, first bool) {
	name := bucketName(id.Bucket)
	b := e.buckets[name]
	if b == nil {
		b = &simBucket{id: id, reportedAt: now}
		e.buckets[name], first = b, true
	}
	if b.strategy != nil && now >= b.ends {
		b.strategy, b.tokens = nil, nil
	}
	switch s := b.strategy.GetStrategy().(type) {
	case nil:
		passes = true
	case *typepb.RateLimitStrategy_BlanketRule_:
		passes = s.BlanketRule == typepb.RateLimitStrategy_ALLOW_ALL
	default:
		passes = b.tokens.take(seconds(now))
	}
	if passes {
		b.allowed++
	} else {
		b.denied++
	}
	return passes, first
}

func seconds(now int64) float64 { return float64(now-simStart) / 1e9 }

// report is one of a bucket, or of all.
func (e *simEnvoy) report(now int64, only *quotapb.BucketId) *quotapb.RateLimitQuotaUsageReports {
	m := &quotapb.RateLimitQuotaUsageReports{Domain: "sim"}
	for name, b := range e.buckets {
		if only != nil && name != bucketName(only.Bucket) {
			continue
		}
		m.BucketQuotaUsages = append(m.BucketQuotaUsages, &quotapb.RateLimitQuotaUsageReports_BucketQuotaUsage{
			BucketId: b.id, NumRequestsAllowed: b.allowed, NumRequestsDenied: b.denied,
			TimeElapsed: durationpb.New(time.Duration(now - b.reportedAt).Truncate(time.Second)),
		})
		b.allowed, b.denied, b.reportedAt = 0, 0, now
	}
	return m
}

// obey takes in a server's actions, in their order.
func (e *simEnvoy) obey(now int64, actions []*quotapb.RateLimitQuotaResponse_BucketAction) {
	for _, a := range actions {
		name := bucketName(a.BucketId.Bucket)
		b := e.buckets[name]
		if b == nil {
			continue
		}
		if a.GetAbandonAction() != nil {
			delete(e.buckets, name)
			continue
		}
		q := a.GetQuotaAssignmentAction()
		var tokens *simTokens
		if of := q.RateLimitStrategy.GetTokenBucket(); of != nil {
			tokens = e.fill(seconds(now), b, of)
		}
		b.strategy, b.tokens = q.RateLimitStrategy, tokens
		b.ends = now + q.AssignmentTimeToLive.Seconds*int64(time.Second)
	}
}

func (e *simEnvoy) fill(now float64, b *simBucket, of *typepb.TokenBucket) *simTokens {
	if old := b.strategy.GetTokenBucket(); old != nil && old.MaxTokens == of.MaxTokens &&
		old.TokensPerFill.GetValue() == of.TokensPerFill.GetValue() && old.FillInterval.Nanos == of.FillInterval.Nanos {
		return b.tokens
	}
	t := &simTokens{most: float64(of.MaxTokens), rate: float64(of.TokensPerFill.GetValue()) / float64(of.FillInterval.Seconds)}
	begin := t.most
	if !e.refills && b.tokens != nil {
		begin = math.Floor(t.most * b.tokens.left(now) / b.tokens.most)
	}
	t.emptyAt = now - begin/t.rate
	return t
}
