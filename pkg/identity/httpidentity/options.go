// Package httpidentity says who is asking: it makes the attributes of an HTTP request that rules
// need.
//
// A [Builder] knows the proxies to trust and where attributes come from. It gives a [Reader] for
// the names that a set of rules needs, and that one reads them from each request, and no others.
//
//	attribute     what it is
//	ip            the client's address; IPv6 grouped by its first 64 bits, if not set otherwise
//	address       the client's address, not grouped: for lists of addresses
//	method        GET, POST, …
//	path          of the URL, unescaped, without "//" and the query; see [Reader.Ambiguous] for "/../"
//	folded_path   path in lower case and with a slash at its end
//	route         the pattern that http.ServeMux chose, if it has; see [MuxRoute] for before it does
//	header:NAME   the first header of this name; header:Host is the host that was asked for
//	cookie:NAME   the first cookie of this name
//	any other     as Options.Sources say; nothing else is taken for a user, api_key or api
//
// Method, path, headers and cookies are what the client wrote, whoever that is. A key of them
// limits only those who do not change them; check them first, or limit by ip beside.
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

// Forwarding is the header that trusted proxies tell the client's address in. The other one is not
// looked at: a proxy that writes one of them passes on what the client put into the other.
type Forwarding uint8

// The headers.
const (
	XForwardedFor Forwarding = iota // X-Forwarded-For, which most proxies write (default)
	Forwarded                       // Forwarded, RFC 7239
)

// headers are the names, by value, in the form that net/http gives them.
var headers = []string{XForwardedFor: "X-Forwarded-For", Forwarded: "Forwarded"}

// String is the header's name, or "invalid".
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

// Source finds an attribute of a request. ok is false if the request has none; an empty value is
// one. It is called once per request at most, by many goroutines at once, and must not change the
// request.
type Source func(r *http.Request) (value string, ok bool)

// Options say how requests are read. The zero value trusts no proxy.
type Options struct {
	// TrustedProxies are the addresses of proxies whose forwarding header is believed, and of
	// nobody else: whoever sends from one of them can claim to be anyone. Empty: the client is the
	// connection's peer.
	TrustedProxies []netip.Prefix
	// TrustSockets takes peers without an address, as on a Unix socket, for trusted proxies.
	TrustSockets bool
	// Forwarding is the header that the trusted proxies write, all of them the same.
	Forwarding Forwarding

	// IPv4Prefix and IPv6Prefix are how many first bits of an address make the attribute ip: 1 to
	// 32 and 1 to 128. 0 is identity.DefaultIPv4Prefix, 32, and identity.DefaultIPv6Prefix, 64.
	IPv4Prefix, IPv6Prefix int

	// Sources are further attributes, by name. They beat what is built in, except ip and address.
	Sources map[string]Source
}

// Builder makes readers. It is never changed, and may be used by many goroutines at once.
type Builder struct {
	options Options
	trusted *bart.Lite
}

// NewBuilder checks the options, and takes a copy of them.
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
		return fmt.Errorf("source %q: it comes from the connection and its trusted proxies alone", name)
	}
	return nil
}

// check returns the trusted proxies, in a form that is quick to search.
func (o *Options) check() (*bart.Lite, error) {
	switch {
	case int(o.Forwarding) >= len(headers):
		return nil, fmt.Errorf("forwarding header %d: want XForwardedFor or Forwarded", o.Forwarding)
	case o.IPv4Prefix < 0 || o.IPv4Prefix > 32:
		return nil, fmt.Errorf("IPv4 prefix of %d bits: want 1 to 32, or 0 for %d", o.IPv4Prefix, identity.DefaultIPv4Prefix)
	case o.IPv6Prefix < 0 || o.IPv6Prefix > 128:
		return nil, fmt.Errorf("IPv6 prefix of %d bits: want 1 to 128, or 0 for %d", o.IPv6Prefix, identity.DefaultIPv6Prefix)
	}
	trusted := new(bart.Lite)
	for i, prefix := range o.TrustedProxies {
		if !prefix.IsValid() {
			return nil, fmt.Errorf("trusted proxy %d is no prefix", i+1)
		}
		prefix, ok := identity.ParseGroup(prefix.String()) // folds IPv4 in IPv6
		if !ok {
			return nil, fmt.Errorf("trusted proxy %d, %v: want the IPv4 prefix, or 96 bits or more", i+1, o.TrustedProxies[i])
		}
		trusted.Insert(prefix)
	}
	return trusted, nil
}

// ParseProxies reads trusted proxies as settings write them: addresses and prefixes in CIDR
// notation.
func ParseProxies(list ...string) ([]netip.Prefix, error) {
	proxies := make([]netip.Prefix, len(list))
	for i, text := range list {
		proxy, ok := identity.ParseGroup(text)
		if !ok {
			return nil, fmt.Errorf("trusted proxy %d, %.60q: want an address or a prefix such as 10.0.0.0/8", i+1, text)
		}
		proxies[i] = proxy
	}
	return proxies, nil
}
