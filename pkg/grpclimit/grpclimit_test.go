package grpclimit_test

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/check/checktest"
	"github.com/offpath-io/offpath/pkg/grpclimit"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/identity/httpidentity"
	"github.com/offpath-io/offpath/pkg/limitheaders"
)

var (
	_ grpclimit.Checker = (*check.Checker)(nil)
	_ grpclimit.Checker = (*checktest.Checker)(nil)
)

// A call is read as the rules need, and no further.
func TestReadsWhatTheRulesAskFor(t *testing.T) {
	trusted, err := httpidentity.ParseProxies("192.0.2.0/24")
	must(t, err)
	const forwarded = "6.6.6.6, 2001:db8::7"
	proxied := grpclimit.Options{Identity: httpidentity.Options{TrustedProxies: trusted}}
	rfc7239 := grpclimit.Options{Identity: httpidentity.Options{TrustedProxies: trusted, Forwarding: httpidentity.Forwarded}}
	narrow := grpclimit.Options{Identity: httpidentity.Options{IPv4Prefix: 24, IPv6Prefix: 48}}
	sockets := grpclimit.Options{Identity: httpidentity.Options{TrustSockets: true}}
	user := grpclimit.Options{User: byMetadata}
	plan := grpclimit.Options{Sources: map[string]grpclimit.Source{"plan": grpclimit.FromMetadata("X-Plan"), "method": grpclimit.FromMetadata("none")}}
	here := incoming(tcp("192.0.2.1"), "x-user", "kristie", "x-plan", "gold", "x-plan", "silver", "x-forwarded-for", forwarded,
		"forwarded", "for=198.51.100.7", ":authority", "api.example", "trace-bin", "\x00\xff")
	one := func(name, value string) identity.Attributes { return identity.Attributes{{Name: name, Value: value}} }
	var none grpclimit.Options
	for _, tt := range []struct {
		why  string
		ctx  context.Context
		keys []string
		o    grpclimit.Options
		want identity.Attributes
	}{
		{"nothing", here, nil, user, nil},
		{"the user", here, []string{"user"}, user, one("user", "kristie")},
		{"no user without who knows", here, []string{"user"}, none, nil},
		{"nobody is no user", incoming(tcp("192.0.2.1")), []string{"user"}, user, nil},
		{"the method", here, []string{"method"}, none, one("method", unaryMethod)},
		{"the service", here, []string{"service"}, none, one("service", "grpc.testing.TestService")},
		{"the first of a name, in any case", here, []string{"header:X-Plan"}, none, one("header:X-Plan", "gold")},
		{"bytes", here, []string{"header:trace-bin"}, none, one("header:trace-bin", "\x00\xff")},
		{"the host", here, []string{"header:Host"}, none, one("header:Host", "api.example")},
		{"what was not sent", here, []string{"header:x-none"}, none, nil},
		{"no metadata at all", context.Background(), []string{"header:x-plan", "ip"}, none, nil},
		{"a source, also in another's place", here, []string{"plan", "method"}, plan, one("plan", "gold")},
		{"all of them", here, []string{"header:x-plan", "ip", "address", "method", "user"}, user, identity.Attributes{
			{Name: "address", Value: "192.0.2.1"}, {Name: "header:x-plan", Value: "gold"}, {Name: "ip", Value: "192.0.2.1"},
			{Name: "method", Value: unaryMethod}, {Name: "user", Value: "kristie"}}},
		{"the client behind a proxy", here, []string{"ip"}, proxied, one("ip", "2001:db8::/64")},
		{"by the other header", here, []string{"ip"}, rfc7239, one("ip", "198.51.100.7")},
		{"the proxy, if it is not trusted", here, []string{"ip"}, none, one("ip", "192.0.2.1")},
		{"a mapped address", incoming(tcp("::ffff:192.0.2.1")), []string{"address"}, none, one("address", "192.0.2.1")},
		{"a zone", incoming(&net.TCPAddr{IP: net.ParseIP("fe80::1"), Zone: "eth0"}), []string{"address"}, none, one("address", "fe80::1")},
		{"shorter prefixes", incoming(tcp("2001:db8:1:2::3")), []string{"ip"}, narrow, one("ip", "2001:db8:1::/48")},
		{"no address", incoming(&net.TCPAddr{}), []string{"ip"}, none, nil},
		{"no peer", incoming(nil, "x-forwarded-for", forwarded), []string{"ip", "address"}, proxied, nil},
		{"a socket", incoming(&net.UnixAddr{Name: "@"}, "x-forwarded-for", forwarded), []string{"ip"}, none, nil},
		{"a trusted socket", incoming(&net.UnixAddr{Name: "@"}, "x-forwarded-for", forwarded), []string{"ip"}, sockets, one("ip", "2001:db8::/64")},
	} {
		c := checktest.Allow().For(tt.keys...)
		limit := newLimit(t, c, tt.o)
		for i := range 2 { // the second one with the room of the first
			if got := call(tt.ctx, limit.Unary()); got != codes.OK {
				t.Errorf("%s: %v", tt.why, got)
			}
			got := c.Asked()[i:]
			if len(got) != 1 || got[0].Method != "Check" || got[0].Cost != 1 || !slices.Equal(got[0].Attributes, tt.want) {
				t.Errorf("%s: asked %q, want %q", tt.why, asked(c), tt.want)
			}
		}
	}
}

