package httpidentity

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func proxies(t testing.TB, list ...string) []netip.Prefix {
	t.Helper()
	prefixes, err := ParseProxies(list...)
	must(t, err)
	return prefixes
}

func builder(t testing.TB, o Options) *Builder {
	t.Helper()
	b, err := NewBuilder(o)
	must(t, err)
	return b
}

// lines are those of one header, divided by newlines; "" is none.
func lines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// The proxies trusted here are 10.0.0.0/8 and fd00::/8, the peer is 10.0.0.1 unless another one is
// given.
func TestClientIPByXForwardedFor(t *testing.T) {
	b := builder(t, Options{TrustedProxies: proxies(t, "10.0.0.0/8", "fd00::/8")})
	for _, tt := range []struct{ why, peer, header, want string }{
		{"no header", "", "", "10.0.0.1"},
		{"one hop", "", "192.0.2.1", "192.0.2.1"},
		{"what the client wrote is to the left", "", "6.6.6.6, 192.0.2.1", "192.0.2.1"},
		{"and may be anything", "", `"a\,%00, for=, 192.0.2.1`, "192.0.2.1"},
		{"trusted hops are passed", "", "6.6.6.6, 192.0.2.1, 10.0.0.3, 10.0.0.2", "192.0.2.1"},
		{"several lines, in order", "", "6.6.6.6\n192.0.2.1\n10.0.0.3, 10.0.0.2", "192.0.2.1"},
		{"ports of IPv6", "", "[2001:db8::1]:4711, [fd00::2]:80", "2001:db8::1"},
		{"all are trusted: the first", "", "10.0.0.3, 10.0.0.2", "10.0.0.3"},

		{"the peer is not trusted", "192.0.2.7:80", "192.0.2.1", "192.0.2.7"},
		{"the peer is mapped", "[::ffff:10.0.0.1]:80", "192.0.2.1", "192.0.2.1"},
		{"the peer has a zone", "[fd00::1%eth0]:80", "192.0.2.1", "192.0.2.1"},
		{"the peer is none", "@", "192.0.2.1", ""},
		{"the peer is none", "pipe", "192.0.2.1", ""},

		{"garbage: the last that is good", "", "192.0.2.1, what?, 10.0.0.2", "10.0.0.2"},
		{"garbage last: the peer", "", "192.0.2.1, what?", "10.0.0.1"},
		{"unknown", "", "192.0.2.1, unknown, 10.0.0.2", "10.0.0.2"},
		{"nothing between commas is not passed over", "", "192.0.2.1,, 10.0.0.2", "10.0.0.2"},
		{"a comma at the end", "", "192.0.2.1,", "10.0.0.1"},
		{"a comma at the beginning of a line", "", "192.0.2.1\n,10.0.0.2", "10.0.0.2"},
		{"a line of nothing", "", "192.0.2.1\n", "10.0.0.1"},
		{"quotes are of the other header", "", `"192.0.2.1"`, "10.0.0.1"},
		{"as many hops as may be", "", "192.0.2.1" + strings.Repeat(", 10.0.0.2", MaxHops-1), "192.0.2.1"},
		{"one hop more", "", "192.0.2.1" + strings.Repeat(", 10.0.0.2", MaxHops), "10.0.0.2"},
		{"long spam to the left", "", strings.Repeat("x", 2*MaxRead) + ",192.0.2.1", "192.0.2.1"},
		{"long spam in a hop", "", "192.0.2.1, " + strings.Repeat(" ", 2*MaxRead) + "10.0.0.2", "10.0.0.1"},
		{"as much as is read", "", "192.0.2.1," + strings.Repeat(" ", MaxRead-len("192.0.2.1,10.0.0.2")) + "10.0.0.2", "192.0.2.1"},
		{"one byte more", "", "192.0.2.1," + strings.Repeat(" ", 1+MaxRead-len("192.0.2.1,10.0.0.2")) + "10.0.0.2", "10.0.0.2"},
	} {
		peer := tt.peer
		if peer == "" {
			peer = "10.0.0.1:4711"
		}
		h := http.Header{"X-Forwarded-For": lines(tt.header), "Forwarded": {"for=6.6.6.6"}, "X-Real-Ip": {"6.6.6.6"}}
		check(t, b, tt.why, peer, h, tt.want)
	}
}

func check(t *testing.T, b *Builder, why, peer string, h http.Header, want string) {
	t.Helper()
	addr, ok := b.ClientIP(peer, h)
	if ok != (want != "") || ok && addr != netip.MustParseAddr(want) {
		t.Errorf("%s: from %s with %.100q: %v, %v; want %q", why, peer, h, addr, ok, want)
	}
}

