package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/check/checktest"
	"github.com/offpath-io/offpath/pkg/grpclimit"
	"github.com/offpath-io/offpath/pkg/limitheaders"
)

// said is a status in words.
func said(s *status.Status) (all []string) {
	all = []string{s.Code().String(), s.Message()}
	for _, detail := range s.Details() {
		switch d := detail.(type) {
		case *errdetails.RetryInfo:
			all = append(all, "retry "+d.GetRetryDelay().AsDuration().String())
		case *errdetails.QuotaFailure:
			for _, v := range d.GetViolations() {
				all = append(all, fmt.Sprintf("%s %s %d %s", v.GetSubject(), v.GetQuotaId(), v.GetQuotaValue(), v.GetDescription()))
			}
		case *errdetails.ErrorInfo:
			all = append(all, fmt.Sprint(d.GetDomain(), " ", d.GetReason(), " ", d.GetMetadata()))
		default:
			all = append(all, fmt.Sprintf("%T %v", d, d))
		}
	}
	return all
}

// words are what a denial by the rule of checktest is, in words.
func words(code, reason, retry, when string) []string {
	all := []string{code, "limited by checktest: " + when}
	if retry != "" {
		all = append(all, "retry "+retry)
	}
	return append(all, "rule:checktest checktest 100 the limit of 100 is reached; "+when, "offpath "+reason+" map[limit:100 rule:checktest]")
}

// What a real client gets, over a socket, of calls and of streams.
func TestDenied(t *testing.T) {
	const exhausted, quota, never = "ResourceExhausted", grpclimit.QuotaExceeded, "it does not pass, however long you wait"
	busy := checktest.Denied(1500 * time.Millisecond)
	busy.Status = 503
	givenUp := checktest.Denied(time.Second)
	givenUp.Status = 0
	nameless := checktest.Denied(time.Second)
	nameless.Rule = ""
	unmatched := check.Decision{Unmatched: true, Status: 403, RetryAfter: check.Never}
	for _, tt := range []struct {
		why  string
		d    check.Decision
		want []string
	}{
		{"in 3 s", checktest.Denied(3 * time.Second), words(exhausted, quota, "3s", "try again in 3s")},
		{"rounded up", checktest.Denied(3*time.Second + 1), words(exhausted, quota, "3.001s", "try again in 3.001s")},
		{"a millisecond at least", checktest.Denied(0), words(exhausted, quota, "1ms", "try again in 1ms")},
		{"also of nonsense", checktest.Denied(-time.Hour), words(exhausted, quota, "1ms", "try again in 1ms")},
		{"nearly for ever", checktest.Denied(check.Never - 1), words(exhausted, quota, "2562047h47m16.854s", "try again in 2562047h47m16.854s")},
		{"never", checktest.Denied(check.Never), words(exhausted, quota, "", never)},
		{"no room", busy, words("Unavailable", grpclimit.TemporaryReducedCapacity, "1.5s", "try again in 1.5s")},
		{"given up", givenUp, words(exhausted, quota, "1s", "try again in 1s")},
		{"no rule matches", unmatched, []string{"PermissionDenied", "no rule matches the call, and only calls that a rule matches are served", "offpath " + grpclimit.NoRuleMatches + " map[]"}},
		{"by no rule", nameless, []string{exhausted, "limited: try again in 1s", "retry 1s", "offpath " + quota + " map[]"}},
	} {
		t.Run(tt.why, func(t *testing.T) {
			client := behind(t, newLimit(t, checktest.Script(tt.d), grpclimit.Options{}))
			_, err := client.UnaryCall(t.Context(), &grpc_testing.SimpleRequest{})
			if got := said(status.Convert(err)); !slices.Equal(got, tt.want) {
				t.Errorf("a call:\n%q, want\n%q", got, tt.want)
			}
			stream, err := client.FullDuplexCall(t.Context())
			must(t, err)
			_, err = stream.Recv()
			if got := said(status.Convert(err)); !slices.Equal(got, tt.want) {
				t.Errorf("a stream:\n%q, want\n%q", got, tt.want)
			}
		})
	}
}

// A denial with another code is of one's own, but there is no way to let the call pass.
func TestDeniedInAWayOfOnesOwn(t *testing.T) {
	given := checktest.Denied(time.Second)
	given.Status = 0
	for _, tt := range []struct {
		why  string
		err  error
		want codes.Code
	}{
		{"another code", status.Error(codes.PermissionDenied, "no"), codes.PermissionDenied},
		{"an error of no code", errors.New("no"), codes.Unknown},
		{"nothing", nil, codes.ResourceExhausted},
	} {
		var heard check.Decision
		limit := newLimit(t, checktest.Script(given), grpclimit.Options{Denied: func(_ context.Context, d check.Decision) error {
			heard = d
			return tt.err
		}})
		if got := call(context.Background(), limit.Unary()); got != tt.want || heard.Status != 429 || heard.Rule != checktest.Rule {
			t.Errorf("%s: %v, heard %+v", tt.why, got, heard)
		}
	}
}

// Headers come with calls that pass, with those that do not, and with streams.
func TestHeaders(t *testing.T) {
	const policy = `ratelimit-policy:["checktest";q=100;w=3600]`
	set := parse(t, "rules: [{name: checktest, key: [], limit: 100/hour}]")
	for _, tt := range []struct {
		h    limitheaders.Format
		d    check.Decision
		want string
	}{
		{0, checktest.Allowed(99), ""},
		{limitheaders.Newest, checktest.Allowed(99), `ratelimit:["checktest";r=99;t=3600] ` + policy},
		{limitheaders.Newest, checktest.Denied(3e9), `ratelimit:["checktest";r=0;t=3] ` + policy},
		{limitheaders.XTriple, checktest.Allowed(7), "x-ratelimit-limit:[100] x-ratelimit-remaining:[7] x-ratelimit-reset:[3600]"},
	} {
		client := behind(t, newLimit(t, checktest.Script(tt.d).WithRules(set), grpclimit.Options{Headers: tt.h}))
		var call metadata.MD
		_, _ = client.UnaryCall(t.Context(), &grpc_testing.SimpleRequest{}, grpc.Header(&call))
		stream, err := client.FullDuplexCall(t.Context())
		must(t, err)
		must(t, stream.CloseSend())
		streamed, _ := stream.Header()
		for why, got := range map[string]map[string][]string{"a call": call, "a stream": streamed} {
			delete(got, "content-type")
			if fmt.Sprint(got) != "map["+tt.want+"]" {
				t.Errorf("%v of %s: %v, want %s", tt.h, why, got, tt.want)
			}
		}
	}
}
