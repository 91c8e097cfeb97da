package httpidentity

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// trustedHops and strangers are where the addresses of these tests come from.
var (
	trustedNets = []string{"10.0.0.0/8", "fd00::/8"}
	trustedHops = []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.255.0.9"), netip.MustParseAddr("fd00::1")}
	strangers   = []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("9.255.255.255"), netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("fc00::1")}
)

// evil draws lines as a client may send them who wants to be somebody else: of bytes that mean
// something in such headers, and of whole elements.
func evil(t *rapid.T) []string {
	piece := rapid.OneOf(
		rapid.StringOfN(rapid.SampledFrom([]rune(`",;=\[]:_. for16%`)), 0, 12, -1),
		rapid.SampledFrom([]string{"10.0.0.1", "6.6.6.6", ", ", `for="`, `";`, "for=6.6.6.6", `for="[fd00::1]:80"`, "for=10.0.0.1, ", `host="a`, `\`, `\"`}),
		rapid.String(),
	)
	line := rapid.Map(rapid.SliceOfN(piece, 0, 5), func(pieces []string) string { return strings.Join(pieces, "") })
	return rapid.SliceOfN(line, 0, 4).Draw(t, "the client's own lines")
}

// element is what a proxy writes for one whom it gets a request from, well-formed in one of many
// ways.
func element(t *rapid.T, f Forwarding, from netip.Addr) string {
	address := from.String()
	port := rapid.SampledFrom([]string{"", ":1", ":65535"}).Draw(t, "port")
	if from.Is6() && (f == Forwarded || port != "") {
		address = "[" + address + "]"
	}
	if f == XForwardedFor {
		return address + port
	}
	node := address + port
	if from.Is6() || port != "" || rapid.Bool().Draw(t, "quoted") {
		node = `"` + node + `"`
	}
	pairs := []string{rapid.SampledFrom([]string{"for", "For", "FOR"}).Draw(t, "for") + "=" + node}
	if rapid.Bool().Draw(t, "with host") { // the client's word, as a proxy has to quote it
		host := rapid.StringOfN(rapid.SampledFrom([]rune(`a",;=\ for`)), 0, 10, -1).Draw(t, "host")
		pairs = append(pairs, `host="`+strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(host)+`"`)
	}
	if rapid.Bool().Draw(t, "with proto") {
		pairs = append(pairs, "proto=https")
	}
	return strings.Join(rapid.Permutation(pairs).Draw(t, "order"), ";")
}

// pass adds a proxy's element: in a line of its own, or after the last one, or after all, joined.
func pass(t *rapid.T, lines []string, element string) []string {
	comma := rapid.SampledFrom([]string{",", ", ", " ,\t"}).Draw(t, "comma")
	how := rapid.SampledFrom([]string{"line", "last", "joined"}).Draw(t, "added")
	switch {
	case len(lines) == 0 || how == "line":
		return append(lines, element)
	case how == "last":
		lines[len(lines)-1] += comma + element
		return lines
	}
	return []string{strings.Join(append(lines, element), comma)}
}

func eachForwarding(t *testing.T, property func(t *rapid.T, b *Builder, f Forwarding)) {
	for _, f := range []Forwarding{XForwardedFor, Forwarded} {
		b := builder(t, Options{TrustedProxies: proxies(t, trustedNets...), Forwarding: f})
		t.Run(f.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { property(t, b, f) })
		})
	}
}

// Whatever headers a client adds, it is found by the address it has, behind trusted proxies that
// append and behind none.
func TestClientsCannotChangeTheirAddress(t *testing.T) {
	eachForwarding(t, func(t *rapid.T, b *Builder, f Forwarding) {
		lines, other := evil(t), evil(t)
		client := rapid.SampledFrom(strangers).Draw(t, "client")
		sender := client
		for range rapid.IntRange(0, 4).Draw(t, "proxies") {
			lines = pass(t, lines, element(t, f, sender))
			sender = rapid.SampledFrom(trustedHops).Draw(t, "proxy")
		}
		h := http.Header{f.String(): lines, (1 - f).String(): other}
		peer := netip.AddrPortFrom(sender, 4711).String()
		if addr, ok := b.ClientIP(peer, h); !ok || addr != client {
			t.Fatalf("%v over %s with %q is taken for %v, %v", client, peer, h, addr, ok)
		}
	})
}
