package grpclimit

import (
	"cmp"
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/offpath-io/offpath/pkg/check"
)

// Values in the ErrorInfo of a denial.
const (
	// Domain is that of the reasons.
	Domain = "offpath"
	// QuotaExceeded is the reason of a denial.
	QuotaExceeded = "QUOTA_EXCEEDED"
	// TemporaryReducedCapacity is the reason of a denial by a rule of status 503.
	TemporaryReducedCapacity = "TEMPORARY_REDUCED_CAPACITY"
	// NoRuleMatches is the reason of a denial because no rule matches the call.
	NoRuleMatches = "NO_RULE_MATCHES"
)

// Status describes a denial. The code is ResourceExhausted, or Unavailable under a rule of status
// 503, or PermissionDenied if no rule matches. The details are
//
//	ErrorInfo      the reason, with rule and limit as metadata
//	QuotaFailure   the rule that decided, "rule:per-user", and its limit, for people too
//	RetryInfo      when to try again, in whole milliseconds, rounded up, at least 1;
//	               missing if waiting does not help
//
// The rule is missing if none decided. Nothing in the status comes from the client.
func Status(d check.Decision) *status.Status {
	if d.Unmatched {
		return unmatched()
	}
	code, reason := codes.ResourceExhausted, QuotaExceeded
	if d.Status == http.StatusServiceUnavailable {
		code, reason = codes.Unavailable, TemporaryReducedCapacity
	}
	when := "it does not pass, however long you wait"
	details := make([]protoadapt.MessageV1, 0, 3)
	if d.RetryAfter != check.Never {
		retry := ceilMillis(d.RetryAfter)
		when = "try again in " + retry.String()
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(retry)})
	}
	info := &errdetails.ErrorInfo{Reason: reason, Domain: Domain}
	text := "limited: " + when
	if d.Rule != "" {
		limit := strconv.FormatInt(d.Limit, 10)
		text = "limited by " + d.Rule + ": " + when
		info.Metadata = map[string]string{"rule": d.Rule, "limit": limit}
		violation := &errdetails.QuotaFailure_Violation{
			Subject: "rule:" + d.Rule, QuotaId: d.Rule, QuotaValue: d.Limit,
			Description: "the limit of " + limit + " is reached; " + when,
		}
		details = append(details, &errdetails.QuotaFailure{
			Violations: []*errdetails.QuotaFailure_Violation{violation},
		})
	}
	s := status.New(code, text)
	full, err := s.WithDetails(append(details, info)...)
	if err != nil { // a name that is not UTF-8, which no rule has
		return s
	}
	return full
}

// unmatched describes a denial because no rule matches.
func unmatched() *status.Status {
	const text = "no rule matches the call, and only calls that a rule matches are served"
	s := status.New(codes.PermissionDenied, text)
	full, err := s.WithDetails(&errdetails.ErrorInfo{Reason: NoRuleMatches, Domain: Domain})
	if err != nil { // unreachable: the detail is valid
		return s
	}
	return full
}

// Error returns a denial's [Status] as an error. It is the default of Options.Denied.
func Error(_ context.Context, d check.Decision) error { return Status(d).Err() }

// ceilMillis rounds up: a caller that comes back early is denied again.
func ceilMillis(d time.Duration) time.Duration {
	r := d.Truncate(time.Millisecond)
	if r < d && r < check.Never-time.Millisecond {
		r += time.Millisecond
	}
	return max(r, time.Millisecond)
}

// deny returns the error of a denied call. A client that gave up waiting gets its context's error.
func (l *Limit) deny(ctx context.Context, p *plan, d check.Decision) error {
	if err := ctx.Err(); err != nil && p.waiting.Any() {
		return status.FromContextError(err).Err()
	}
	if l.options.Denied != nil {
		d.Status = cmp.Or(d.Status, http.StatusTooManyRequests) // a wait that ended early has none
		if err := l.options.Denied(ctx, d); err != nil {
			return err
		}
	}
	return Error(ctx, d)
}

// metadata returns the headers for a decision, with names in lower case.
func (p *plan) metadata(d check.Decision) metadata.MD {
	header := make(http.Header, 4)
	p.headers.Write(header, d)
	md := make(metadata.MD, len(header))
	for name, values := range header {
		md[strings.ToLower(name)] = values
	}
	return md
}