func TestClientIPByForwarded(t *testing.T) {
	b := builder(t, Options{TrustedProxies: proxies(t, "10.0.0.0/8", "fd00::/8"), Forwarding: Forwarded})
	for _, tt := range []struct{ why, header, want string }{
		{"no header", "", "10.0.0.1"},
		{"one hop", "for=192.0.2.1", "192.0.2.1"},
		{"in any case", "FoR=192.0.2.1", "192.0.2.1"},
		{"in another order", "proto=https;by=10.0.0.1;for=192.0.2.1", "192.0.2.1"},
		{"IPv6, not quoted as it should be", `for=[2001:db8:cafe::17]:4711`, "2001:db8:cafe::17"},
		{"a hidden port", `for="192.0.2.1:_secret"`, "192.0.2.1"},
		{"white space", "for=6.6.6.6 ,\tfor=192.0.2.1 ; proto=http \t", "192.0.2.1"},
		{"empty pairs", ";for=192.0.2.1;;proto=http;", "192.0.2.1"},
		{"commas in quotes", `for=6.6.6.6, for=192.0.2.1;host="a,for=6.6.6.6,b"`, "192.0.2.1"},
		{"quotes in quotes", `for=6.6.6.6, for=192.0.2.1;host="a\",for=6.6.6.6,\"b\\"`, "192.0.2.1"},
		{"a hop with quotes in quotes", `for=192.0.2.1, for=10.0.0.2;host="\\\",\\"`, "192.0.2.1"},
		{"the client opens a quote", `for="6.6.6.6, for=192.0.2.1`, "192.0.2.1"},
		{"which the proxy would close", `for=6.6.6.6;x=", for=192.0.2.1;host="example.com"`, "192.0.2.1"},
		{"the client ends in a backslash", `for=6.6.6.6\, for="192.0.2.1"`, "192.0.2.1"},

		{"unknown", "for=192.0.2.1, for=unknown", "10.0.0.1"},
		{"no for is not passed over", "for=192.0.2.1, proto=https", "10.0.0.1"},
		{"for twice", "for=192.0.2.1;for=6.6.6.6", "10.0.0.1"},
		{"for of nothing", "for=", "10.0.0.1"},
		{"an address alone", "192.0.2.1", "10.0.0.1"},
		{"garbage before", "what?;for=192.0.2.1", "10.0.0.1"},
		{"garbage after", "for=192.0.2.1;what?", "10.0.0.1"},
		{"garbage after quotes", `for="192.0.2.1"6`, "10.0.0.1"},
		{"a quote in a value", `for=192.0.2.1;host=a"b"`, "10.0.0.1"},
		{"a quote that is not opened", `for=192.0.2.1;host=b"`, "10.0.0.1"},
		{"a quote that is not closed", `for=192.0.2.1;host="b`, "10.0.0.1"},
		{"two values", "for=192.0.2.1 6.6.6.6", "10.0.0.1"},
		{"a name in quotes", `"for"=192.0.2.1`, "10.0.0.1"},
		{"no semicolon", "for=192.0.2.1 proto=https", "10.0.0.1"},
		{"space around =", "for = 192.0.2.1", "10.0.0.1"},
		{"no name", "=192.0.2.1", "10.0.0.1"},
		{"a backslash", `for="192.0.2\.1"`, "10.0.0.1"},
		{"nothing between commas", "for=192.0.2.1,,for=10.0.0.2", "10.0.0.2"},
		{"one hop more than may be", "for=192.0.2.1" + strings.Repeat(", for=10.0.0.2", MaxHops), "10.0.0.2"},
		{"long spam to the left", strings.Repeat(`"`, 2*MaxRead) + ",for=192.0.2.1", "192.0.2.1"},
		{"long spam in a hop", `for=192.0.2.1;host="` + strings.Repeat("x", 2*MaxRead) + `"`, "10.0.0.1"},
	} {
		h := http.Header{"Forwarded": lines(tt.header), "X-Forwarded-For": {"6.6.6.6"}}
		check(t, b, tt.why, "10.0.0.1:4711", h, tt.want)
		check(t, b, tt.why+", from a stranger", "192.0.2.7:4711", h, "192.0.2.7")
	}
}

// A peer on a Unix socket has no address. It is a proxy if the operator says so, and unknown
// otherwise.
func TestClientIPOnSockets(t *testing.T) {
	trusting := builder(t, Options{TrustSockets: true, TrustedProxies: proxies(t, "10.0.0.0/8")})
	wary := builder(t, Options{TrustedProxies: proxies(t, "0.0.0.0/0")})
	for _, peer := range []string{"", "@", "@name", "/run/offpath.sock"} {
		check(t, trusting, "one hop", peer, http.Header{"X-Forwarded-For": {"6.6.6.6, 192.0.2.1"}}, "192.0.2.1")
		check(t, trusting, "two hops", peer, http.Header{"X-Forwarded-For": {"6.6.6.6, 192.0.2.1, 10.0.0.2"}}, "192.0.2.1")
		check(t, trusting, "garbage", peer, http.Header{"X-Forwarded-For": {"6.6.6.6, unix:"}}, "")
		check(t, trusting, "no header", peer, nil, "")
		check(t, wary, "not trusted", peer, http.Header{"X-Forwarded-For": {"192.0.2.1"}}, "")
	}
	check(t, trusting, "neither address nor socket", "pipe", http.Header{"X-Forwarded-For": {"192.0.2.1"}}, "")
}

func TestTrustsThePeersThatAreProxies(t *testing.T) {
	o := Options{TrustedProxies: proxies(t, "10.0.0.0/8", "fd00::/8")}
	for remote, want := range map[string]string{
		"10.0.0.1:4711": "proxy", "[fd00::1]:4711": "proxy", "[fd00::1%eth0]:1": "proxy", "[::ffff:10.0.0.1]:80": "proxy", "10.0.0.1": "proxy",
		"": "socket", "@": "socket", "/run/x.sock": "socket", "192.0.2.1:4711": "", "[2001:db8::1]:80": "", "pipe": "",
	} {
		for _, o.TrustSockets = range []bool{false, true} {
			if got := builder(t, o).Trusts(remote); got != (want == "proxy" || want == "socket" && o.TrustSockets) {
				t.Errorf("%q, trusting sockets: %v: %v", remote, o.TrustSockets, got)
			}
		}
	}
}
