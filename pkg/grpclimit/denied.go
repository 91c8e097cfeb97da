package grpclimit

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/offpath-io/offpath/pkg/check"
)

// What the ErrorInfo of a denial says.
const (
	// Domain is that of the reasons.
	Domain = "offpath"
	// QuotaExceeded is the reason of a denial.
	QuotaExceeded = "QUOTA_EXCEEDED"
	// TemporaryReducedCapacity is the reason of one by a rule of status 503.
	TemporaryReducedCapacity = "TEMPORARY_REDUCED_CAPACITY"
)

// Status says of a denial what is wrong: the code is ResourceExhausted, or Unavailable under a rule of status 503. The details are
//
//	ErrorInfo      the reason, and as metadata rule and limit
//	QuotaFailure   the rule that decided, "rule:per-user", and its limit, for people too
//	RetryInfo      in how many milliseconds to try again, rounded up, 1 at least; there is none if that does not help
//
// The rule is missing if none decided. Nothing in it is what the client sent.
func Status(d check.Decision) *status.Status {
	code, reason := codes.ResourceExhausted, QuotaExceeded
	if d.Status == http.StatusServiceUnavailable {
		code, reason = codes.Unavailable, TemporaryReducedCapacity
	}
	when := "it does not pass, however long you wait"
	details := make([]protoadapt.MessageV1, 0, 3)
	if d.RetryAfter != check.Never {
		retry := millis(d.RetryAfter)
		when = "try again in " + retry.String()
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(retry)})
	}
	info := &errdetails.ErrorInfo{Reason: reason, Domain: Domain}
	text := "limited: " + when
	if d.Rule != "" {
		limit := strconv.FormatInt(d.Limit, 10)
		text = "limited by " + d.Rule + ": " + when
		info.Metadata = map[string]string{"rule": d.Rule, "limit": limit}
		details = append(details, &errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{{
			Subject: "rule:" + d.Rule, Description: "the limit of " + limit + " is reached; " + when, QuotaId: d.Rule, QuotaValue: d.Limit,
		}}})
	}
	s := status.New(code, text)
	full, err := s.WithDetails(append(details, info)...)
	if err != nil { // a name that is not UTF-8, which no rule has
		return s
	}
	return full
}

// Error is a denial's [Status] as an error. It is what Options.Denied is by default.
func Error(_ context.Context, d check.Decision) error { return Status(d).Err() }

// millis rounds up, since who comes back early is denied again.
func millis(d time.Duration) time.Duration {
	r := d.Truncate(time.Millisecond)
	if r < d && r < check.Never-time.Millisecond {
		r += time.Millisecond
	}
	return max(r, time.Millisecond)
}

// deny is the error of a call that may not pass. Who has given up waiting is told that.
func (l *Limit) deny(ctx context.Context, p *plan, d check.Decision) error {
	if err := ctx.Err(); err != nil && p.manner.Waits() {
		return status.FromContextError(err).Err()
	}
	if l.options.Denied != nil {
		if d.Status == 0 { // a wait that was given up has none
			d.Status = http.StatusTooManyRequests
		}
		if err := l.options.Denied(ctx, d); err != nil {
			return err
		}
	}
	return Error(ctx, d)
}