// A name that is not in a usual form is no service.
func TestServiceOfOddNames(t *testing.T) {
	for _, tt := range []struct{ method, want string }{
		{"/a.B/C", "a.B"}, {"a.B/C", "a.B"}, {"/a/b/C", "a/b"}, {"/C", ""}, {"C", ""}, {"//C", ""}, {"", ""}, {"/", ""},
	} {
		c := checktest.Allow().For("service")
		newLimit(t, c, grpclimit.Options{}).Decide(context.Background(), tt.method)
		if got, ok := c.Asked()[0].Attributes.Get("service"); got != tt.want || ok != (tt.want != "") {
			t.Errorf("%q: %q %v, want %q", tt.method, got, ok, tt.want)
		}
	}
}

// The next call after a change of the rules is read as the new ones ask. What nothing provides, or
// cannot be a header's name, is missing.
func TestRulesChange(t *testing.T) {
	c := checktest.Allow().For("user")
	limit := newLimit(t, c, grpclimit.Options{User: byMetadata})
	ctx := incoming(nil, "x-user", "kristie", "x-plan", "gold")
	limit.Decide(ctx, unaryMethod)
	c.For("header:x-plan", "org", "header:a(b")
	limit.Decide(ctx, unaryMethod)
	if got := asked(c); !slices.Equal(got, []string{"check [{user kristie}]", "check [{header:x-plan gold}]"}) {
		t.Errorf("asked %q", got)
	}
	for range 2 {
		got := limit.Unknown()
		if slices.Sort(got); !slices.Equal(got, []string{"header:a(b", "org"}) {
			t.Fatalf("unknown: %q", got)
		}
		got[0] = "changed" // it is ours
	}
}

func TestNewSays(t *testing.T) {
	fine := checktest.Allow()
	from := grpclimit.FromMetadata("x-user")
	for _, tt := range []struct {
		c    grpclimit.Checker
		o    grpclimit.Options
		want string
	}{
		{nil, grpclimit.Options{}, "no checker"},
		{checktest.Allow().WithRules(nil), grpclimit.Options{}, "no rules"},
		{fine, grpclimit.Options{Headers: 12}, "draft 12: want 4 to 11"},
		{fine, grpclimit.Options{User: byMetadata, Sources: map[string]grpclimit.Source{"user": from}}, "want one of User"},
		{fine, grpclimit.Options{Sources: map[string]grpclimit.Source{"": from}}, "without a name"},
		{fine, grpclimit.Options{Sources: map[string]grpclimit.Source{"a": nil}}, `"a" is nil`},
		{fine, grpclimit.Options{Sources: map[string]grpclimit.Source{"ip": from}}, `source "ip"`},
		{fine, grpclimit.Options{Sources: map[string]grpclimit.Source{"address": from}}, `source "address"`},
		{fine, grpclimit.Options{Identity: httpidentity.Options{Sources: map[string]httpidentity.Source{"a": nil}}}, "want Sources"},
		{fine, grpclimit.Options{Identity: httpidentity.Options{TrustedProxies: []netip.Prefix{{}}}}, "trusted proxy 1"},
		{checktest.Allow().For("header:a(b"), grpclimit.Options{}, `"header:a(b"`},
	} {
		if _, err := grpclimit.New(tt.c, tt.o); err == nil || !strings.HasPrefix(err.Error(), "grpclimit: ") || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q", tt.o, err, tt.want)
		}
	}
	sources := map[string]grpclimit.Source{"user": from}
	c := checktest.Allow()
	limit := newLimit(t, c, grpclimit.Options{Headers: limitheaders.Newest, Sources: sources})
	delete(sources, "user") // it has its own
	c.For("user")
	if got := limit.Unknown(); got != nil {
		t.Errorf("unknown: %q", got)
	}
}
