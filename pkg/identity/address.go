package identity

import (
	"net/netip"
	"strings"
)

// Default lengths of the prefix that stands for one client, in bits. A customer gets at least an
// IPv6 /64, and can send from any address of it.
const (
	DefaultIPv4Prefix = 32
	DefaultIPv6Prefix = 64
)

// maxAddress is the greatest length of an address in text, in bytes: enough for any address with
// its port and a zone of reasonable length.
const maxAddress = 128

// ParseAddr reads an address as sockets, logs and forwarding headers write it: plain, with a port
// ("192.0.2.1:80", "[2001:db8::1]:80"), or in brackets. A port may be a number or, as RFC 7239 has
// it, "_" and letters, digits, '.', '_' or '-'. The port and an IPv6 zone are dropped, and an IPv4
// address mapped into IPv6 becomes IPv4. ok is false for everything else, such as host names, and
// for texts of more than 128 bytes.
//
// An IPv6 address without brackets has no port: "2001:db8::1:80" is an address.
func ParseAddr(text string) (addr netip.Addr, ok bool) {
	if len(text) > maxAddress {
		return netip.Addr{}, false
	}
	host, port, bracketed, ok := splitPort(text)
	if !ok || !isPort(port) {
		return netip.Addr{}, false
	}
	addr, err := netip.ParseAddr(host)
	if err != nil || bracketed && !addr.Is6() {
		return netip.Addr{}, false
	}
	return addr.WithZone("").Unmap(), true
}

// splitPort removes brackets and port. The port begins with ':', or is "" if there is none.
func splitPort(text string) (host, port string, bracketed, ok bool) {
	if strings.HasPrefix(text, "[") {
		host, port, ok = strings.Cut(text[1:], "]")
		return host, port, true, ok
	}
	if i := strings.IndexByte(text, ':'); i >= 0 && strings.LastIndexByte(text, ':') == i {
		return text[:i], text[i:], false, true
	}
	return text, "", false, true // IPv4 without a port, or IPv6
}

// isPort reports whether s is empty, or ':' and a port.
func isPort(s string) bool {
	if s == "" {
		return true
	}
	if s[0] != ':' || len(s) < 2 {
		return false
	}
	if s[1] == '_' {
		invalid := func(r rune) bool {
			return !isLetterOrDigit(r) && !strings.ContainsRune("._-", r)
		}
		return len(s) > 2 && !strings.ContainsFunc(s[2:], invalid)
	}
	port := 0
	for _, c := range s[1:] {
		if c < '0' || c > '9' || len(s) > len(":65535") {
			return false
		}
		port = 10*port + int(c-'0')
	}
	return port <= 65535
}

func isLetterOrDigit(r rune) bool {
	return r|0x20 >= 'a' && r|0x20 <= 'z' || r >= '0' && r <= '9'
}

// Group returns the text that stands for the client at an address: the prefix of v4 or v6 bits in
// CIDR notation, "2001:db8::/64", or the plain address for all bits of an IPv4 address. 0 bits or
// fewer mean DefaultIPv4Prefix and DefaultIPv6Prefix; more bits than the address has mean all. A
// zone is dropped, and an IPv4 address mapped into IPv6 becomes IPv4. The text of an invalid
// address is "".
func Group(addr netip.Addr, v4, v6 int) string {
	var buffer [maxGroup]byte
	return string(AppendGroup(buffer[:0], addr, v4, v6))
}

const maxGroup = len("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128")

// AppendGroup appends what Group returns to dst and returns it. It does not allocate if dst has
// room for 43 bytes.
func AppendGroup(dst []byte, addr netip.Addr, v4, v6 int) []byte {
	if !addr.IsValid() {
		return dst
	}
	addr = addr.WithZone("").Unmap()
	bits := groupBits(v6, DefaultIPv6Prefix)
	if addr.Is4() {
		bits = groupBits(v4, DefaultIPv4Prefix)
	}
	bits = min(bits, addr.BitLen())
	if bits == addr.BitLen() && addr.Is4() {
		return addr.AppendTo(dst)
	}
	prefix, _ := addr.Prefix(bits) // no error: 0 < bits <= BitLen
	return prefix.AppendTo(dst)
}

func groupBits(bits, otherwise int) int {
	if bits <= 0 {
		return otherwise
	}
	return bits
}

// ParseGroup reads a text of Group, or any address or prefix in CIDR notation, and returns the
// addresses that it stands for. ok is false for everything else. For lists of addresses: a group is
// within a prefix that contains the group's address and has no more bits.
func ParseGroup(text string) (group netip.Prefix, ok bool) {
	if len(text) > maxAddress {
		return netip.Prefix{}, false
	}
	if !strings.Contains(text, "/") {
		addr, err := netip.ParseAddr(text)
		addr = addr.WithZone("").Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), err == nil
	}
	group, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, false
	}
	return unmapPrefix(group)
}

// unmapPrefix turns a prefix of mapped IPv4 addresses into one of IPv4. ok is false if it also
// contains IPv6 addresses, which is most likely a mistake.
func unmapPrefix(p netip.Prefix) (unmapped netip.Prefix, ok bool) {
	if !p.Addr().Is4In6() {
		return p.Masked(), p.IsValid()
	}
	const mapped = 96 // bits before the IPv4 address
	if p.Bits() < mapped {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-mapped).Masked(), true
}
