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

// inlineLimit is a limit that a descriptor brings along.
type inlineLimit struct {
	limit check.InlineLimit
	key   string
	shown *ratelimitv3.RateLimitResponse_RateLimit
}

// readInline reads the limit of the descriptor at index i. As in envoyproxy/ratelimit, it does not
// apply in a domain that no rule matches.
func (c *call) readInline(
	q *descriptor, i int, l *ratelimit.RateLimitDescriptor_RateLimitOverride,
) error {
	attrs := c.attributes(q)
	length, err := lengthOf(i, l)
	switch {
	case err != nil:
		return err
	case !c.plan.knows(attrs[0].Value):
		q.exempt = true
		return nil
	}
	name := inlineName(attrs, unitOf(l), l.GetUnitMultiplier().GetValue())
	q.inline = &inlineLimit{
		key: inlineKey(attrs[1:]),
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

// unitOf returns a limit's unit as the type of answers, by the same number. The type of requests
// has no week.
func unitOf(
	l *ratelimit.RateLimitDescriptor_RateLimitOverride,
) ratelimitv3.RateLimitResponse_RateLimit_Unit {
	return ratelimitv3.RateLimitResponse_RateLimit_Unit(l.GetUnit())
}

// lengthOf returns the window of a descriptor's limit.
func lengthOf(
	i int, l *ratelimit.RateLimitDescriptor_RateLimitOverride,
) (time.Duration, error) {
	unit, ok := lengths[unitOf(l)]
	if !ok {
		return 0, invalid("descriptor %d: limit: unit %v: "+
			"want SECOND, MINUTE, HOUR, DAY, WEEK, MONTH or YEAR", i+1, unitOf(l))
	}
	if l.GetUnitMultiplier() == nil {
		return unit, nil
	}
	times := time.Duration(l.GetUnitMultiplier().GetValue())
	if times < 1 || times > window.MaxLength/unit {
		return 0, invalid("descriptor %d: limit: unit_multiplier %d: want 1 to %d of this unit",
			i+1, times, window.MaxLength/unit)
	}
	return unit * times, nil
}

// inlineName returns the name of the counters of a domain, a list of keys and a unit.
func inlineName(
	attrs identity.Attributes, unit ratelimitv3.RateLimitResponse_RateLimit_Unit, times uint32,
) string {
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

// inlineKey returns the limited key: the values, in their order.
func inlineKey(entries identity.Attributes) string {
	values := make([]string, len(entries))
	for i, entry := range entries {
		values[i] = entry.Value
	}
	return identity.JoinKey(values...)
}
