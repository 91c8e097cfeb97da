package envoylimit

import (
	"strconv"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/offpath-io/offpath/pkg/check"
)

// Headers are which headers an answer asks Envoy to add to its response: the limit that is nearest, or the one that makes
// the caller wait longest, how many hits remain, and in how many seconds it resets; and Retry-After with a denial.
type Headers uint8

const (
	// NoHeaders: none (default).
	NoHeaders Headers = iota
	// RateLimitHeaders are RateLimit-Limit, -Remaining and -Reset, as envoyproxy/ratelimit has them.
	RateLimitHeaders
	// XRateLimitHeaders are the same with X- before them, as Envoy itself has them.
	XRateLimitHeaders
)

// String is none, ratelimit or x-ratelimit, or invalid.
func (h Headers) String() string {
	words := [...]string{NoHeaders: "none", RateLimitHeaders: "ratelimit", XRateLimitHeaders: "x-ratelimit"}
	if int(h) >= len(words) {
		return "invalid"
	}
	return words[h]
}

// headerNames are the names of limit, remaining and reset.
var headerNames = [...][3]string{
	RateLimitHeaders:  {"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"},
	XRateLimitHeaders: {"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"},
}

func (a *asking) addHeaders(r *ratelimitv3.RateLimitResponse) {
	kind := a.service.options.Headers
	if kind == NoHeaders || int(kind) >= len(headerNames) {
		return
	}
	i := a.nearest(r)
	if i < 0 {
		return
	}
	s, d, names := r.Statuses[i], &a.asked[i].decision, &headerNames[kind]
	r.ResponseHeadersToAdd = []*corev3.HeaderValue{
		header(names[0], uint64(s.CurrentLimit.RequestsPerUnit)),
		header(names[1], uint64(s.LimitRemaining)),
		header(names[2], uint64(s.DurationUntilReset.GetSeconds())),
	}
	if !d.Allowed && d.RetryAfter != check.Never {
		r.ResponseHeadersToAdd = append(r.ResponseHeadersToAdd, header("Retry-After", uint64(max(seconds(d.RetryAfter), 1))))
	}
}

// nearest is the place of the descriptor that restricts the caller most, of those with a limit; -1 if none has one.
func (a *asking) nearest(r *ratelimitv3.RateLimitResponse) int {
	nearest := -1
	for i, s := range r.Statuses {
		if s.CurrentLimit != nil && (nearest < 0 || worse(&a.asked[i].decision, &a.asked[nearest].decision)) {
			nearest = i
		}
	}
	return nearest
}

// worse says whether d restricts the caller more than e.
func worse(d, e *check.Decision) bool {
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
