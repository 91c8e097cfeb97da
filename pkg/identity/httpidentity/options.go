// Package httpidentity reads those attributes of HTTP requests that rules need.
//
// A [Builder] has the trusted proxies and the sources of attributes. It makes a [Reader] for the
// names that a set of rules needs, which reads these attributes from each request, and no others.
//
//	attribute     meaning
//	ip            the client's address; IPv6 by its first 64 bits, unless set otherwise
//	address       the client's whole address: for lists of addresses
//	method        GET, POST, …
//	path          of the URL, unescaped, without "//" and the query; for "/../" see
//	              [Reader.Ambiguous]
//	folded_path   path in lower case and with a slash at its end
//	route         the pattern that http.ServeMux chose, once it has; see [MuxRoute]
//	header:NAME   the first header of this name; header:Host is the request's host
//	cookie:NAME   the first cookie of this name
//	any other     by Options.Sources; there is no built-in user, api_key or api
//
// The client writes method, path, headers and cookies. A key of them limits only clients that do
// not change them: verify them first, or also limit by ip.
package httpidentity

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"

	"github.com/gaissmai/bart"

	"github.com/offpath-io/offpath/pkg/identity"
)

// Forwarding is the header in which trusted proxies write the client's address. The other one is
// ignored: a proxy that writes one of them passes the other on as the client sent it.
type Forwarding uint8

// The headers.
const (
	XForwardedFor Forwarding = iota // X-Forwarded-For, which most proxies write (default)
	Forwarded                       // Forwarded, RFC 7239
)

// headers are the names, by value, in the spelling of net/http.
var headers = []string{XForwardedFor: "X-Forwarded-For", Forwarded: "Forwarded"}

// String returns the header's name, or "invalid".
func (f Forwarding) String() string {
	if int(f) >= len(headers) {
		return "invalid"
	}
	return headers[f]
}

// ParseForwarding reads a header's name, in any case.
func ParseForwarding(text string) (Forwarding, error) {
	canonical := http.CanonicalHeaderKey(text)
	if i := slices.Index(headers, canonical); i >= 0 {
		return Forwarding(i), nil
	}
	return 0, fmt.Errorf("forwarding header %.40q: want X-Forwarded-For or Forwarded", text)
}

// Source returns an attribute of a request. ok is false if the request has none; an empty value is
// one. A Source is called at most once per request, and concurrently. It must not change the
// request.
type Source func(r *http.Request) (value string, ok bool)

// Options of reading requests. The zero value trusts no proxy.
type Options struct {
	// TrustedProxies are the addresses of proxies whose forwarding header is trusted. No other host
	// may have them: a peer with one of them can claim any client's address. If there are none, the
	// client is the connection's peer.
	TrustedProxies []netip.Prefix
	// TrustSockets makes peers without an address, for example on a Unix socket, trusted proxies.
	TrustSockets bool
	// Forwarding is the header that all trusted proxies write.
	Forwarding Forwarding

	// IPv4Prefix and IPv6Prefix are the lengths of the prefix of an address that is the attribute
	// ip, in bits: 1 to 32 and 1 to 128. Default: identity.DefaultIPv4Prefix, 32, and
	// identity.DefaultIPv6Prefix, 64.
	IPv4Prefix, IPv6Prefix int

	// Sources are further attributes, by name. They take precedence over built-in ones. They must
	// not have ip and address.
	Sources map[string]Source
}

// Builder makes readers. Its methods are safe for concurrent use.
type Builder struct {
	options Options
	trusted *bart.Lite
}

// NewBuilder returns a Builder with a copy of the options. It fails on an invalid one.
func NewBuilder(o Options) (*Builder, error) {
	trusted, err := o.check()
	if err != nil {
		return nil, fmt.Errorf("request identity: %w", err)
	}
	sources := make(map[string]Source, len(o.Sources))
	for name, source := range o.Sources {
		if err := checkSource(name, source); err != nil {
			return nil, fmt.Errorf("request identity: %w", err)
		}
		sources[name] = source
	}
	o.Sources, o.TrustedProxies = sources, slices.Clone(o.TrustedProxies)
	return &Builder{options: o, trusted: trusted}, nil
}

func checkSource(name string, source Source) error {
	switch {
	case name == "":
		return errors.New("a source without a name")
	case source == nil:
		return fmt.Errorf("source %.40q is nil", name)
	case name == ipName || name == addressName:
		return fmt.Errorf("source %q: only the connection and its trusted proxies provide it", name)
	}
	return nil
}

// check returns the trusted proxies, prepared for searching.
func (o *Options) check() (*bart.Lite, error) {
	switch {
	case int(o.Forwarding) >= len(headers):
		return nil, fmt.Errorf("forwarding header %d: want XForwardedFor or Forwarded",
			o.Forwarding)
	case o.IPv4Prefix < 0 || o.IPv4Prefix > 32:
		return nil, fmt.Errorf("IPv4 prefix of %d bits: want 1 to 32, or 0 for %d",
			o.IPv4Prefix, identity.DefaultIPv4Prefix)
	case o.IPv6Prefix < 0 || o.IPv6Prefix > 128:
		return nil, fmt.Errorf("IPv6 prefix of %d bits: want 1 to 128, or 0 for %d",
			o.IPv6Prefix, identity.DefaultIPv6Prefix)
	}
	trusted := new(bart.Lite)
	for i, prefix := range o.TrustedProxies {
		if !prefix.IsValid() {
			return nil, fmt.Errorf("trusted proxy %d is no prefix", i+1)
		}
		prefix, ok := identity.ParseGroup(prefix.String()) // folds IPv4 in IPv6
		if !ok {
			return nil, fmt.Errorf("trusted proxy %d, %v: want the IPv4 prefix, or 96 bits or more",
				i+1, o.TrustedProxies[i])
		}
		trusted.Insert(prefix)
	}
	return trusted, nil
}

// ParseProxies reads trusted proxies: addresses and prefixes in CIDR notation.
func ParseProxies(list ...string) ([]netip.Prefix, error) {
	proxies := make([]netip.Prefix, len(list))
	for i, text := range list {
		proxy, ok := identity.ParseGroup(text)
		if !ok {
			return nil, fmt.Errorf("trusted proxy %d, %.60q: want an address or a prefix such as "+
				"10.0.0.0/8", i+1, text)
		}
		proxies[i] = proxy
	}
	return proxies, nil
}
