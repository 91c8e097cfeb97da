package envoylimit

import (
	"strconv"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/offpath-io/offpath/pkg/check"
)

// Headers are the headers that an answer tells Envoy to add to its response: the limit with the
// least left, or of a denial the one with the longest wait, how many hits remain, and in how many
// seconds it resets; and Retry-After with a denial.
type Headers uint8

const (
	// NoHeaders are none (default).
	NoHeaders Headers = iota
	// RateLimitHeaders are RateLimit-Limit, -Remaining and -Reset, as in envoyproxy/ratelimit.
	RateLimitHeaders
	// XRateLimitHeaders are the same with X- before each name, as in Envoy itself.
	XRateLimitHeaders
)

// String returns none, ratelimit or x-ratelimit, or invalid.
func (h Headers) String() string {
	names := [...]string{
		NoHeaders: "none", RateLimitHeaders: "ratelimit", XRateLimitHeaders: "x-ratelimit",
	}
	if int(h) >= len(names) {
		return "invalid"
	}
	return names[h]
}

// headerNames are the names of limit, remaining and reset.
var headerNames = [...][3]string{
	RateLimitHeaders:  {"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"},
	XRateLimitHeaders: {"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"},
}

func (c *call) addHeaders(r *ratelimitv3.RateLimitResponse) {
	kind := c.service.options.Headers
	if kind == NoHeaders || int(kind) >= len(headerNames) {
		return
	}
	i := c.nearest(r)
	if i < 0 {
		return
	}
	s, d, names := r.Statuses[i], &c.descriptors[i].decision, &headerNames[kind]
	r.ResponseHeadersToAdd = []*corev3.HeaderValue{
		header(names[0], uint64(s.CurrentLimit.RequestsPerUnit)),
		header(names[1], uint64(s.LimitRemaining)),
		header(names[2], uint64(s.DurationUntilReset.GetSeconds())),
	}
	if !d.Allowed && d.RetryAfter != check.Never {
		retry := header("Retry-After", uint64(max(seconds(d.RetryAfter), 1)))
		r.ResponseHeadersToAdd = append(r.ResponseHeadersToAdd, retry)
	}
}

// nearest returns the index of the descriptor with the most restrictive limit, -1 if none has a
// limit.
func (c *call) nearest(r *ratelimitv3.RateLimitResponse) int {
	nearest := -1
	for i, s := range r.Statuses {
		if s.CurrentLimit == nil {
			continue
		}
		d := c.descriptors
		if nearest < 0 || stricter(&d[i].decision, &d[nearest].decision) {
			nearest = i
		}
	}
	return nearest
}

// stricter reports whether d restricts the caller more than e.
func stricter(d, e *check.Decision) bool {
	switch {
	case d.Allowed != e.Allowed:
		return !d.Allowed
	case !d.Allowed:
		return d.RetryAfter > e.RetryAfter
	}
	return d.Remaining < e.Remaining
}

func header(name string, value uint64) *corev3.HeaderValue {
	return &corev3.HeaderValue{Key: name, Value: strconv.FormatUint(value, 10)}
}
