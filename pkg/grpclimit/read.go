package grpclimit

import (
	"context"
	"net"
	"net/netip"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/offpath-io/offpath/pkg/identity"
)

// Names of attributes that are built in.
const (
	userName    = "user"
	methodName  = "method"
	serviceName = "service"
	ipName      = "ip"
	addressName = "address"

	headerPrefix = "header:"
)

// Source finds an attribute of a call; grpc.Method tells its method, and [FromMetadata] reads what the client sent. ok is false if the call has none;
// an empty value is one. It is called once for each decision at most, by many goroutines at once.
type Source func(ctx context.Context) (value string, ok bool)

// FromMetadata is a source that reads the first value of a name, in any case. For "Host" it is the :authority. The values of a name that ends
// in "-bin" are bytes. Use it where an attribute is another's word: {"user": FromMetadata("x-user")}, behind a proxy that sets x-user itself.
func FromMetadata(name string) Source {
	name = strings.ToLower(name)
	if name == "host" { // HTTP/2 calls it otherwise
		name = ":authority"
	}
	return func(ctx context.Context) (string, bool) {
		values := metadata.ValueFromIncomingContext(ctx, name)
		if len(values) == 0 {
			return "", false
		}
		return values[0], true
	}
}

// source returns where an attribute comes from, or nil for those that the plan reads itself and for what is not known.
// The error says that no call can have it; names are those that HTTP has, since rules may be for both.
func (l *Limit) source(name string) (Source, error) {
	if source, ok := l.options.Sources[name]; ok {
		return source, nil
	}
	if _, err := l.builder.Reader([]string{name}); err != nil {
		return nil, err
	}
	if header, ok := strings.CutPrefix(name, headerPrefix); ok {
		return FromMetadata(header), nil
	}
	return nil, nil
}

// serviceOf is the middle part of a method's full name, or "" if that is in another form.
func serviceOf(method string) string {
	method = strings.TrimPrefix(method, "/")
	return method[:max(strings.LastIndexByte(method, '/'), 0)]
}

// client is the address that a call comes from.
func (p *plan) client(ctx context.Context) (netip.Addr, bool) {
	var remote net.Addr
	if from, ok := peer.FromContext(ctx); ok {
		remote = from.Addr
	}
	o := &p.limit.options.Identity
	if tcp, ok := remote.(*net.TCPAddr); ok && len(o.TrustedProxies) == 0 { // the common case, which needs no text
		addr := tcp.AddrPort().Addr().WithZone("").Unmap()
		return addr, addr.IsValid()
	}
	if remote == nil { // not as nothing, which is a socket of a known kind
		return netip.Addr{}, false
	}
	return p.limit.builder.ClientIPFrom(remote.String(), metadata.ValueFromIncomingContext(ctx, p.forwarding))
}

// attributes appends those of a call to dst.
func (p *plan) attributes(dst identity.Attributes, ctx context.Context, method string) identity.Attributes {
	o := &p.limit.options
	if p.user {
		if user := o.User(ctx); user != "" {
			dst = append(dst, identity.Attribute{Name: userName, Value: user})
		}
	}
	if p.method {
		dst = append(dst, identity.Attribute{Name: methodName, Value: method})
	}
	if p.service {
		if service := serviceOf(method); service != "" {
			dst = append(dst, identity.Attribute{Name: serviceName, Value: service})
		}
	}
	for i := range p.sources {
		if value, ok := p.sources[i].source(ctx); ok {
			dst = append(dst, identity.Attribute{Name: p.sources[i].name, Value: value})
		}
	}
	if !p.ip && !p.address {
		return dst
	}
	addr, ok := p.client(ctx)
	if ok && p.ip {
		dst = append(dst, identity.Attribute{Name: ipName, Value: identity.Group(addr, o.Identity.IPv4Prefix, o.Identity.IPv6Prefix)})
	}
	if ok && p.address {
		dst = append(dst, identity.Attribute{Name: addressName, Value: addr.String()})
	}
	return dst
}
