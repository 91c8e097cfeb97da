package httpidentity

import (
	"net/http"
	"net/netip"
	"strings"

	"github.com/offpath-io/offpath/pkg/identity"
)

const (
	// MaxHops is how many trusted proxies there may be before the client. Further elements of the
	// header are not read.
	MaxHops = 64
	// MaxRead is how much of a forwarding header is read, from its end, in bytes. An element that
	// is cut off there is malformed.
	MaxRead = 64 << 10
)

// ClientIP returns the client's address: not grouped, IPv4 as such, without a zone. It is that of
// the connection, http.Request.RemoteAddr, unless that is a trusted proxy. Then it is the last
// address of the forwarding header, unless that is a trusted proxy too, and so on from right to
// left. So nothing counts that an untrusted party has written.
//
// The search ends at an element that is empty or malformed, or has no client or a hidden one
// ("unknown", "_hidden"): the author of the elements to its left is unknown. The result is the last
// address found, which is a proxy's. It is also a proxy's if all are trusted.
//
// ok is false if no address is known.
func (b *Builder) ClientIP(remote string, h http.Header) (addr netip.Addr, ok bool) {
	return b.ClientIPFrom(remote, h[headers[b.options.Forwarding]])
}

// ClientIPFrom is ClientIP for protocols with another representation of headers: lines are all
// values of the header Options.Forwarding, in the order in which they came.
func (b *Builder) ClientIPFrom(remote string, lines []string) (addr netip.Addr, ok bool) {
	addr, ok = identity.ParseAddr(remote)
	if !ok && !(b.options.TrustSockets && isSocket(remote)) {
		return addr, false
	}
	elements := backwards{lines: lines, quotes: b.options.Forwarding == Forwarded, left: MaxRead}
	for range MaxHops {
		if ok && !b.trusted.Contains(addr) {
			break
		}
		element, more := elements.next()
		if !more {
			break
		}
		next, understood := b.options.Forwarding.client(element)
		if !understood {
			break
		}
		addr, ok = next, true
	}
	return addr, ok
}

// Trusts reports whether a remote address is a trusted proxy's, or a socket's if those are trusted.
func (b *Builder) Trusts(remote string) bool {
	if addr, ok := identity.ParseAddr(remote); ok {
		return b.trusted.Contains(addr)
	}
	return b.options.TrustSockets && isSocket(remote)
}

// isSocket reports whether a remote address is that of a Unix socket: a path, or empty.
func isSocket(remote string) bool {
	return remote == "" || remote[0] == '@' || remote[0] == '/'
}

// client returns the client's address in an element of the header.
func (f Forwarding) client(element string) (netip.Addr, bool) {
	if f == XForwardedFor {
		return identity.ParseAddr(element)
	}
	node, ok := forwardedFor(element)
	if !ok {
		return netip.Addr{}, false
	}
	return identity.ParseAddr(node)
}

// backwards reads the elements of a list header, last one first. Reading from left to right would
// be wrong where quotes count: a client could open a quote that the proxy's element then closes.
type backwards struct {
	lines  []string // those still to be read
	rest   string   // of the current line
	begun  bool
	quotes bool // commas in quotes do not separate elements
	left   int  // bytes that may still be read
}

// next returns the element before the previous one, without white space around it. more is false at
// the beginning of the header, at MaxRead, and where quotes do not match.
func (b *backwards) next() (element string, more bool) {
	if !b.begun {
		if len(b.lines) == 0 {
			return "", false
		}
		last := len(b.lines) - 1
		b.rest, b.lines, b.begun = b.lines[last], b.lines[:last], true
	}
	seen := b.rest[max(0, len(b.rest)-b.left):]
	comma, ok := b.lastComma(seen)
	if !ok || comma < 0 && len(seen) < len(b.rest) {
		return "", false
	}
	element = seen[comma+1:]
	b.left = max(0, b.left-len(element)-1)
	b.begun = comma >= 0
	b.rest = b.rest[:max(0, len(b.rest)-len(element)-1)]
	return strings.Trim(element, " \t"), true
}

// lastComma returns the index of the last comma outside quotes, -1 if there is none. ok is false if
// a quote is closed and not opened.
func (b *backwards) lastComma(s string) (comma int, ok bool) {
	if !b.quotes {
		return strings.LastIndexByte(s, ','), true
	}
	for i := len(s) - 1; i >= 0; i-- {
		switch s[i] {
		case ',':
			return i, true
		case '"':
			if s, ok = beforeQuoted(s[:i]); !ok {
				return -1, false
			}
			i = len(s)
		}
	}
	return -1, true
}

// beforeQuoted returns the part of s before the quoted string at its end, whose closing quote is
// not in s. Within a quoted string, a backslash precedes each quote, and each backslash is one of a
// pair or precedes a quote. So the opening quote is the last one with an even number of backslashes
// before it, whatever is to its left.
func beforeQuoted(s string) (before string, ok bool) {
	for {
		i := strings.LastIndexByte(s, '"')
		if i < 0 {
			return "", false
		}
		backslashes := i - len(strings.TrimRight(s[:i], `\`))
		if s = s[:i]; backslashes%2 == 0 {
			return s, true
		}
	}
}
