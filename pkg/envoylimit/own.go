package envoylimit

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"
	"unicode"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/window"
)

// own is a limit that a descriptor brings along.
type own struct {
	limit check.InlineLimit
	key   string
	shown *ratelimitv3.RateLimitResponse_RateLimit
}

// readOwn takes in the limit of the descriptor at place i. As with envoyproxy/ratelimit it counts for nothing in a domain
// that no rule speaks of.
func (a *asking) readOwn(q *question, i int, l *ratelimit.RateLimitDescriptor_RateLimitOverride) error {
	attrs := a.attributes(q)
	length, err := lengthOf(i, l)
	switch {
	case err != nil:
		return err
	case !a.prepared.knows(attrs[0].Value):
		q.spared = true
		return nil
	}
	name := ownName(attrs, unitOf(l), l.GetUnitMultiplier().GetValue())
	q.own = &own{
		key: ownKey(attrs[1:]),
		limit: check.InlineLimit{
			Name: name, Limit: int64(l.GetRequestsPerUnit()),
			Window: window.Shape{Length: length, Buckets: 1, Fixed: true},
		},
		shown: &ratelimitv3.RateLimitResponse_RateLimit{
			RequestsPerUnit: l.GetRequestsPerUnit(),
			Unit:            unitOf(l),
			UnitMultiplier:  l.GetUnitMultiplier(),
		},
	}
	return nil
}

// unitOf is a limit's unit as answers have it, by the same number; requests have no word for a week.
func unitOf(l *ratelimit.RateLimitDescriptor_RateLimitOverride) ratelimitv3.RateLimitResponse_RateLimit_Unit {
	return ratelimitv3.RateLimitResponse_RateLimit_Unit(l.GetUnit())
}

// lengthOf is over how long a descriptor's limit holds.
func lengthOf(i int, l *ratelimit.RateLimitDescriptor_RateLimitOverride) (time.Duration, error) {
	unit, ok := lengths[unitOf(l)]
	if !ok {
		return 0, invalid("descriptor %d: limit: unit %v: want SECOND, MINUTE, HOUR, DAY, WEEK, MONTH or YEAR", i+1, unitOf(l))
	}
	if l.GetUnitMultiplier() == nil {
		return unit, nil
	}
	times := time.Duration(l.GetUnitMultiplier().GetValue())
	if times < 1 || times > window.MaxLength/unit {
		return 0, invalid("descriptor %d: limit: unit_multiplier %d: want 1 to %d of this unit", i+1, times, window.MaxLength/unit)
	}
	return unit * times, nil
}

// ownName is what hits of a domain, a list of keys and a unit are counted under.
func ownName(attrs identity.Attributes, unit ratelimitv3.RateLimitResponse_RateLimit_Unit, times uint32) string {
	parts := make([]string, 0, MaxEntries+3)
	parts = append(parts, attrs[0].Value)
	for _, entry := range attrs[1:] {
		parts = append(parts, entry.Name)
	}
	span := strings.ToLower(unit.String())
	if times > 1 {
		span = strconv.FormatUint(uint64(times), 10) + span
	}
	name := identity.JoinKey(append(parts, span)...)
	if len(name) <= check.MaxInlineName && !strings.ContainsFunc(name, unicode.IsControl) {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// ownKey is who is limited: the values, in their order.
func ownKey(entries identity.Attributes) string {
	values := make([]string, len(entries))
	for i, entry := range entries {
		values[i] = entry.Value
	}
	return identity.JoinKey(values...)
}
