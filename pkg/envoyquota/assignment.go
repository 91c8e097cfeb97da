package envoyquota

import (
	"math"
	"time"

	quotapb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/offpath-io/offpath/pkg/envoyquota/internal/shares"
)

// kind is which strategy an assignment is.
type kind uint8

const (
	nothing kind = iota // none was sent yet
	allowAll
	denyAll
	bucketOf
)

// assignment is what an Envoy is told: a strategy and, of a token bucket, its numbers. Envoy fills the bucket all the time, at tokens ÷ seconds;
// of seconds it drops fractions.
type assignment struct {
	kind         kind
	most, tokens uint32
	seconds      int64
}

// fillTimes are the fill intervals that assignments have, in seconds: the shortest one is taken that hardly loses anything by rounding.
var fillTimes = [...]int64{1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, longestFill}

const (
	longestFill = 3600
	// roundingLoss is how much of a rate rounding may take.
	roundingLoss = 0.01
)

// assign makes an assignment of a grant. Its rate is never above the grant's, but for one that is too small to tell, which is a burst per
// hour: a token bucket has to be filled somehow.
func assign(g shares.Grant) assignment {
	if g.None() {
		return assignment{kind: denyAll}
	}
	a := assignment{kind: bucketOf, most: uint32(min(g.Burst, math.MaxUint32))}
	for _, seconds := range fillTimes {
		exact := g.Rate * float64(seconds)
		whole := math.Floor(exact * (1 + 1e-12))
		if whole >= exact*(1-roundingLoss) && whole >= 1 || seconds == longestFill {
			a.tokens, a.seconds = uint32(min(whole, math.MaxUint32)), seconds
			break
		}
	}
	if a.tokens == 0 {
		a.tokens = a.most
	}
	return a
}

// actions appends what tells an Envoy of an assignment in place of what it was told before. anew fills its token bucket, whatever is in it.
//
// What Envoy makes of a token bucket where it has another one depends on its version: before 1.33 the new one is full, since
// then it is as full as the old one was. And if the two differ in nothing but whole seconds of their intervals, it keeps the old one. To go
// by deny-all first, in the same message, fills the bucket in all versions; no request is decided in between.
func (a assignment) actions(dst []*quotapb.RateLimitQuotaResponse_BucketAction, id *quotapb.BucketId, before assignment, anew bool, ttl time.Duration) []*quotapb.RateLimitQuotaResponse_BucketAction {
	unnoticed := a.most == before.most && a.tokens == before.tokens && a.seconds != before.seconds
	if a.kind == bucketOf && before.kind == bucketOf && (anew || unnoticed) {
		dst = append(dst, assignment{kind: denyAll}.action(id, ttl))
	}
	return append(dst, a.action(id, ttl))
}

func (a assignment) action(id *quotapb.BucketId, ttl time.Duration) *quotapb.RateLimitQuotaResponse_BucketAction {
	return &quotapb.RateLimitQuotaResponse_BucketAction{
		BucketId: id,
		BucketAction: &quotapb.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction_{
			QuotaAssignmentAction: &quotapb.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction{
				AssignmentTimeToLive: durationpb.New(ttl),
				RateLimitStrategy:    a.strategy(),
			},
		},
	}
}

func (a assignment) strategy() *typepb.RateLimitStrategy {
	switch a.kind {
	case allowAll:
		return blanket(typepb.RateLimitStrategy_ALLOW_ALL)
	case bucketOf:
		return &typepb.RateLimitStrategy{Strategy: &typepb.RateLimitStrategy_TokenBucket{TokenBucket: &typepb.TokenBucket{
			MaxTokens:     a.most,
			TokensPerFill: wrapperspb.UInt32(a.tokens),
			FillInterval:  durationpb.New(time.Duration(a.seconds) * time.Second),
		}}}
	}
	return blanket(typepb.RateLimitStrategy_DENY_ALL)
}

func blanket(rule typepb.RateLimitStrategy_BlanketRule) *typepb.RateLimitStrategy {
	return &typepb.RateLimitStrategy{Strategy: &typepb.RateLimitStrategy_BlanketRule_{BlanketRule: rule}}
}

// abandon tells an Envoy to forget a bucket.
func abandon(id *quotapb.BucketId) *quotapb.RateLimitQuotaResponse_BucketAction {
	return &quotapb.RateLimitQuotaResponse_BucketAction{
		BucketId: id,
		BucketAction: &quotapb.RateLimitQuotaResponse_BucketAction_AbandonAction_{
			AbandonAction: &quotapb.RateLimitQuotaResponse_BucketAction_AbandonAction{},
		},
	}
}
