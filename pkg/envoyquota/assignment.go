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

// action tells an Envoy something about one bucket.
type action = quotapb.RateLimitQuotaResponse_BucketAction

// kind is the strategy of an assignment.
type kind uint8

const (
	nothing kind = iota // none has been sent
	allowAll
	denyAll
	bucketOf
)

// assignment is a strategy and, for a token bucket, its numbers. Envoy fills the bucket
// continuously, at tokens ÷ seconds; it drops fractions of seconds.
type assignment struct {
	kind         kind
	most, tokens uint32
	seconds      int64
}

// fillTimes are the possible fill intervals, in seconds. An assignment has the shortest one with at
// most roundingLoss.
var fillTimes = [...]int64{1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, longestFill}

const (
	longestFill = 3600
	// roundingLoss is the part of a rate that may be lost by rounding.
	roundingLoss = 0.01
)

// newAssignment makes an assignment of a grant. Its rate is at most the grant's. Only for a rate
// that is too small to express it is a burst per hour: a token bucket must have a rate.
func newAssignment(g shares.Grant) assignment {
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

// actions appends the actions that replace an Envoy's previous assignment. With refill, its token
// bucket is full afterwards.
//
// If the Envoy has a token bucket already, the level of the new one depends on its version: before
// 1.33 it is full, since then it is the old level. And if the two differ only by whole seconds of
// their intervals, Envoy keeps the old one. A deny-all before it, in the same message, makes all
// versions refill the bucket; no request is decided in between.
func (a assignment) actions(
	dst []*action, id *quotapb.BucketId, before assignment, refill bool, ttl time.Duration,
) []*action {
	unnoticed := a.most == before.most && a.tokens == before.tokens && a.seconds != before.seconds
	if a.kind == bucketOf && before.kind == bucketOf && (refill || unnoticed) {
		dst = append(dst, assignment{kind: denyAll}.action(id, ttl))
	}
	return append(dst, a.action(id, ttl))
}

func (a assignment) action(id *quotapb.BucketId, ttl time.Duration) *action {
	return &action{
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
		bucket := &typepb.TokenBucket{
			MaxTokens:     a.most,
			TokensPerFill: wrapperspb.UInt32(a.tokens),
			FillInterval:  durationpb.New(time.Duration(a.seconds) * time.Second),
		}
		return &typepb.RateLimitStrategy{
			Strategy: &typepb.RateLimitStrategy_TokenBucket{TokenBucket: bucket},
		}
	}
	return blanket(typepb.RateLimitStrategy_DENY_ALL)
}

func blanket(rule typepb.RateLimitStrategy_BlanketRule) *typepb.RateLimitStrategy {
	return &typepb.RateLimitStrategy{
		Strategy: &typepb.RateLimitStrategy_BlanketRule_{BlanketRule: rule},
	}
}

// abandonAction tells an Envoy to abandon a bucket.
func abandonAction(id *quotapb.BucketId) *action {
	return &action{
		BucketId: id,
		BucketAction: &quotapb.RateLimitQuotaResponse_BucketAction_AbandonAction_{
			AbandonAction: &quotapb.RateLimitQuotaResponse_BucketAction_AbandonAction{},
		},
	}
}
