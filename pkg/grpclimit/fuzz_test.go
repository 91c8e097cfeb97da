package grpclimit_test

import (
	"testing"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/offpath-io/offpath/pkg/grpclimit"
	"github.com/offpath-io/offpath/pkg/identity/httpidentity"
)

// text is an address that says what it likes.
type text string

func (text) Network() string  { return "text" }
func (a text) String() string { return string(a) }

// FuzzCall: whatever a call holds, it passes or is denied, and what the answer says can be read.
func FuzzCall(f *testing.F) {
	f.Add("/a.B/C", "192.0.2.1:80", "kristie", "6.6.6.6, 192.0.2.9", "gold", "x-plan")
	f.Add("", "@", "\xff\xfe", ",,,", "-1", "")
	f.Add("//", "", "a|b\\", "unknown", "99999999999999999999", "X-PLAN\x00")
	trusted, err := httpidentity.ParseProxies("0.0.0.0/0")
	must(f, err)
	c := checker(f, `
rules:
  - {name: per-user, key: [user, method], on_missing: empty, limit: 1/hour}
  - {name: per-ip, key: [ip, service], limit: 2/hour, cost: 'header:x-plan'}
  - {name: per-plan, match: {'header:x-plan': '*'}, key: ['header:x-plan', address], on_missing: deny, limit: 2/day, status: 503}
`)
	limit := newLimit(f, c, grpclimit.Options{User: byMetadata, Identity: httpidentity.Options{TrustedProxies: trusted}})
	f.Fuzz(func(t *testing.T, method, from, user, forwarded, plan, name string) {
		ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: text(from)})
		ctx = metadata.NewIncomingContext(ctx, metadata.MD{"x-user": {user}, "x-forwarded-for": {forwarded}, name: {plan}})
		d := limit.Decide(ctx, method)
		if d.Allowed {
			return
		}
		s, ok := status.FromError(grpclimit.Error(ctx, d))
		if !ok || s.Code() != codes.ResourceExhausted && s.Code() != codes.Unavailable || !utf8.ValidString(s.Message()) {
			t.Fatalf("%v", s)
		}
		said := 0
		for _, detail := range s.Details() {
			switch d := detail.(type) {
			case *errdetails.QuotaFailure:
				said += len(d.GetViolations())
			case *errdetails.ErrorInfo:
				said += len(d.GetMetadata())
			case *errdetails.RetryInfo:
				if d.GetRetryDelay().AsDuration() <= 0 {
					t.Errorf("retry in %v", d.GetRetryDelay())
				}
			default:
				t.Errorf("%v", d)
			}
		}
		if said != 3 {
			t.Errorf("%v", s)
		}
	})
}
