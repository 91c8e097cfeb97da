package grpclimit

import (
	"context"
	"net"
	"net/netip"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/internal/adapter"
)

// Names of built-in attributes, besides that of Options.User.
const (
	methodName  = "method"
	serviceName = "service"
	ipName      = "ip"
	addressName = "address"

	headerPrefix = "header:"
)

// Source returns an attribute of a call; ok is false if the call has none, and an empty value is
// one. grpc.Method returns the call's method, and [FromMetadata] reads what the client sent. A
// Source is called at most once per decision, and concurrently.
type Source func(ctx context.Context) (value string, ok bool)

// FromMetadata returns a source that reads the first value of a name, in any case. For "Host" it is
// the :authority. The values of a name that ends in "-bin" are bytes. It is for attributes that
// another server writes: {"user": FromMetadata("x-user")} behind a proxy that sets x-user itself.
func FromMetadata(name string) Source {
	name = strings.ToLower(name)
	if name == "host" { // its name in HTTP/2
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

// source returns an attribute's source, nil if the plan reads it itself or nothing provides it. It
// fails if no call can have the attribute; names are those of HTTP, since rules may be for both.
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

// serviceOf returns the middle part of a method's full name, "" if that has another form.
func serviceOf(method string) string {
	method = strings.TrimPrefix(method, "/")
	return method[:max(strings.LastIndexByte(method, '/'), 0)]
}

// client returns the address of a call's client.
func (p *plan) client(ctx context.Context) (netip.Addr, bool) {
	from, ok := peer.FromContext(ctx)
	if !ok || from.Addr == nil {
		return netip.Addr{}, false
	}
	proxies := p.limit.options.Identity.TrustedProxies
	if tcp, ok := from.Addr.(*net.TCPAddr); ok && len(proxies) == 0 { // the common case: no text
		addr := tcp.AddrPort().Addr().WithZone("").Unmap()
		return addr, addr.IsValid()
	}
	forwarded := metadata.ValueFromIncomingContext(ctx, p.forwarding)
	return p.limit.builder.ClientIPFrom(from.Addr.String(), forwarded)
}

// attributes appends those of a call to dst.
func (p *plan) attributes(
	dst identity.Attributes, ctx context.Context, method string,
) identity.Attributes {
	o := &p.limit.options
	add := func(name, value string) {
		dst = append(dst, identity.Attribute{Name: name, Value: value})
	}
	if p.user {
		if user := o.User(ctx); user != "" {
			add(adapter.UserName, user)
		}
	}
	if p.method {
		add(methodName, method)
	}
	if p.service {
		if service := serviceOf(method); service != "" {
			add(serviceName, service)
		}
	}
	for _, source := range p.sources {
		if value, ok := source.read(ctx); ok {
			add(source.name, value)
		}
	}
	if !p.ip && !p.address {
		return dst
	}
	addr, ok := p.client(ctx)
	if ok && p.ip {
		add(ipName, identity.Group(addr, o.Identity.IPv4Prefix, o.Identity.IPv6Prefix))
	}
	if ok && p.address {
		add(addressName, addr.String())
	}
	return dst
}
