package identity

import (
	"net/netip"
	"strings"
	"testing"
)

func TestParseAddr(t *testing.T) {
	for _, tt := range []struct{ why, text, want string }{
		{"IPv4", "192.0.2.1", "192.0.2.1"},
		{"with a port", "192.0.2.1:4711", "192.0.2.1"},
		{"the greatest port", "192.0.2.1:65535", "192.0.2.1"},
		{"a port that is hidden", "192.0.2.1:_a.B-9_", "192.0.2.1"},
		{"IPv6", "2001:db8::1", "2001:db8::1"},
		{"in brackets", "[2001:db8::1]", "2001:db8::1"},
		{"with a port", "[2001:db8::1]:4711", "2001:db8::1"},
		{"with a hidden port", "[2001:db8::1]:_x", "2001:db8::1"},
		{"without brackets there is no port", "2001:db8::1:80", "2001:db8::1:80"},
		{"a zone is dropped", "fe80::1%eth0", "fe80::1"},
		{"mapped", "::ffff:192.0.2.1", "192.0.2.1"},
		{"mapped, in hexadecimal", "::ffff:c000:201", "192.0.2.1"},
		{"mapped, with zone and port", "[::ffff:192.0.2.1%1]:80", "192.0.2.1"},
		{"the long form is not mapped", "::192.0.2.1", "::c000:201"},
		{"NAT64 is left alone", "64:ff9b::192.0.2.1", "64:ff9b::c000:201"},

		{"nothing", "", ""},
		{"a host name", "example.com", ""},
		{"hidden", "_hidden", ""},
		{"a number too great", "192.0.2.256", ""},
		{"zeros before it, which some take for octal", "192.0.02.1", ""},
		{"one number, which some take for an address", "3221225985", ""},
		{"a prefix", "192.0.2.0/24", ""},
		{"a port of nothing", "192.0.2.1:", ""},
		{"a port too great", "192.0.2.1:65536", ""},
		{"a port of many digits", "192.0.2.1:000080", ""},
		{"a port that is none", "192.0.2.1:http", ""},
		{"a sign", "192.0.2.1:+80", ""},
		{"a hidden port of nothing", "192.0.2.1:_", ""},
		{"a hidden port with something else", "192.0.2.1:_a b", ""},
		{"a hidden port of something else", "192.0.2.1:_ ", ""},
		{"IPv4 in brackets", "[192.0.2.1]", ""},
		{"a bracket that is not closed", "[2001:db8::1", ""},
		{"a bracket that is not opened", "2001:db8::1]", ""},
		{"something after the brackets", "[2001:db8::1]80", ""},
		{"two ports", "[2001:db8::1]:80:80", ""},
		{"a socket", "@", ""},
		{"a zone of no length", "fe80::1%", ""},
		{"a zone of IPv4", "192.0.2.1%eth0", ""},
		{"a long zone", "fe80::1%" + strings.Repeat("z", 200), ""},
	} {
		addr, ok := ParseAddr(tt.text)
		if ok != (tt.want != "") || ok && addr != netip.MustParseAddr(tt.want) || !ok && addr.IsValid() {
			t.Errorf("%s: %.80q is %v, %v; want %q", tt.why, tt.text, addr, ok, tt.want)
		}
	}
}

