package envoylimit

import (
	"fmt"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http/httpguts"

	"github.com/offpath-io/offpath/pkg/check"
)

// Headers are the names of the headers that an answer tells Envoy to add to its response: the limit
// with the least left, or of a denial the one with the longest wait, how many hits remain, and in
// how many seconds it resets. Retry-After comes with a denial, too. The zero value is none.
type Headers struct{ Limit, Remaining, Reset string }

var (
	// RateLimitHeaders are those of envoyproxy/ratelimit.
	RateLimitHeaders = Headers{"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"}
	// XRateLimitHeaders are those of Envoy itself.
	XRateLimitHeaders = Headers{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"}
)

// ParseHeaders reads none, ratelimit, x-ratelimit, or three names with commas between.
func ParseHeaders(text string) (Headers, error) {
	for _, h := range []Headers{{}, RateLimitHeaders, XRateLimitHeaders} {
		if h.String() == text {
			return h, nil
		}
	}
	names := strings.Split(text, ",")
	valid := len(names) == 3
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
		valid = valid && httpguts.ValidHeaderFieldName(names[i])
	}
	if !valid {
		return Headers{}, fmt.Errorf("%.80q: want none, ratelimit, x-ratelimit, or three names of "+
			"headers with commas between: of the limit, of what remains, and of the reset", text)
	}
	return Headers{names[0], names[1], names[2]}, nil
}

// String returns a text for ParseHeaders.
func (h Headers) String() string {
	switch h {
	case Headers{}:
		return "none"
	case RateLimitHeaders:
		return "ratelimit"
	case XRateLimitHeaders:
		return "x-ratelimit"
	}
	return h.Limit + "," + h.Remaining + "," + h.Reset
}

func (c *call) addHeaders(r *ratelimitv3.RateLimitResponse) {
	names := c.service.options.Headers
	if names == (Headers{}) {
		return
	}
	i := c.nearest(r)
	if i < 0 {
		return
	}
	s, d := r.Statuses[i], &c.descriptors[i].decision
	r.ResponseHeadersToAdd = []*corev3.HeaderValue{
		header(names.Limit, uint64(s.CurrentLimit.RequestsPerUnit)),
		header(names.Remaining, uint64(s.LimitRemaining)),
		header(names.Reset, uint64(s.DurationUntilReset.GetSeconds())),
	}
	over := r.OverallCode == ratelimitv3.RateLimitResponse_OVER_LIMIT
	if over && !d.Allowed && d.RetryAfter != check.Never {
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
