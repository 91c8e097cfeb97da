package httplimit

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/limitheaders"
)

// Types of problems, from the IETF's draft on RateLimit headers.
const (
	QuotaExceeded            = problemTypes + "quota-exceeded"
	TemporaryReducedCapacity = problemTypes + "temporary-reduced-capacity"

	problemTypes = "https://iana.org/assignments/http-problem-types#"
)

// ProblemType is the media type of a [Problem].
const ProblemType = "application/problem+json"

// Problem is the body of a denial, by RFC 9457.
type Problem struct {
	// Type is QuotaExceeded; TemporaryReducedCapacity if Status is 503; about:blank if it is 400,
	// for an ambiguous path or header, or 403, if no rule matches.
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	// Detail is for people.
	Detail string `json:"detail,omitempty"`
	// ViolatedPolicies has the name of the rule that decided, as RateLimit-Policy writes it.
	ViolatedPolicies []string `json:"violated-policies,omitempty"`
}

// NewProblem describes a denial.
func NewProblem(d check.Decision) Problem {
	if d.Rule == "" && d.Status == http.StatusBadRequest {
		return Problem{
			Type: "about:blank", Title: http.StatusText(d.Status), Status: d.Status,
			Detail: "Servers read this in different ways: " +
				"the path has a segment . or .., or a header is there twice.",
		}
	}
	if d.Unmatched {
		return Problem{
			Type: "about:blank", Title: "Forbidden", Status: status(&d),
			Detail: "No rule matches the request, and only requests that a rule matches are served.",
		}
	}
	p := Problem{Type: QuotaExceeded, Title: "Quota exceeded", Status: status(&d)}
	if p.Status == http.StatusServiceUnavailable {
		p.Type, p.Title = TemporaryReducedCapacity, "Temporary reduced capacity"
	}
	switch s := limitheaders.RetrySeconds(d.RetryAfter); s {
	case 0:
		p.Detail = "Such a request is not served, however long you wait."
	case 1:
		p.Detail = "Try again in 1 second."
	default:
		p.Detail = "Try again in " + strconv.FormatInt(s, 10) + " seconds."
	}
	if d.Rule != "" {
		p.ViolatedPolicies = []string{limitheaders.PolicyName(d.Rule)}
	}
	return p
}

// Deny answers a denial with its status, Retry-After and a problem. It is the default of
// Options.Denied.
func Deny(w http.ResponseWriter, _ *http.Request, d check.Decision) {
	WriteProblem(w, status(&d), d)
}

// WriteProblem answers a denial with Retry-After and its problem as the body. The answer has this
// status: the decision's, or one that a proxy understands. The problem has the decision's. The
// answer may not be cached.
func WriteProblem(w http.ResponseWriter, status int, d check.Decision) {
	header := w.Header()
	SetRetryAfter(header, d)
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Type", ProblemType)
	body, _ := json.Marshal(NewProblem(d)) // no error: strings and a number
	w.WriteHeader(status)
	_, _ = w.Write(body) // an error means that the client has gone
}

// SetRetryAfter sets Retry-After of a denial: whole seconds, rounded up, at least 1. It removes the
// header if waiting does not help.
func SetRetryAfter(header http.Header, d check.Decision) {
	if s := limitheaders.RetrySeconds(d.RetryAfter); s > 0 {
		header.Set("Retry-After", strconv.FormatInt(s, 10))
	} else {
		header.Del("Retry-After")
	}
}

// status returns the status of a denial. A wait that ended early has none of its own.
func status(d *check.Decision) int { return cmp.Or(d.Status, http.StatusTooManyRequests) }