func TestAddressesAreGroupedByPrefix(t *testing.T) {
	for _, tt := range []struct {
		why, addr string
		v4, v6    int
		want      string
	}{
		{"IPv4 alone", "192.0.2.1", 0, 0, "192.0.2.1"},
		{"IPv6 by /64", "2001:db8:1:2:3:4:5:6", 0, 0, "2001:db8:1:2::/64"},
		{"as set", "192.0.2.1", 24, 48, "192.0.2.0/24"},
		{"as set", "2001:db8:1:2::1", 24, 48, "2001:db8:1::/48"},
		{"within a byte", "192.0.2.255", 27, 0, "192.0.2.224/27"},
		{"more than all", "192.0.2.1", 33, 129, "192.0.2.1"},
		{"more than all", "2001:db8::1", 33, 129, "2001:db8::1/128"},
		{"fewer than none", "2001:db8::1", -1, -1, "2001:db8::/64"},
		{"mapped is IPv4", "::ffff:192.0.2.1", 24, 64, "192.0.2.0/24"},
		{"a zone is dropped", "fe80::1%eth0", 0, 128, "fe80::1/128"},
	} {
		if got := Group(netip.MustParseAddr(tt.addr), tt.v4, tt.v6); got != tt.want {
			t.Errorf("%s: %s by %d and %d is %q, want %q", tt.why, tt.addr, tt.v4, tt.v6, got, tt.want)
		}
	}
	if got := Group(netip.Addr{}, 0, 0); got != "" {
		t.Errorf("no address: %q", got)
	}
	if got := string(AppendGroup([]byte("ip "), netip.MustParseAddr("192.0.2.1"), 0, 0)); got != "ip 192.0.2.1" {
		t.Errorf("appended: %q", got)
	}
}

func TestParseGroup(t *testing.T) {
	for _, tt := range []struct{ why, text, want string }{
		{"an address", "192.0.2.1", "192.0.2.1/32"},
		{"an address", "2001:db8::1", "2001:db8::1/128"},
		{"a prefix", "10.0.0.0/8", "10.0.0.0/8"},
		{"with more than the prefix", "10.1.2.3/8", "10.0.0.0/8"},
		{"a prefix", "2001:db8::/32", "2001:db8::/32"},
		{"everything", "0.0.0.0/0", "0.0.0.0/0"},
		{"mapped", "::ffff:192.0.2.1", "192.0.2.1/32"},
		{"mapped", "::ffff:10.0.0.0/104", "10.0.0.0/8"},
		{"all of IPv4, mapped", "::ffff:0:0/96", "0.0.0.0/0"},
		{"a zone", "fe80::1%eth0", "fe80::1/128"},
		{"mapped and others", "::ffff:10.0.0.0/95", ""},
		{"a port", "192.0.2.1:80", ""},
		{"too many bits", "10.0.0.0/33", ""},
		{"a host name", "example.com", ""},
		{"nothing", "", ""},
		{"a prefix with a zone", "fe80::%eth0/64", ""},
		{"very long", "::" + strings.Repeat("0", 200), ""},
	} {
		group, ok := ParseGroup(tt.text)
		if ok != (tt.want != "") || ok && group != netip.MustParsePrefix(tt.want) || !ok && group.IsValid() {
			t.Errorf("%s: %.80q is %v, %v; want %q", tt.why, tt.text, group, ok, tt.want)
		}
	}
}

// FuzzParseAddr: whatever is read is plain, and read the same again in each way of writing it.
func FuzzParseAddr(f *testing.F) {
	for _, text := range []string{"192.0.2.1:80", "[2001:db8::1%eth0]:_x", "::ffff:1.2.3.4", "2001:db8::/32", "[1]:", "_hidden"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if group, ok := ParseGroup(text); ok {
			if again, ok := ParseGroup(group.String()); !ok || again != group || group != group.Masked() {
				t.Fatalf("%q is %v, then %v, %v", text, group, again, ok)
			}
		}
		addr, ok := ParseAddr(text)
		if !ok {
			return
		}
		if !addr.IsValid() || addr.Zone() != "" || addr.Is4In6() || len(text) > maxAddress {
			t.Fatalf("%q is %v", text, addr)
		}
		for _, written := range []string{addr.String(), netip.AddrPortFrom(addr, 80).String()} {
			if again, ok := ParseAddr(written); !ok || again != addr {
				t.Fatalf("%q is %v, and %q is %v, %v", text, addr, written, again, ok)
			}
		}
	})
}
