package httplimit

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/offpath-io/offpath/pkg/check"
)

// Types of problems, as the IETF's draft on RateLimit headers has them.
const (
	QuotaExceeded            = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	TemporaryReducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

// ProblemType is the media type of a [Problem].
const ProblemType = "application/problem+json"

// Problem is the body of a denial, as RFC 9457 has it.
type Problem struct {
	// Type is QuotaExceeded, TemporaryReducedCapacity if Status is 503, or about:blank if it is
	// 400: a path or a header that is ambiguous.
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	// Detail is for people.
	Detail string `json:"detail,omitempty"`
	// ViolatedPolicies are the names of the rules that deny, as RateLimit-Policy writes them. Only the one that decided is known.
	ViolatedPolicies []string `json:"violated-policies,omitempty"`
}

// NewProblem says of a denial what is wrong.
func NewProblem(d check.Decision) Problem {
	if d.Rule == "" && d.Status == http.StatusBadRequest {
		return Problem{
			Type: "about:blank", Title: http.StatusText(d.Status), Status: d.Status,
			Detail: "Servers read this in different ways: the path has a segment . or .., or a header is there twice.",
		}
	}
	p := Problem{Type: QuotaExceeded, Title: "Quota exceeded", Status: status(&d)}
	if p.Status == http.StatusServiceUnavailable {
		p.Type, p.Title = TemporaryReducedCapacity, "Temporary reduced capacity"
	}
	switch s := retrySeconds(&d); s {
	case 0:
		p.Detail = "Such a request is not served, however long you wait."
	case 1:
		p.Detail = "Try again in 1 second."
	default:
		p.Detail = "Try again in " + strconv.FormatInt(s, 10) + " seconds."
	}
	if d.Rule != "" {
		p.ViolatedPolicies = []string{policyName(d.Rule)}
	}
	return p
}

// Deny answers a denial with its status, Retry-After and a problem. It is what Options.Denied is by default.
func Deny(w http.ResponseWriter, _ *http.Request, d check.Decision) { WriteProblem(w, status(&d), d) }

// WriteProblem answers a denial with Retry-After, and its problem as the body, under this status: the decision's own, or what a proxy
// understands. The problem tells the decision's. Caches are told not to keep it.
func WriteProblem(w http.ResponseWriter, status int, d check.Decision) {
	header := w.Header()
	SetRetryAfter(header, d)
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Type", ProblemType)
	body, _ := json.Marshal(NewProblem(d)) // an error cannot be
	w.WriteHeader(status)
	_, _ = w.Write(body) // an error means that the client has gone
}

// SetRetryAfter sets Retry-After of a denial: whole seconds, rounded up, 1 at least. There is none if waiting does not help.
func SetRetryAfter(header http.Header, d check.Decision) {
	if s := retrySeconds(&d); s > 0 {
		header.Set(retryHeader, strconv.FormatInt(s, 10))
	} else {
		header.Del(retryHeader)
	}
}

// retrySeconds is 0 for what never passes.
func retrySeconds(d *check.Decision) int64 {
	if d.RetryAfter == check.Never {
		return 0
	}
	return max(seconds(d.RetryAfter), 1)
}

// status of a denial. A wait that was given up has none of its own.
func status(d *check.Decision) int {
	if d.Status == 0 {
		return http.StatusTooManyRequests
	}
	return d.Status
}
