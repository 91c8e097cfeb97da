package httpidentity

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

func TestOptionsRefused(t *testing.T) {
	source := func(*http.Request) (string, bool) { return "", false }
	for _, tt := range []struct {
		options Options
		reason  string
	}{
		{Options{IPv4Prefix: 33}, "IPv4 prefix of 33 bits: want 1 to 32, or 0 for 32"},
		{Options{IPv6Prefix: 129}, "IPv6 prefix of 129 bits: want 1 to 128, or 0 for 64"},
		{Options{Forwarding: 2}, "forwarding header 2"},
		{Options{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), {}}}, "trusted proxy 2 is no prefix"},
		{Options{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("::ffff:0.0.0.0/90")}}, "trusted proxy 1, ::ffff:0.0.0.0/90"},
		{Options{Sources: map[string]Source{"": source}}, "without a name"},
		{Options{Sources: map[string]Source{"user": nil}}, `source "user" is nil`},
		{Options{Sources: map[string]Source{"ip": source}}, `source "ip"`},
		{Options{Sources: map[string]Source{"address": source}}, `source "address"`},
	} {
		b, err := NewBuilder(tt.options)
		if err == nil || b != nil || !strings.Contains(err.Error(), tt.reason) || !strings.HasPrefix(err.Error(), "request identity: ") {
			t.Errorf("%+v: %v, want …%s…", tt.options, err, tt.reason)
		}
	}
	for _, o := range []Options{{}, {IPv4Prefix: 1, IPv6Prefix: 1}, {IPv4Prefix: 32, IPv6Prefix: 128}} {
		if _, err := NewBuilder(o); err != nil {
			t.Error(err)
		}
	}
}

func TestOptionsAreCopied(t *testing.T) {
	sources := map[string]Source{"user": FromHeader("X-User")}
	trusted := proxies(t, "10.0.0.0/8")
	b := builder(t, Options{TrustedProxies: trusted, Sources: sources})
	delete(sources, "user")
	trusted[0] = netip.MustParsePrefix("0.0.0.0/0")
	rd, err := b.Reader([]string{"user"})
	if err != nil || len(rd.Unknown()) != 0 {
		t.Errorf("unknown are %q, %v", rd.Unknown(), err)
	}
	check(t, b, "a stranger", "192.0.2.7:80", http.Header{"X-Forwarded-For": {"6.6.6.6"}}, "192.0.2.7")
}

func TestParseProxies(t *testing.T) {
	got, err := ParseProxies("10.1.2.3/8", "192.0.2.1", "::ffff:192.0.2.2", "2001:db8::/32")
	if want := "[10.0.0.0/8 192.0.2.1/32 192.0.2.2/32 2001:db8::/32]"; err != nil || fmt.Sprint(got) != want {
		t.Errorf("%v, %v, want %s", got, err, want)
	}
	if _, err := ParseProxies("10.0.0.0/8", "proxy.example.com"); err == nil || !strings.Contains(err.Error(), `trusted proxy 2, "proxy.example.com": want`) {
		t.Errorf("error %v", err)
	}
	if got, err := ParseProxies(); err != nil || len(got) != 0 {
		t.Errorf("none: %v, %v", got, err)
	}
}

func TestForwardingNames(t *testing.T) {
	for text, want := range map[string]Forwarding{"X-Forwarded-For": XForwardedFor, "x-forwarded-for": XForwardedFor, "forwarded": Forwarded} {
		got, err := ParseForwarding(text)
		if err != nil || got != want || !strings.EqualFold(got.String(), text) {
			t.Errorf("%s is %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "X-Real-IP", "Forwarded "} {
		if _, err := ParseForwarding(text); err == nil {
			t.Errorf("%q is not refused", text)
		}
	}
	if got := Forwarding(9).String(); got != "invalid" {
		t.Errorf("Forwarding(9) is %q", got)
	}
}
