package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/check/checktest"
	"github.com/offpath-io/offpath/pkg/grpclimit"
	"github.com/offpath-io/offpath/pkg/identity"
)

var asLogin = identity.Attribute{Name: "api", Value: "login"}

func chargeOn(t testing.TB, l *grpclimit.Limit, on ...codes.Code) *grpclimit.Outcomes {
	t.Helper()
	o, err := l.ChargeOn(asLogin, on...)
	must(t, err)
	return o
}

// The code that is charged is the one that the client gets.
func TestOutcomes(t *testing.T) {
	oops := errors.New("oops")
	for _, tt := range []struct {
		why     string
		err     error
		on      codes.Code
		charged bool
	}{
		{"as it is", status.Error(codes.NotFound, "no"), codes.NotFound, true},
		{"another", status.Error(codes.NotFound, "no"), codes.PermissionDenied, false},
		{"wrapped", fmt.Errorf("look: %w", status.Error(codes.NotFound, "no")), codes.NotFound, true},
		{"no status", oops, codes.Unknown, true},
		{"nor is that OK", oops, codes.OK, false},
		{"success", nil, codes.OK, true},
		{"a context's end", context.Canceled, codes.Canceled, true},
		{"and in time", fmt.Errorf("ask: %w", context.DeadlineExceeded), codes.DeadlineExceeded, true},
		{"is not unknown", context.Canceled, codes.Unknown, false},
	} {
		c := checktest.Allow().WithRules(parse(t, "rules: [{name: failures, match: {api: login}, key: [user], limit: 3/day}]"))
		o := chargeOn(t, newLimit(t, c, grpclimit.Options{User: byMetadata}), tt.on)
		ctx := incoming(nil, "x-user", "kristie")
		want := []string{"peek [{api login} {user kristie}]"}
		if tt.charged {
			want = append(want, "record [{api login} {user kristie}]")
		}
		want = append(want, want...) // the call's, and the stream's
		res, err := o.Unary()(ctx, nil, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) { return "result", tt.err })
		if res != "result" || err != tt.err {
			t.Errorf("%s: %v, %v", tt.why, res, err)
		}
		if err := o.Stream()(nil, serverStream{ctx: ctx}, &grpc.StreamServerInfo{}, func(any, grpc.ServerStream) error { return tt.err }); err != tt.err {
			t.Errorf("%s: %v", tt.why, err)
		}
		if got := asked(c); !slices.Equal(got, want) {
			t.Errorf("%s: asked %q, want %q", tt.why, got, want)
		}
	}
}

// Who may not pass does not reach the handler, and is not charged.
func TestOutcomesDenied(t *testing.T) {
	c := checktest.Deny(time.Second).WithRules(parse(t, "rules: [{name: failures, match: {api: login}, key: [], limit: 3/day}]"))
	o := chargeOn(t, newLimit(t, c, grpclimit.Options{}), codes.ResourceExhausted)
	if got := call(incoming(nil), o.Unary()); got != codes.ResourceExhausted || len(c.Asked()) != 1 {
		t.Errorf("%v, asked %q", got, asked(c))
	}
	err := o.Stream()(nil, serverStream{ctx: incoming(nil)}, &grpc.StreamServerInfo{}, nil)
	if status.Code(err) != codes.ResourceExhausted || len(c.Asked()) != 2 {
		t.Errorf("a stream: %v, asked %q", err, asked(c))
	}
}

// A panic goes on, and counts as Internal, which is what interceptors that recover make of it.
func TestOutcomeOfAPanic(t *testing.T) {
	for _, tt := range []struct {
		on   codes.Code
		want int
	}{{codes.Internal, 2}, {codes.OK, 1}} {
		c := checktest.Allow().WithRules(parse(t, "rules: [{name: crashes, match: {api: login}, key: [], limit: 3/day}]"))
		o := chargeOn(t, newLimit(t, c, grpclimit.Options{}), tt.on)
		panicked := func() (p any) {
			defer func() { p = recover() }()
			_, _ = o.Unary()(incoming(nil), nil, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) { panic("oops") })
			return nil
		}()
		if panicked != "oops" || len(c.Asked()) != tt.want {
			t.Errorf("%v: panic %v, asked %q", tt.on, panicked, asked(c))
		}
	}
}

// Without a rule that asks for the attribute nothing is asked; and when such a rule comes, it
// holds.
func TestOutcomesWithoutRules(t *testing.T) {
	c := checktest.Allow().For("user")
	on := []codes.Code{codes.OK}
	o := chargeOn(t, newLimit(t, c, grpclimit.Options{}), on...)
	on[0] = codes.NotFound // it has its own
	if got := call(incoming(nil), o.Unary()); got != codes.OK || len(c.Asked()) != 0 {
		t.Errorf("%v, asked %q", got, asked(c))
	}
	c.WithRules(parse(t, "rules: [{name: all, match: {api: login}, key: [], limit: 3/day}]"))
	if got := call(incoming(nil), o.Unary()); got != codes.OK || len(c.Asked()) != 2 {
		t.Errorf("%v, asked %q", got, asked(c))
	}
}

func TestChargeOnSays(t *testing.T) {
	limit := newLimit(t, checktest.Allow(), grpclimit.Options{User: byMetadata, Sources: map[string]grpclimit.Source{"org": grpclimit.FromMetadata("x-org")}})
	for _, tt := range []struct {
		name string
		on   []codes.Code
		want string
	}{
		{"api", nil, "no code"},
		{"api", []codes.Code{codes.OK, 17}, "code 17"},
		{"", []codes.Code{codes.OK}, "empty"},
		{"user", []codes.Code{codes.OK}, `"user": calls have it anyway`},
		{"org", []codes.Code{codes.OK}, `"org": calls have it anyway`},
		{"header:x", []codes.Code{codes.OK}, `"header:x": calls have it anyway`},
		{"header:a b", []codes.Code{codes.OK}, "no header"},
	} {
		_, err := limit.ChargeOn(identity.Attribute{Name: tt.name}, tt.on...)
		if err == nil || !strings.HasPrefix(err.Error(), "grpclimit: charge by outcome: ") || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q, %v: %v, want %q", tt.name, tt.on, err, tt.want)
		}
	}
}

var modes = map[check.Mode]string{check.Charge: "check", check.Peek: "peek", check.Record: "record"}

func asked(c *checktest.Checker) (all []string) {
	for _, a := range c.Asked() {
		all = append(all, fmt.Sprint(modes[a.Mode], " ", a.Attributes))
	}
	return all
}
